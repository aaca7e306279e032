"""Variational edge partition models."""
