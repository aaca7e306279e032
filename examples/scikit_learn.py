"""The estimators among scikit-learn's tools: validate, search, test against chance, pipe.

python examples/scikit_learn.py
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, permutation_test_score
from sklearn.pipeline import make_pipeline

from vepm import GraphClassifier, NodeClassifier
from vepm.data import load, planted_graph

# Small graphs and few epochs, to be done in seconds; leave the latter out for the real thing.
QUICK = {"pretrain_epochs": 10, "epochs": 15, "random_state": 0}

# Nodes: the estimator knows the graph, and scikit-learn splits the indices of its nodes.
graph = planted_graph(120, 3, seed=0).graphs[0]
nodes, labels = np.arange(120), graph.y.numpy()
model = NodeClassifier(graph=graph, **QUICK)
print(f"cross validation: {cross_val_score(model, nodes, labels, cv=3).mean():.2f}")

space = {"dropout": [0.2, 0.6], "learning_rate": [0.01, 0.05]}
search = GridSearchCV(model, space, cv=2).fit(nodes, labels)
print("best settings:", search.best_params_)

score, chance, p = permutation_test_score(model, nodes, labels, cv=2, n_permutations=5)
print(f"{score:.2f}, with shuffled labels {chance.mean():.2f}, p = {p:.2f}")

piped = make_pipeline(model, LogisticRegression(max_iter=500)).fit(nodes, labels)
print(f"logistic regression on its embedding: {piped.score(nodes, labels):.2f}")

# Whole graphs: a list of them is X.
graphs = load("digits-graphs").graphs[:60]
digits = np.array([int(one.y) for one in graphs])
piped = make_pipeline(GraphClassifier(**QUICK), LogisticRegression(max_iter=500))
print(f"the same for graphs: {piped.fit(graphs, digits).score(graphs, digits):.2f}")
