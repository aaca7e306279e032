"""The former name of :mod:`vepm.objective`."""

from vepm.objective import *  # noqa: F403
