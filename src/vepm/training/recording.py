"""Steps that a GPU does over and over, recorded and replayed as one launch.

A step of small models is hundreds of small kernels, and telling the GPU of each takes longer than
running it. A recording tells it once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

MOST_FORMS = 32
"""Forms of input whose steps are recorded; each keeps its tensors. Others go kernel by kernel."""
MOST_EDGES = 2**21
"""Edges up to which a step on one graph is recorded; larger ones keep a GPU busy by themselves,
and a recording holds on to the memory of its step."""
TIMES_BEFORE = 2
"""Times that a step is done kernel by kernel first, so that all it computes once is there."""


class Holder(Protocol):
    """What a step reads beside the weights."""

    def tensors(self) -> Sequence[Tensor | None]:
        """All of it that differs from step to step, in an order that never does."""


@dataclass
class _Form:
    """A step on inputs of one form, always on the same tensors."""

    function: Callable[..., Any]
    inputs: tuple[Holder, ...]
    times: int = 1
    replay: Callable[[], Any] | None = None

    def load(self, tensors: Sequence[Tensor | None]) -> None:
        """Take over the numbers of other tensors of this form."""
        for mine, other in zip(_tensors(self.inputs), tensors, strict=True):
            if mine is not None and other is not None and mine is not other:
                mine.copy_(other)

    def run(self) -> Any:
        """The step, kernel by kernel."""
        return self.function(*self.inputs)


class Recorder:
    """Does steps as they come and, where that is a GPU's work, replays those it knows.

    What a step returns is named tensors: a mapping or a named tuple, in which some may be missing.

    Args:
        on: Whether to record; only steps on a GPU can be.
    """

    def __init__(self, on: bool) -> None:
        self.on = on
        self._forms: dict[Hashable, _Form] = {}
        self._pool: Any = None

    def forget(self) -> None:
        """Drop all recordings: what they write to is there no more."""
        self._forms.clear()
        self._pool = None

    def run(self, name: Hashable, function: Callable[..., T], *inputs: Holder) -> T:
        """Call a function with inputs.

        Args:
            name: What the function does; of two of one name, either may be called.
            function: Reads its inputs, and changes weights in place if any. It must wait for
                nothing on the GPU, and return nothing that leads back to weights: a gradient's
                way that is still there from before would lead out of the recording.
            inputs: What it reads. They may be changed later, to hold what others hold.
        """
        if not self.on:
            return function(*inputs)
        tensors = _tensors(inputs)
        key = name, tuple(t if t is None else (t.shape, t.dtype) for t in tensors)
        form = self._forms.get(key)
        if form is None:
            self._make_room()
            if len(self._forms) < MOST_FORMS:
                self._forms[key] = _Form(function, inputs)
            return function(*inputs)
        form.load(tensors)
        form.times += 1
        if form.replay is None and form.times > TIMES_BEFORE:
            form.replay = self._record(form)
        found: T = form.run() if form.replay is None else form.replay()
        return found

    def _make_room(self) -> None:
        """Give up the form that came longest ago, of those that never came again."""
        once = [key for key, form in self._forms.items() if form.times == 1]
        if len(self._forms) >= MOST_FORMS and once:
            del self._forms[once[0]]

    def _record(self, form: _Form) -> Callable[[], Any]:
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool):
            out = form.run()

        def replay() -> Any:
            graph.replay()
            # The next replay writes to the same places.
            return _copied(out)

        return replay


def worth_recording(edge_index: Tensor, device: str | None = None) -> bool:
    """Whether telling a GPU of a step on a graph takes long beside the step itself.

    Args:
        edge_index: The edges [2, E].
        device: Where the step runs, if not where they are.

    Example:
        >>> edges = torch.tensor([[0], [1]])
        >>> worth_recording(edges), worth_recording(edges, "cuda")
        (False, True)
    """
    return (device or edge_index.device.type) == "cuda" and edge_index.size(1) <= MOST_EDGES


def recordable_adam(parameters: Sequence[Tensor], weight_decay: float = 0.0) -> torch.optim.Adam:
    """An optimizer that keeps all a recorded step needs on the GPU, if its parameters are there."""
    gpu = parameters[0].is_cuda
    rate = parameters[0].new_tensor(0.0) if gpu else 0.0
    return torch.optim.Adam(parameters, lr=rate, weight_decay=weight_decay, capturable=gpu)


def _tensors(inputs: Sequence[Holder]) -> list[Tensor | None]:
    return [tensor for one in inputs for tensor in one.tensors()]


def _copied(out: Any) -> Any:
    if isinstance(out, dict):
        return {name: value.clone() for name, value in out.items()}
    return type(out)._make(value if value is None else value.clone() for value in out)
