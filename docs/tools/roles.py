"""Docstrings speak reStructuredText roles; the site speaks Markdown."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")
MATH_ROLE = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^([ \t]*)Example:$", re.MULTILINE)
MATH_BLOCK = re.compile(r"^([ \t]*)\.\. math::[ \t]*(.*(?:\n\1[ \t]+\S.*)*)", re.MULTILINE)


def to_markdown(text: str, scope: str) -> str:
    """Roles as links, mathematics between dollars, examples as a section of their own.

    Args:
        text: the docstring.
        scope: dotted path that short names are looked up from.
    """
    text = EXAMPLE.sub(r"\1Examples:", text)
    text = MATH_BLOCK.sub(_block, text)
    text = MATH_ROLE.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    return ROLE.sub(lambda found: _link(found[1], scope), text)


def _block(found: re.Match[str]) -> str:
    indent, body = found[1], " ".join(found[2].split())
    return f"{indent}$$\n{indent}{body}\n{indent}$$\n"


def _link(target: str, scope: str) -> str:
    name = target.rsplit(".", 1)[-1]
    full = target if target.startswith("vepm") else f"{scope}.{target}"
    # Optional: what has no entry of its own stays plain code.
    return f'<autoref optional identifier="{full}"><code>{name}</code></autoref>'


class Roles(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.is_alias or obj.docstring is None:
            return
        # Every room lists what it offers in its __init__, and that is where pages show it.
        room = ".".join(obj.path.split(".")[:2])
        obj.docstring.value = to_markdown(obj.docstring.value, room)
