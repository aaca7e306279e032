"""Padding: batches keep their graphs, and norms do not see what was added."""

import copy

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from strategies import uniform
from training.toys import toy
from vepm.nn.convolution import CommunityNorm
from vepm.objective import masked
from vepm.scale.many.edges import RunEdges
from vepm.scale.many.padding import plan, size_of
from vepm.scale.norms import PaddedNorm, replace_norms
from vepm.training import GraphStore

CHOSEN = [[3, 0, 6], [1, 11], [6]]


def test_every_replica_finds_its_graphs_in_its_batch() -> None:
    store = GraphStore(toy("graph").graphs)
    batches = [torch.tensor(chosen) for chosen in CHOSEN]
    planned = plan(store, batches, size_of(store, batches))
    assert planned.labels == [3, 2, 1]
    parts, local = planned.laid_out()
    for r, chosen in enumerate(CHOSEN):
        own, rows = local({name: part[r] for name, part in parts.items()})
        assert rows.tolist() == [0, 1, 2, 3]
        expected = store.select(torch.tensor(chosen))
        assert isinstance(expected.x, Tensor)
        assert expected.batch is not None
        nodes, graphs = own.node_mask, own.graph_mask
        assert isinstance(own.x, Tensor)
        assert nodes is not None
        assert graphs is not None
        assert own.batch is not None
        count = int(nodes.sum())
        assert nodes[:count].all()
        assert torch.equal(own.x[nodes], expected.x)
        assert not own.x[~nodes].any()
        assert torch.equal(own.batch[nodes], expected.batch)
        assert (own.batch[~nodes] == graphs.numel() - 1).all()
        assert graphs.tolist() == [i < len(chosen) for i in range(4)]
        assert torch.equal(own.y[graphs], expected.y)
        real = expected.edges.edge_index.size(1)
        assert torch.equal(own.edges.edge_index[:, :real], expected.edges.edge_index)
        assert not nodes[own.edges.edge_index[:, real:]].any()
        assert torch.equal(own.edges.degree[nodes], expected.edges.degree)
    size = own.x.size(0)
    shifts = size * torch.arange(3)[:, None, None]
    joined = (parts["edge_index"] + shifts).transpose(0, 1).flatten(1)
    assert isinstance(own.edges, RunEdges)
    assert torch.equal(own.edges.whole.edge_index, joined)


def test_norms_do_not_see_padding() -> None:
    counts, most = (7, 4, 2), 9
    norms = [CommunityNorm(3, 2).double() for _ in counts]
    for i, norm in enumerate(norms):
        norm.norm.weight.data = uniform(i, 6)
    parameters, buffers = stack_module_state(list(norms))
    skeleton = PaddedNorm(copy.deepcopy(norms[0]))
    x = uniform(5, 3, most, 2, 3).requires_grad_()
    present = torch.arange(most) < torch.tensor(counts)[:, None]

    def one(weights: dict[str, Tensor], state: dict[str, Tensor], x: Tensor, own: Tensor) -> Tensor:
        skeleton.mask = own
        found: Tensor = functional_call(skeleton, weights | state, (x,))
        return found

    y = vmap(one)(parameters, buffers, x, present)
    weight = uniform(6, *y.shape) * present[..., None, None]
    found = torch.autograd.grad((y * weight).sum(), [x, *parameters.values()])
    for r, (norm, count) in enumerate(zip(norms, counts, strict=True)):
        alone = x[r, :count].detach().requires_grad_()
        expected = norm(alone)
        torch.testing.assert_close(y[r, :count], expected, rtol=1e-12, atol=1e-12)
        gradients = torch.autograd.grad(
            (expected * weight[r, :count]).sum(), [alone, norm.norm.weight, norm.norm.bias]
        )
        torch.testing.assert_close(found[0][r, :count], gradients[0], rtol=1e-10, atol=1e-12)
        assert not found[0][r, count:].any()
        for ours, exact in zip(found[1:], gradients[1:], strict=True):
            torch.testing.assert_close(ours[r], exact, rtol=1e-10, atol=1e-12)
        for name, state in norm.named_buffers():
            torch.testing.assert_close(buffers[name][r], state)


def test_without_padding_a_norm_is_as_ever() -> None:
    norm, x = CommunityNorm(3, 1), torch.rand(5, 1, 3)
    model = torch.nn.Sequential(copy.deepcopy(norm))
    replace_norms(model, PaddedNorm)
    assert isinstance(model[0], PaddedNorm)
    assert torch.equal(model(x), norm(x))
    assert torch.equal(model.eval()(x), norm.eval()(x))
    assert {name.partition(".")[2] for name in model.state_dict()} == set(norm.state_dict())


def test_values_of_padding_are_zero() -> None:
    store = GraphStore(toy("graph").graphs)
    batches = [torch.tensor(chosen) for chosen in CHOSEN]
    parts, _ = plan(store, batches, size_of(store, batches)).laid_out()
    mask = parts["node_mask"][2]
    assert not mask.all()
    for shape in ((), (3,), (2, 3)):
        values = torch.full((mask.numel(), *shape), 5.0)
        kept = masked(values, mask)
        assert (kept[mask] == 5).all()
        assert (kept[~mask] == 0).all()
