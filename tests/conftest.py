"""Small tests on shared cores: more threads would only get in each other's way."""

import os

# Read when Triton is first imported, which torch_geometric does: its kernels then run on CPUs.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# Processes that tests start count in the same order, and so to the same bits.
os.environ["OMP_NUM_THREADS"] = "1"

# The same examples in every run, and nothing remembered from one run for the next; kernels warm
# up on first use, so a time limit per example would fail at random.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile(os.environ.get("VEPM_TEST_PROFILE", "fixed"))


def pytest_configure(config: pytest.Config) -> None:
    # Most tests train for a few epochs and learn little. In pyproject.toml, the name of the class
    # would import it, and Triton with it, before the lines above are read.
    config.addinivalue_line("filterwarnings", "ignore::vepm.errors.TrainingWarning")
