"""What a study is given and what it finds."""

import time
from dataclasses import dataclass, field

from torch import Tensor
from torch_geometric.data import Data

from vepm.data import Dataset
from vepm.evaluation import RunResult, Split, result_of
from vepm.training import Config, Fitted, fit


@dataclass(frozen=True, eq=False)
class Setting:
    """What a study is given."""

    dataset: Dataset
    split: Split
    config: Config
    seed: int
    device: str = "auto"
    quick: bool = False

    @property
    def graph(self) -> Data:
        """The one graph of a node task."""
        return self.dataset.graphs[0]

    @property
    def parts(self) -> int:
        """Number of communities to find."""
        return self.config.model.num_metacommunities


@dataclass(frozen=True, eq=False)
class Finding:
    """What a run or a study finds."""

    numbers: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    result: RunResult | None = None


def finetune(setting: Setting) -> tuple[Fitted, RunResult]:
    """Train VEPM on the split; gives the model and the result."""
    started = time.perf_counter()
    dataset, split = setting.dataset, setting.split
    fitted = fit(
        dataset,
        setting.config,
        train_on=split.train,
        validate_on=split.val,
        watch=split.test,
        seed=setting.seed,
        device=setting.device,
    )
    return fitted, result_of(fitted, dataset, split, time.perf_counter() - started)
