"""A report page as a parser sees it."""

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """Collects elements, visible text and scripts, and checks that HTML elements nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [str(attrs[name]) for _, attrs in self.elements if name in attrs]

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    @property
    def memberships(self) -> torch.Tensor:
        packed = bytearray(base64.b64decode(self.data["nodes"]["z"]))
        values = torch.frombuffer(packed, dtype=torch.bfloat16).double()
        return values.reshape(-1, len(self.data["activation"]))
