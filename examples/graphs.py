"""Label whole graphs: handwritten digits, each a graph of its inked pixels.

python examples/graphs.py
"""

from vepm import GraphClassifier
from vepm.data import load
from vepm.training import preset

# Three digits and few epochs, to be done in seconds; leave both out for the real thing.
graphs = [graph for graph in load("digits-graphs").graphs if int(graph.y) < 3]
train, test = graphs[::2], graphs[1::2]
config = preset("default", "graph").replace(pretrain_epochs=10, epochs=20)

model = GraphClassifier(config=config, random_state=0).fit(train)
print(f"test accuracy: {model.score(test):.3f}")

# The parts into which the edges of one digit fall, as shares of all its edges.
one = test[:1]
share = model.edge_partition(one).share.mean(axis=0)
print(f"digit {int(one[0].y)}:", ", ".join(f"{s:.0%} in part {k}" for k, s in enumerate(share)))
