"""Sums over neighbours on CPUs and GPUs, fused edge shares and sparse features."""
