"""The bars of the node preset on Cora's public split, over the same seeds as the records."""

import os

import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from vepm.data import Dataset, load
from vepm.evaluation import public_split
from vepm.nn import interactions
from vepm.training import Fitted, explain, fit, preset

pytestmark = pytest.mark.skipif("VEPM_DATA" not in os.environ, reason="VEPM_DATA is not set")

SEEDS = range(5)


@pytest.fixture(scope="module")
def cora() -> Dataset:
    return load("Cora")


def nmi(fitted: Fitted) -> float:
    """Agreement of the hard metacommunities with the labels."""
    model, source = fitted.model, fitted.source
    with torch.no_grad():
        links = interactions(explain(model, source).memberships, model.activation, 8)
    return normalized_mutual_info_score(links.argmax(1), source.y)


def test_communities_and_accuracy_reach_the_bars(cora: Dataset) -> None:
    config, split = preset("tuned", "node"), public_split(cora)
    before, after, accuracy = [], [], []
    for seed in SEEDS:
        before.append(nmi(fit(cora, config, seed=seed, device="cpu")))
        finetuned = fit(
            cora,
            config,
            train_on=split.train,
            validate_on=split.val,
            watch=split.test,
            seed=seed,
            device="cpu",
        )
        after.append(nmi(finetuned))
        accuracy.append(finetuned.best["test_accuracy"])
    pretrained, finetuned_nmi = sum(before) / len(before), sum(after) / len(after)
    print(f"NMI {pretrained:.3f} -> {finetuned_nmi:.3f}, accuracy {sum(accuracy) / 5:.4f}")
    assert config.model.num_metacommunities == 8
    assert pretrained >= 0.32
    assert finetuned_nmi >= pretrained
    assert sum(accuracy) / len(accuracy) >= 0.825
