"""Models on disk: what was written comes back, anything else is refused."""

import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as write_tensors

from training.forging import Bomb, Forge, Tensors, forge, put
from training.toys import TASKS, rng_untouched, run, same_weights, weights
from vepm.errors import InputError
from vepm.training import load_model, save_model, scores


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    fitted, path = run("node"), tmp_path / "model.safetensors"
    save_model(path, fitted.model, fitted.card)
    return path


def refused(path: Path, words: str = ".") -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_model_comes_back(task: str, tmp_path: Path) -> None:
    fitted, path = run(task, seed=5), tmp_path / "deep" / "model.safetensors"
    save_model(path, fitted.model, fitted.card)
    model, card = load_model(path)
    assert card == fitted.card
    assert same_weights(model.state_dict(), weights(fitted))
    assert torch.equal(scores(model, fitted.source), scores(fitted.model, fitted.source))
    assert not model.training
    assert all(p.requires_grad for p in model.parameters())


def test_the_same_model_is_the_same_bytes(model_file: Path) -> None:
    fitted, first = run("node"), model_file.read_bytes()
    for _ in range(10):
        save_model(model_file, fitted.model, fitted.card)
        assert model_file.read_bytes() == first


def test_forging_without_changes_loads(model_file: Path) -> None:
    forge(model_file, lambda tensors, header: None)
    assert load_model(model_file)[1].task == "node"


def test_a_model_trained_with_what_can_no_longer_be_set_is_read(model_file: Path) -> None:
    card = load_model(model_file)[1]
    sections = card.config.to_dict()
    sections["training"] |= {"consistency_warmup": 7, "sharpening": 0.2}
    forge(model_file, put(config=sections))
    assert load_model(model_file)[1] == card
    sections["model"]["encoder_layers"] = 3
    forge(model_file, put(config=sections))
    refused(model_file, "encoder_layers")


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_every_seed_that_pytorch_takes_is_read(seed: int, model_file: Path) -> None:
    forge(model_file, put(seed=seed))
    assert load_model(model_file)[1].seed == seed


def test_nothing_is_ever_unpickled(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    for owner, name in [(pickle, "load"), (pickle, "loads"), (torch, "load")]:
        monkeypatch.setattr(owner, name, never)
    assert load_model(model_file)[1].seed == 0


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "model.safetensors", "no such file")
    refused(tmp_path, "no such file")


def test_files_cut_short_are_refused(model_file: Path) -> None:
    content = model_file.read_bytes()
    lengths = {0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1}
    for length in sorted(lengths | set(range(0, len(content), len(content) // 20))):
        model_file.write_bytes(content[:length])
        refused(model_file, "safetensors|not a model")


def test_files_with_something_added_are_refused(model_file: Path) -> None:
    model_file.write_bytes(model_file.read_bytes() + b"\0")
    refused(model_file, "safetensors")


def test_random_bytes_are_refused(model_file: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (1, 8, 9, 64, 4096):
        numbers = torch.randint(256, (size,), generator=generator).tolist()
        model_file.write_bytes(bytes(numbers))
        refused(model_file)
    model_file.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(model_file)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_refused_and_not_run(protocol: int, model_file: Path) -> None:
    model_file.write_bytes(pickle.dumps(Bomb(), protocol=protocol))
    refused(model_file, "safetensors")


def test_a_torch_file_is_refused(model_file: Path) -> None:
    torch.save({"weight": torch.ones(3)}, model_file)
    refused(model_file, "safetensors")


def test_safetensors_of_others_are_refused(model_file: Path) -> None:
    for metadata in (None, {"format": "pt"}, {"vepm": "{"}, {"vepm": "[" * 100_000}, {"vepm": "3"}):
        model_file.write_bytes(write_tensors({"weight": torch.ones(3)}, metadata=metadata))
        refused(model_file, "not a model written by vepm")


def test_any_flipped_bit_is_noticed(model_file: Path) -> None:
    content = model_file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    in_header = range(0, 8 + length, 23)
    in_weights = range(8 + length, len(content), (len(content) - length) // 20)
    for position in (*range(8), *in_header, *in_weights):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        model_file.write_bytes(flipped)
        refused(model_file)


def _drop(tensors: Tensors, header: dict[str, Any]) -> None:
    del tensors["activation_logit"]


def _add(tensors: Tensors, header: dict[str, Any]) -> None:
    tensors["another"] = torch.ones(2)


def _widen(tensors: Tensors, header: dict[str, Any]) -> None:
    tensors["activation_logit"] = torch.ones(5)


def _configure(section: str, **changes: Any) -> Forge:
    return lambda tensors, header: header["config"][section].update(changes)


def _fill(name: str, value: float) -> Forge:
    return lambda tensors, header: tensors[name].fill_(value)


def _retype(tensors: Tensors, header: dict[str, Any]) -> None:
    tensors["activation_logit"] = tensors["activation_logit"].double()


UNUSABLE = [
    (name, value, f"{name} is not finite, or beyond all bounds")
    for name in ("encoder.layers.0.bias", "composer.layers.0.linear.weight", "sharpness")
    for value in (float("nan"), float("inf"), -float("inf"), 1e38)
] + [
    ("encoder.norms.0.norm.running_var", -1.0, "the model gives no finite numbers"),
    ("encoder.layers.1.bias", 1e20, "the model gives no finite numbers"),
]


@pytest.mark.parametrize(("name", "value", "words"), UNUSABLE)
def test_models_that_predict_nothing_are_not_loaded_nor_written(
    name: str, value: float, words: str, model_file: Path, tmp_path: Path
) -> None:
    model, card = load_model(model_file)
    forge(model_file, _fill(name, value))
    refused(model_file, words)
    model.state_dict()[name].fill_(value)
    with pytest.raises(InputError, match=words):
        save_model(tmp_path / "other.safetensors", model, card)
    assert not (tmp_path / "other.safetensors").exists()


def test_trying_a_model_leaves_it_as_it_was(model_file: Path, tmp_path: Path) -> None:
    model, card = load_model(model_file)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with rng_untouched():
        save_model(tmp_path / "other.safetensors", model, card)
    assert model.training
    assert same_weights(model.state_dict(), before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop, r"do not fit the settings.*activation_logit"),
        (_add, r"do not fit the settings.*another"),
        (_widen, r"activation_logit is .* of shape \[5\], the settings say"),
        (put(format=2), "format 2.*reads format 1"),
        (put(format=None), "format None"),
        (put(kind="training state"), "not a model written by vepm"),
        (put(task="edge"), "task must be one of"),
        (put(task=None), "task must be of type str"),
        (put(in_channels=7), "of shape"),
        (put(in_channels=-1), "in_channels must be"),
        (put(in_channels=0), "in_channels must be"),
        (put(in_channels=2**62), "in_channels must be"),
        (put(in_channels=2**31), "in_channels must be"),
        (put(added_positions=15), "coordinates are missing"),
        (put(added_positions=16), "coordinates are missing"),
        (put(weighted=2), "weighted must be"),
        (put(in_channels="6"), "in_channels must be"),
        (put(class_names=["a"]), "of shape"),
        (put(class_names=None), "not a usable model"),
        (put(seed="x"), "not a usable model"),
        (put(seed=float("inf")), "not a usable model"),
        (put(config="x"), "not a table"),
        (put(seed=2**64), "not a model"),
        (put(feature_names="abcdef"), "feature_names must be"),
        (put(feature_names=[1, 2, 3, 4, 5, 6]), "feature_names must be"),
        (put(feature_names=["a", "b"]), "2 different names for 6 features"),
        (put(feature_names=["a"] * 6), "1 different names for 6 features"),
        (_retype, "activation_logit is torch.float64 of shape"),
        (put(config={}), "of shape|do not fit"),
        (_configure("model", num_communities=10**9), "num_communities"),
        (_configure("model", num_communities=2**20, hidden_channels=2**20), "of shape"),
        (_configure("model", bank_layers=10**6), "bank_layers"),
        (_configure("model", encoder_layers=3), "encoder_layers can no longer be changed"),
        (_configure("model", num_metacommunities=5), "num_metacommunities"),
        (_configure("model", conv="gat"), "conv"),
        (_configure("model", unknown=1), "unknown"),
        (_configure("training", kl_weight=float("nan")), "kl_weight"),
        (_configure("model", temperature=1e-300), "temperature"),
        (_configure("training", kl_weight=1e300), "kl_weight"),
        (_configure("training", epochs=True), "epochs"),
    ],
)
def test_models_that_do_not_add_up_are_refused(
    change: Forge, words: str, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(model_file, change)
    # Nothing may be allocated for a model that will not be loaded.
    monkeypatch.setattr(torch.nn.Module, "to_empty", None)
    refused(model_file, words)


def test_descriptions_with_parts_missing_are_refused(model_file: Path) -> None:
    content = model_file.read_bytes()
    for name in ("task", "in_channels", "config", "class_names", "seed", "format", "kind"):
        model_file.write_bytes(content)
        forge(model_file, lambda tensors, header, name=name: header.pop(name))  # type: ignore[misc]
        refused(model_file)
