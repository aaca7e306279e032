"""Small tests on shared cores: more threads would only get in each other's way."""

import torch

torch.set_num_threads(1)
