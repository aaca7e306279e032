"""Sums over neighbours on CPUs and GPUs, rates and shares of edges, sparse features."""
