"""Label the nodes of a graph from a few labelled ones, and see what the labels rest on.

python examples/nodes.py
"""

from sklearn.metrics import normalized_mutual_info_score

from vepm import NodeClassifier
from vepm.data import planted_graph

# A graph drawn from the model, so its communities are known; a PyG Data, a NetworkX graph or
# (X, A, y) would do as well.
data = planted_graph(400, 4, overlap=0.2, seed=0)

model = NodeClassifier(num_communities=4, num_metacommunities=4, random_state=0).fit(data)
print(f"test accuracy: {model.score(data):.3f}")

# How strongly each node belongs to each community, and how each edge is split among them.
memberships = model.memberships(data)
split = model.edge_partition(data)
main = memberships.argmax(axis=1)
agreement = normalized_mutual_info_score(data.graphs[0].y, main)
print(f"mutual information of communities and labels: {agreement:.3f}")
print(f"edges with more than 90 % in one part: {(split.share.max(axis=1) > 0.9).mean():.1%}")

model.save("nodes-model")  # NodeClassifier.load("nodes-model") gives it back
