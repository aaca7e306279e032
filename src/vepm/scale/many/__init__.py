"""Many runs at once: seeds and folds trained as one program that reads the graph once for all."""

from vepm.scale.many.executor import ManyRuns

__all__ = ["ManyRuns"]
