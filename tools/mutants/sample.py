"""Which mutants to try.

Cosmic Ray makes the mutants, as many of every package of ``src/vepm``.
"""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tools.mutants.closeness import files, tree_of

LEFT_OUT = {
    # They swap variables that their user names; Cosmic Ray leaves them out as well unless told.
    *("core/VariableReplacer", "core/VariableInserter"),
    # What is compared by identity here (None, types, marks) is equal to nothing but itself.
    *("core/ReplaceComparisonOperator_Is_Eq", "core/ReplaceComparisonOperator_IsNot_NotEq"),
}

EQUIVALENT = {
    ("vepm.bench", "while not seconds or (len(seconds) < repeats and sum(seconds) <= budget):"): (
        "no time is exactly the budget"
    ),
    ("vepm.bench", "if i == 0 or time.perf_counter() - started <= plan.budget:"): (
        "no time is exactly the budget"
    ),
    ("vepm.bench", "if i <= 0 or time.perf_counter() - started < plan.budget:"): "none is negative",
    (
        "vepm.training.losses",
        "x, edges = dropout(x, 1 * VISIBLE, training=True), _some_of(edges)",
    ): "half of them are visible",
    **dict.fromkeys(
        (
            ("vepm.bench", 'if plan.device >= "cuda":'),
            ("vepm.bench", 'name = found["gpu"] if device >= "cuda" else processor'),
            (
                "vepm.bench",
                "wait: Callable[[], object] = "
                'torch.cuda.synchronize if device >= "cuda" else lambda: None',
            ),
        ),
        "there are cpu and cuda alone",
    ),
    ("vepm.bench", "nodes, edges = int(graph.num_nodes or 1), graph.num_edges"): (
        "no graph to train on is empty"
    ),
    ("vepm.bench", "nodes, edges = int(graph.num_nodes or -1), graph.num_edges"): (
        "no graph to train on is empty"
    ),
    ("vepm.bench.steps", "heads = PARTS if out_channels >= WIDTH else 1"): "none is wider",
    ("vepm.bench.steps", "torch.manual_seed( 1)"): "any seed will do",
    ("vepm.bench.steps", "torch.manual_seed( -1)"): "any seed will do",
    ("vepm.bench.steps", 'moved = optimizer.param_groups[ -1]["params"]'): "there is one group",
    (
        "vepm.bench.steps",
        'layer = functools.partial(GCNConv, cached=True) if kind >= "gcn" else _attention',
    ): "there are gat and gcn alone",
    (
        "vepm.bench.steps",
        'others = [held.edge_weight.requires_grad_()] if step >= "weights" else []',
    ): "no step has a later name",
    **dict.fromkeys(
        (
            ("vepm.cli.evaluate", '"dataset": results[ -1].dataset,'),
            ("vepm.cli.evaluate", '"method": results[ -1].method,'),
            ("vepm.cli.evaluate", '"settings": results[ -1].settings,'),
        ),
        "the runs of a method have one name, one set of settings and one dataset",
    ),
    (
        "vepm.console",
        'if not err.file.isatty() or os.environ.get("RANK", "0") > "0":',
    ): "no rank is negative",
    (
        "vepm.kernels.triton_pattern",
        "column = tl.load(columns + e, mask=e <= end, other=0).to(tl.int64)",
    ): "what is read beyond the end is masked below",
    (
        "vepm.paper.runner",
        "parts = VEPMMethod(own[ 1].config, device).batches(*_prepare(own, root), most)",
    ): "tasks of a group have the same settings",
    **{
        (
            "vepm.paper.runner",
            f"first = replace(task, {same}) if batched else task",
        ): ("any split and seed will do")
        for same in (
            "split= 1, seed=0",
            "split= -1, seed=0",
            "split=0, seed= 1",
            "split=0, seed= -1",
        )
    },
    (
        "vepm.report.summary",
        'parts.append(f"{groups} communities" + '
        '(f" of {total} affiliations" if total != groups else ""))',
    ): "communities are never fewer than their groups",
    **{
        ("vepm.measures", line): "the last digits are those of rounding, and of samples"
        for line in (
            "return round(float(gap.abs().sum()) / max(y.numel(), 1), 11)",
            "return round(float(gap.abs().sum()) / max(y.numel(), 1), 13)",
            "RANKED_EDGES = 199999",
            "RANKED_EDGES = 200001",
        )
    },
    ("vepm.nn.partitioner", "return parts[ -1] if len(parts) == 1 else torch.cat(parts, dim=-1)"): (
        "it is the only one"
    ),
    ("vepm.runs", "while found != min(count, graph.num_nodes):"): "no more are ever found",
    ("vepm.scale.large", "row[:] = np.where(degree != 0, cluster[columns[place]], cluster)"): (
        "no degree is negative"
    ),
    ("vepm.files", "if level >= DEEPEST:"): "levels come one by one",
    ("vepm.files", "if level is DEEPEST:"): "small integers are one object",
    (
        "vepm.tasks",
        "areas = [roc_auc_score(true == c, score[:, c]) for c in shown] "
        "if len(present) != 1 else []",
    ): "without items, no class is shown",
    ("vepm.tasks", "shown = present - {0} if len(classes) <= 2 else present"): (
        "of a single class, nothing is shown"
    ),
    (
        "vepm.tasks",
        '"macro_f1": float(f1_score(true, guess, average="macro", zero_division= 1)),',
    ): "a class that is neither there nor guessed is not counted",
    (
        "vepm.training.fitted",
        "if predicted.numel() > 1 and (predicted == predicted[ 1]).all():",
    ): "all are equal to the second if they are to the first",
    ("vepm.baselines.neural", 'if name >= "val":'): "there are val and test alone",
    ("vepm.report.page", "if len(set(names)) != len(names):"): "a set has no more entries",
    ("vepm.kernels.triton_pattern", "if out.numel() == 0 or items < 0:"): (
        "only a GPU minds that no program is launched"
    ),
}
"""Mutants that no test on a CPU can notice, by module and changed line, and why."""


class Mutant(NamedTuple):
    module: str
    operator: str
    occurrence: int
    line: int
    code: str


def modules() -> list[str]:
    """Every module of the package that holds code of its own."""
    inside = sorted(name for name in files() if f"{name}.".startswith("vepm."))
    return [name for name in inside if statements(name) and not name.endswith("__main__")]


def package_of(module: str) -> str:
    """The package of a module, or the module itself if it stands alone."""
    return ".".join(module.split(".")[:2])


def source_of(module: str) -> Path:
    return files()[module]


@functools.cache
def statements(module: str) -> int:
    """Size of a module, as the number of statements that do something."""
    nodes = (node for node in ast.walk(tree_of(module)) if isinstance(node, ast.stmt))
    passive = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Expr)
    active = [node for node in nodes if not isinstance(node, passive)]
    return sum(not ast.unparse(node).startswith("__all__") for node in active)


def packages() -> list[str]:
    """Every package, and every module that stands alone."""
    return sorted({package_of(name) for name in modules()})


def allot(package: str, sample: int, seed: int = 0) -> dict[str, int]:
    """How many mutants of each module of a package to draw, in proportion to its size."""
    sizes = {name: statements(name) for name in modules() if package_of(name) == package}
    draw = Random(f"{seed}/{package}")
    return dict(Counter(draw.choices([*sizes], [*sizes.values()], k=sample)))


def mutants_of(module: str, count: int, draw: Random) -> Iterator[Mutant]:
    """Some mutants of a module, each of another line, whose code differs in what it does.

    Those that only touch annotations, docstrings or how arguments may be passed are left out, as
    nothing runs them, those that are no Python, as any test would notice them, and the
    :data:`EQUIVALENT`.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    original = source_of(module).read_text()
    nodes = list(ast_nodes(get_ast(original)))
    places = [
        (name, occurrence)
        for name in sorted(set(operator_names()) - LEFT_OUT)
        for occurrence in range(
            sum(len([*get_operator(name)().mutation_positions(node)]) for node in nodes)
        )
    ]
    draw.shuffle(places)
    plain, lines = _running_code(original), set[int]()
    for name, occurrence in places:
        changed = _mutated(original, name, occurrence)
        if changed is None or _running_code(changed) in (None, plain):
            continue
        line = _first_difference(original, changed)
        text = changed.splitlines()[line - 1].strip()
        if line not in lines and (module, text) not in EQUIVALENT:
            lines.add(line)
            yield Mutant(module, name, occurrence, line, changed)
        if len(lines) == count:
            return


def _mutated(text: str, operator: str, occurrence: int) -> str | None:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    try:
        return mutate_code(text, get_operator(operator)(), occurrence)
    except AttributeError:
        # Cosmic Ray cannot replace an exception whose name has a dot, in a tuple of them.
        return None


class _Bare(ast.NodeTransformer):
    """Leaves out what does nothing at run time."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults += filter(None, node.kw_defaults)
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        # It only guards against lengths that differ by mistake.
        return None if node.arg == "strict" else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def _running_code(text: str) -> str | None:
    """What of a module is run; None if it is no Python."""
    try:
        return ast.dump(_Bare().visit(ast.parse(text)))
    except SyntaxError:
        return None


def _first_difference(original: str, changed: str) -> int:
    pairs = zip(original.splitlines(), changed.splitlines(), strict=False)
    return next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 0)
