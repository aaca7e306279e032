"""A graph of people as a user would have it: raw columns, text, labels for some."""

from pathlib import Path

import networkx as nx
import numpy as np
import torch
from torch import Tensor

TEAMS = ("blue", "green", "red", "yellow")
NUM_PEOPLE = 300


def write_people(folder: Path, seed: int = 0) -> Tensor:
    """Write nodes.csv and edges.csv of four teams; gives the team of everybody.

    Age, income and owning a home say a little about the team, the city nothing; half of the
    people have no label.
    """
    rng = np.random.default_rng(seed)
    team = np.repeat(np.arange(4), NUM_PEOPLE // 4)
    rates = np.full((4, 4), 0.01) + 0.07 * np.eye(4)
    drawn = nx.stochastic_block_model([NUM_PEOPLE // 4] * 4, rates.tolist(), seed=seed)
    columns = {
        "label": np.where(rng.random(NUM_PEOPLE) < 0.5, np.array(TEAMS)[team], ""),
        "age": rng.normal(30 + 5 * team, 8).round(),
        "income": rng.lognormal(10 + 0.3 * (team % 2), 0.5).round(2),
        "owner": (rng.random(NUM_PEOPLE) < 0.3 + 0.15 * team).astype(int),
        "city": rng.choice(["Rome", "Oslo", "Bern"], NUM_PEOPLE),
    }
    cells = zip(*columns.values(), strict=True)
    rows = [f"p{i},{','.join(map(str, row))}" for i, row in enumerate(cells)]
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join([f"id,{','.join(columns)}", *rows]) + "\n")
    edges = [f"p{a},p{b}" for a, b in drawn.edges]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return torch.from_numpy(team)
