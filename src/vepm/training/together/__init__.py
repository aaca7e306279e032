"""Many runs as one: seeds and folds train side by side, with one pass over the graph for all."""

from vepm.training.together.fitting import Run, bundles, fit_together, most_together

__all__ = ["Run", "bundles", "fit_together", "most_together"]
