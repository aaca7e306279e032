"""Find overlapping communities in a graph without labels: Zachary's karate club.

python examples/communities.py
"""

import networkx as nx
import numpy as np

from vepm import CommunityDetector

club = nx.karate_club_graph()
# The club has no features; positions in the graph (eigenvectors of its Laplacian) stand in.
place = nx.spectral_layout(club, weight=None, dim=4)
X = np.array([place[node] for node in club])
A = nx.to_scipy_sparse_array(club, weight=None)

detector = CommunityDetector(num_communities=2, num_metacommunities=2, random_state=0)
found = detector.fit((X, A)).communities((X, A))

for k in range(2):
    members = [node for node in club if found.overlapping[node, k]]
    officers = sum(club.nodes[node]["club"] == "Officer" for node in members)
    print(f"community {k}: {len(members)} members, {officers} of whom followed the officer")
both = np.flatnonzero(found.overlapping.all(axis=1))
print("in both:", ", ".join(map(str, both)) or "nobody")
