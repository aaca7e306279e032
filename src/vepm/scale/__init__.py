"""Training and inference at scale: clusters, chunks, DDP, CUDA graphs and many runs at once."""
