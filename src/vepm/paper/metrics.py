"""What is read from runs, and how it is written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How a number is written.

    Args:
        unit: what stands beside it.
        scale: what it is multiplied by.
        decimals: how many are written.
        exact: whether it has no spread by nature, so that any difference counts.
    """

    unit: str = ""
    scale: float = 1.0
    decimals: int = 2
    exact: bool = False

    def text(self, value: float) -> str:
        """The value as it is written."""
        written = f"{self.scale * value:.{self.decimals}f}"
        whole = self.exact and abs(self.scale * value) >= 100
        return written.removesuffix(".0") if whole else written


_COUNT = Metric(decimals=1, exact=True)

METRICS: dict[str, Metric] = {
    "accuracy": Metric("%", 100.0, 1),
    "svm_accuracy": Metric("%", 100.0, 1),
    "seconds_per_epoch": Metric("s", decimals=3),
    "calibration_error": Metric("%", 100.0, 1),
    "sampled_calibration_error": Metric("%", 100.0, 1),
    "fitted_calibration_error": Metric("%", 100.0, 1),
    "partition_entropy": Metric(decimals=3),
    "evened_accuracy": Metric("%", 100.0, 1),
    "shuffled_accuracy": Metric("%", 100.0, 1),
    "split_gradient": Metric("%", 100.0, 1),
    "label_gradient": Metric("%", 100.0, 1),
    "nmi_pretrained": Metric(decimals=3),
    "nmi_finetuned": Metric(decimals=3),
    "graphs": _COUNT,
    "nodes": _COUNT,
    "edges": _COUNT,
    "features": _COUNT,
    "classes": _COUNT,
    "size_imbalance": Metric(),
    "density_ratio": Metric(),
    "overlap": Metric(),
    "task_dependence": Metric(decimals=3),
}
"""Everything a square can show."""
