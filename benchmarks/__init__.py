"""Benchmarks that are not part of the wheel; they build on :mod:`vepm.bench`."""
