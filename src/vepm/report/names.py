"""Real names where numbers would stand: classes of benchmarks, pixels, what a community is like."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PUBLISHED = {
    "Cora": (
        "Theory",
        "Reinforcement learning",
        "Genetic algorithms",
        "Neural networks",
        "Probabilistic methods",
        "Case-based",
        "Rule learning",
    ),
    "CiteSeer": (
        "Artificial intelligence",
        "Machine learning",
        "Information retrieval",
        "Databases",
        "Agents",
        "Human-computer interaction",
    ),
    "PubMed": ("Experimental diabetes", "Type 2 diabetes", "Type 1 diabetes"),
    "MUTAG": ("not mutagenic", "mutagenic"),
}
"""What the class numbers of benchmarks stand for, as the sizes of the classes tell."""
SOURCES = ("Planetoid", "TU collection")
MOST_PIXELS = 400_000
LEVELS = "0123456789abcdef"


def published_classes(metrics: Mapping[str, Any]) -> list[str] | None:
    """The class names of a benchmark whose files have only numbers."""
    given, source = metrics.get("class_names"), str(metrics.get("source"))
    names = PUBLISHED.get(str(metrics.get("dataset")), ())
    numbered = isinstance(given, list) and all(str(name).isdigit() for name in given)
    known = numbered and len(names) == len(given or ()) and source.startswith(SOURCES)
    return list(names) if known else None


def pixel_grid(feature_names: Sequence[str]) -> tuple[int, int] | None:
    """Rows and columns of an image whose pixels the features are, in reading order."""
    found = [re.fullmatch(r"pixel_(\d+)_(\d+)", name) for name in feature_names]
    if not found or not all(found):
        return None
    places = [(int(match[1]), int(match[2])) for match in found if match]
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    return (rows, columns) if places == list(np.ndindex(rows, columns)) else None


def images(features: NDArray[np.float64]) -> list[str]:
    """Each row of features as a string of grey levels, one hexadecimal digit a pixel."""
    finite = np.where(np.isfinite(features), features, 0.0)
    scale = float(finite.max(initial=0.0)) or 1.0
    levels = (15 * np.clip(finite / scale, 0, 1)).round().astype(int)
    return ["".join(LEVELS[level] for level in row) for row in levels.tolist()]
