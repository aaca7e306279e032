"""The evidence lower bound as it is trained, term by term."""

from vepm.objective.edges import (
    edge_log_likelihood,
    partial_edge_log_likelihood,
    subsampled_edge_log_likelihood,
)
from vepm.objective.terms import (
    Batch,
    Counts,
    Terms,
    bound_terms,
    disagreement,
    label_log_likelihood,
    predictor_terms,
    pretraining_terms,
)

__all__ = [
    "Batch",
    "Counts",
    "Terms",
    "bound_terms",
    "disagreement",
    "edge_log_likelihood",
    "label_log_likelihood",
    "partial_edge_log_likelihood",
    "predictor_terms",
    "pretraining_terms",
    "subsampled_edge_log_likelihood",
]
