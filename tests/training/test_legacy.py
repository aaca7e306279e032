"""Settings of earlier versions are read, or refused where they can no longer be honoured."""

from typing import Any

import pytest

from vepm.errors import InputError
from vepm.training import PRESETS, Config
from vepm.training.config import FIELDS, recorded


def test_there_are_at_most_forty_settings() -> None:
    assert len(FIELDS) <= 40


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("name", PRESETS)
def test_recorded_settings_read_back(name: str, task: str) -> None:
    config = PRESETS[name][task].replace(class_balance_weight=0.5)
    old = recorded(config)
    assert set(old["model"]) - set(FIELDS) >= {"encoder_layers", "shape", "fusion"}
    assert set(old["training"]) - set(FIELDS) >= {"alignment", "edge_weight", "balanced"}
    assert Config.from_dict(old) == config


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"alignment": 1.0}, {"class_balance_weight": 1.0}),
        ({"edge_weight": 2.0}, {"edge_term_weight": 2.0}),
        ({"batch_nodes": 500}, {"batch_size": 500}),
        ({"batch_nodes": 0, "batch_size": 32}, {"batch_size": 32}),
        ({"fusion": "mass"}, {"inputs": "mass"}),
        ({"inputs": "both", "fusion": "softmax"}, {"inputs": "softmax"}),
        ({"inputs": "x", "fusion": "softmax"}, {"inputs": "x"}),
        ({"balanced": False}, {"likelihood": "summed"}),
        ({"balanced": True, "likelihood": "exact"}, {"likelihood": "balanced"}),
        ({"balanced": True, "likelihood": "subsampled"}, {"likelihood": "subsampled"}),
        ({"shape": "entry", "prior_rate": 1, "sharpening": 0.5}, {}),
        ({"shares": "posterior", "grouping": "learned"}, {"shares": "posterior"}),
        ({"shares": "softmax", "grouping": "segments"}, {}),
        ({"consistency_warmup": 50}, {}),
        ({"consistency_weight": 0.0, "consistency_warmup": 0}, {}),
    ],
)
def test_earlier_names_are_read(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert Config().replace(**old) == Config().replace(**new)


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ({"encoder_layers": 3}, "encoder_layers can no longer be changed; it is always 2"),
        ({"sharpening": 0.3}, "sharpening can no longer be changed; it is always 0.5"),
        ({"consistency_warmup": 0}, "consistency_warmup can no longer be changed"),
        ({"consistency_weight": 1.0, "consistency_warmup": 0}, "consistency_warmup"),
        ({"grouping": "segments"}, "it is always what goes with shares"),
        ({"shares": "posterior", "grouping": "segments"}, "it is always learned"),
        ({"inputs": "z", "fusion": "mass"}, "inputs='z'"),
        ({"balanced": False, "likelihood": "subsampled"}, "likelihood='subsampled'"),
    ],
)
def test_what_can_no_longer_be_done_is_refused(old: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config().replace(**old)
