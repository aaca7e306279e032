"""A notebook with its outputs, as Markdown."""

import json
from pathlib import Path
from typing import Any


def as_markdown(path: Path) -> str:
    """Text cells as they are, code as fences, outputs below; pictures inline."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source:
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _text("".join(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        encoded = "".join("".join(data["image/png"]).split())
        words = output.get("metadata", {}).get("alt", "Output of the cell above")
        return f"![{words}](data:image/png;base64,{encoded})"
    return _text("".join(data.get("text/plain", [])))


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
