"""Variational edge partition models: supervised learning on graphs that finds communities."""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vepm.estimators import (
        CommunityDetector,
        GraphClassifier,
        LinkPredictor,
        NodeClassifier,
        NodeSplit,
    )
    from vepm.nn import VEPM

__version__ = "0.1.0"

__all__ = [
    "VEPM",
    "CommunityDetector",
    "GraphClassifier",
    "LinkPredictor",
    "NodeClassifier",
    "NodeSplit",
    "__version__",
]

_HOMES = {
    "VEPM": "vepm.nn",
    "CommunityDetector": "vepm.estimators",
    "GraphClassifier": "vepm.estimators",
    "LinkPredictor": "vepm.estimators",
    "NodeClassifier": "vepm.estimators",
    "NodeSplit": "vepm.estimators",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


# Whoever imports the package may take the divergence of a Weibull from a Gamma. The command line,
# which starts outside of it, is spared the seconds that PyTorch takes until a command needs it.
if "vepm_command" not in sys.modules:
    importlib.import_module("vepm.nn")
