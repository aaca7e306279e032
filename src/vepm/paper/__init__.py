"""Each table and figure of the paper as one TOML file, and the runner behind them.

- :func:`vepm.paper.experiments.catalogue` reads the experiments.
- :func:`vepm.paper.plan.squares` and ``select`` say what is to be run.
- :func:`vepm.paper.runner.run` runs it, each cell once, and continues where it was stopped.
- :func:`vepm.paper.results.gather` turns finished cells into numbers, ours beside the paper's.
"""
