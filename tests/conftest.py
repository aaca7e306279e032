"""Small tests on shared cores: more threads would only get in each other's way."""

import os

# Read when Triton is first imported, which torch_geometric does: its kernels then run on CPUs.
os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

torch.set_num_threads(1)
