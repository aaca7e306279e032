"""What a model file says of itself, beside the weights."""

from dataclasses import dataclass, field
from typing import Any, Self

from vepm.data import Dataset
from vepm.data.anchors import Anchors
from vepm.data.columns import with_columns
from vepm.errors import InputError
from vepm.nn import VEPM
from vepm.training.config import Config


@dataclass(frozen=True)
class ModelCard:
    """The description of a model: what it was trained on, and with which settings."""

    task: str
    in_channels: int
    config: Config
    class_names: tuple[str, ...]
    seed: int = 0
    feature_names: tuple[str, ...] | None = None
    """The name of each feature column; None if the columns had no names."""
    anchors: Anchors | None = field(default=None, compare=False)
    """The nodes of the training graph, where features are their coordinates in it."""

    @classmethod
    def of(cls, dataset: Dataset, config: Config, seed: int = 0) -> Self:
        """The card of a model that is to be trained on a dataset."""
        return cls(
            dataset.task,
            dataset.num_features,
            config,
            dataset.class_names,
            int(seed),
            dataset.feature_names,
            Anchors.of(dataset),
        )

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Self:
        """The card behind a description that was read from a file, without anchors.

        Raises:
            ValueError, KeyError, TypeError, OverflowError: if it does not describe a model.
        """
        width = _count(description["in_channels"])
        return cls(
            task=description["task"],
            in_channels=width,
            config=Config.from_dict(description["config"]),
            class_names=tuple(str(name) for name in description["class_names"]),
            seed=_seed(description["seed"]),
            # Files of earlier versions have no feature names.
            feature_names=_feature_names(description.get("feature_names"), width),
        )

    def description(self) -> dict[str, Any]:
        """The card as JSON can hold it, which is all but the anchors."""
        described = vars(self) | {"config": self.config.to_dict()}
        del described["anchors"]
        return described

    def prepare(self, dataset: Dataset) -> Dataset:
        """New data with the feature columns of this model, in its order and of its meaning.

        Raises:
            InputError: if columns are missing or unknown, or mean something else.
        """
        dataset = with_columns(dataset, self.feature_names, self.in_channels)
        return self.anchors.align(dataset) if self.anchors and dataset.num_positions else dataset

    def build(self) -> VEPM:
        """A model of this description, its weights at their random start."""
        try:
            return VEPM(
                self.in_channels,
                max(len(self.class_names), 1),
                task=self.task,
                **self.config.model.arguments(),
            )
        except ValueError as error:
            raise InputError(f"settings: {error}") from None


def _count(value: Any) -> int:
    if type(value) is not int or not 1 <= value < 2**31:
        raise ValueError(f"{value!r} is not a width")
    return value


def _seed(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise ValueError(f"{value!r} is not a seed")
    return value


def _feature_names(value: Any, width: int) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("feature names are not a list of text")
    if len(value) != width or len(set(value)) != width:
        raise ValueError(f"{len(set(value))} different feature names for {width} features")
    return tuple(value)
