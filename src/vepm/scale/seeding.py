"""Random numbers that depend on their purpose alone."""

import hashlib

import torch


def seed_of(*purpose: str | int) -> int:
    """A seed for a purpose, unrelated to that of any other."""
    text = "/".join(map(str, purpose))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def seed_draws(*purpose: str | int) -> None:
    """Seed torch for a purpose, whatever was drawn before."""
    torch.manual_seed(seed_of(*purpose))
