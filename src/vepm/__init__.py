"""Variational edge partition models: supervised learning on graphs that finds communities."""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vepm.estimators import CommunityDetector, GraphClassifier, LinkPredictor, NodeClassifier
    from vepm.nn import VEPM

__version__ = "0.1.0"

__all__ = [
    "VEPM",
    "CommunityDetector",
    "GraphClassifier",
    "LinkPredictor",
    "NodeClassifier",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "vepm.nn" if name == "VEPM" else "vepm.estimators"
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Whoever imports the package may take the divergence of a Weibull from a Gamma. The command line,
# which starts outside of it, is spared the seconds that PyTorch takes until a command needs it.
if "vepm_command" not in sys.modules:
    importlib.import_module("vepm.nn")
