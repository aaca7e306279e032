"""The evidence lower bound, term by term."""

from vepm.objective.edges import (
    edge_log_likelihood,
    partial_edge_log_likelihood,
    subsampled_edge_log_likelihood,
)
from vepm.objective.terms import Counts, Terms, label_log_likelihood, shrinking_penalty

__all__ = [
    "Counts",
    "Terms",
    "edge_log_likelihood",
    "label_log_likelihood",
    "partial_edge_log_likelihood",
    "shrinking_penalty",
    "subsampled_edge_log_likelihood",
]
