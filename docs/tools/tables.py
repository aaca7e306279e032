"""Tables made from the code itself, so that they cannot fall behind it."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable
from itertools import pairwise
from textwrap import indent
from typing import Any

from typer.main import get_command

from results import grid
from vepm.baselines import BASELINES
from vepm.cli import app
from vepm.data import datasets
from vepm.evaluation import RULES
from vepm.nn import VEPM
from vepm.paper.experiments import catalogue
from vepm.training import PRESETS, Config
from vepm.training import config as config_module
from vepm.training.config import SECTIONS


def meanings(section: str) -> dict[str, str]:
    """What each field of a section means: its own words, or those of the model's argument."""
    found = _arguments(inspect.getdoc(VEPM) or "") if section == "model" else {}
    found |= _field_docstrings(SECTIONS[section])
    names = [field.name for field in dataclasses.fields(SECTIONS[section])]
    missing = [name for name in names if name not in found]
    if missing:
        raise KeyError(f"no words for the settings {', '.join(missing)}")
    return {name: found[name] for name in names}


def _arguments(docstring: str) -> dict[str, str]:
    block = docstring.split("Args:\n")[1].split("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.+(?:\n        .+)*)", block, re.MULTILINE)
    return {name: " ".join(words.split()).replace("``", "`") for name, words in entries}


def _field_docstrings(section: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(config_module))
    body = next(
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == section.__name__
    )
    found = {}
    for field, words in pairwise(body):
        documented = isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and documented:
            assert isinstance(field.target, ast.Name)
            assert isinstance(words, ast.Expr)
            assert isinstance(words.value, ast.Constant)
            found[field.target.id] = " ".join(str(words.value.value).split())
    return found


def settings(section: str) -> str:
    """Every field of a section: its default, the presets side by side, and its meaning."""
    return _by_task(lambda task: _settings_table(section, task))


def presets() -> str:
    """Only what the presets disagree about."""
    return _by_task(_differences)


def _by_task(table: Callable[[str], str]) -> str:
    parts = []
    for task, title in (("node", "Nodes"), ("graph", "Graphs")):
        parts += [f'=== "{title}"', "", indent(table(task), "    "), ""]
    return "\n".join(parts)


def _settings_table(section: str, task: str) -> str:
    default = getattr(Config(), section)
    chosen = {name: getattr(by_task[task], section) for name, by_task in PRESETS.items()}
    words = meanings(section)
    rows = []
    for field in dataclasses.fields(default):
        base = getattr(default, field.name)
        values = [getattr(values, field.name) for values in chosen.values()]
        cells = [f"**{_show(value)}**" if value != base else _show(value) for value in values]
        rows.append([f"`{field.name}`", _show(base), *cells, words[field.name]])
    return grid(["setting", "default", *chosen, "meaning"], rows)


def _differences(task: str) -> str:
    configs = [by_task[task] for by_task in PRESETS.values()]
    rows = []
    for section in SECTIONS:
        parts = [getattr(config, section) for config in configs]
        for field in dataclasses.fields(parts[0]):
            values = [getattr(part, field.name) for part in parts]
            if len(set(values)) > 1:
                rows.append([f"`{field.name}`", *map(_show, values)])
    return grid(["setting", *PRESETS], rows)


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def commands() -> str:
    """Every command with its help and its options."""
    group: Any = get_command(app)
    parts = []
    for name, command in group.commands.items():
        arguments = [_usage(parameter) for parameter in command.params]
        usage = " ".join(["vepm", name, *filter(None, arguments), "[OPTIONS]"])
        text, _, examples = inspect.cleandoc(command.help or "").partition("\nExample")
        parts += [f"## vepm {name}", "", text.strip(), "", f"```text\n{usage}\n```", ""]
        shown = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
        if shown:
            parts += ["```bash", *shown, "```", ""]
        parts += [grid(["option", "default", "meaning"], map(_option, command.params)), ""]
    return "\n".join(parts)


def _usage(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> list[str]:
    is_argument = parameter.param_type_name == "argument"
    name = (parameter.metavar or parameter.name.upper()) if is_argument else None
    names = name or ", ".join(f"`{option}`" for option in reversed(parameter.opts))
    default = parameter.default
    empty = any(default is none for none in (None, False)) or default in ("", ())
    empty = empty or callable(default) or parameter.required
    return [names, "" if empty else f"`{default}`", _plain(parameter.help or "")]


def _plain(words: str) -> str:
    return (
        words.replace("[default: ", "(default: ").replace("]", ")")
        if "[default" in words
        else words
    )


def datasets_table() -> str:
    """What can be loaded by name."""
    rows = [[f"`{info.name}`", info.task, info.source, info.description] for info in datasets()]
    return grid(["name", "task", "source", "what it is"], rows)


def baselines_table() -> str:
    """The baselines by name."""
    rows = []
    for name, method in BASELINES.items():
        first = (inspect.getdoc(type(method)) or "").split("\n\n")[0]
        rows.append([f"`{name}`", f"{method.task}s", " ".join(first.split())])
    return grid(["name", "for", "what it is"], rows)


def rules_table() -> str:
    """The selection rules."""
    rows = [[f"`{name}`", rule.description] for name, rule in RULES.items()]
    return grid(["rule", "how the epoch was chosen"], rows)


def experiments() -> str:
    """The tables and figures of the paper that can be rerun."""
    rows = [[f"`{name}`", found.title] for name, found in catalogue().items()]
    return grid(["name", "what it shows"], rows)
