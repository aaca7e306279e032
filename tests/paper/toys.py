"""Experiments small enough for tests, on data that need no files."""

from pathlib import Path

NODES = """
title = "Toy table"
description = "Nodes drawn from the model"
protocol = "public"
seeds = 3
notes = ["A note."]
columns = ["planted", { name = "Cora here", dataset = "Cora" }]

[[rows]]
name = "GCN"
method = "gcn"
settings = { epochs = 3 }
[rows.paper]
planted = [10.0, 1.0]
"Cora here" = "-"

[[rows]]
name = "Other system"
method = "quoted"
[rows.paper]
planted = 55.5
"Cora here" = 81.0

[[rows]]
name = "VEPM (toy)"
method = "vepm"
settings = { epochs = 3, pretrain_epochs = 2 }
[rows.paper]
planted = [99.0, 1.0]
"Cora here" = 84.0
"""

SAME_RUNS = """
title = "Toy table with a run of the first"
description = "The same settings under another name"
columns = ["planted"]
seeds = 3

[[rows]]
name = "again"
method = "gcn"
settings = { epochs = 3 }

[[rows]]
name = "statistics"
method = "statistics"
metric = "nodes"
seeds = 1
paper = { planted = 999.0 }
"""


MAPS = """
title = "Toy figure"
description = "Maps of what was learned"
figure = "tsne"
method = "communities"
columns = ["planted", "digits"]
splits = 1

[[rows]]
name = "VEPM"
"""


def write_toys(folder: Path) -> Path:
    """A folder with two experiments."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table-1.toml").write_text(NODES)
    (folder / "table-2.toml").write_text(SAME_RUNS)
    return folder


def write_long(folder: Path) -> Path:
    """A folder with an experiment of many short cells, to be stopped in the middle."""
    folder.mkdir(parents=True, exist_ok=True)
    text = NODES.replace("seeds = 3", "seeds = 8").replace("epochs = 3", "epochs = 30")
    (folder / "table-1.toml").write_text(text)
    return folder
