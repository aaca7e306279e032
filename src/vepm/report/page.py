"""One self-contained page per run."""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from vepm.files import refuse_special, write_text
from vepm.report import conclusion, figures, summary
from vepm.report.drawings import Drawing, plan_drawings
from vepm.report.excerpt import take_excerpt
from vepm.report.payload import build_payload, embed_json
from vepm.report.run import Run, read_run

HERE = Path(__file__).parent
SCRIPTS = (
    "cytoscape.min.js",
    "dom.js",
    "theme.js",
    "data.js",
    "graph.js",
    "panel.js",
    "table.js",
    "predictions.js",
    "controls.js",
)


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` and ``figures/`` into a run folder.

    The page needs no network and no other file: script, style, data and figures are inside.

    Args:
        folder: A run folder, see :func:`vepm.report.read_run`.

    Returns:
        The path of the page.

    Raises:
        InputError: The folder is not a whole run.
    """
    run = read_run(folder)
    refuse_special(run.folder / "figures")
    # Many small steps: threads would spend their time waiting for one another.
    with threadpool_limits(1):
        page = _compose(run)
    path = run.folder / "report.html"
    write_text(path, page)
    return path


def _compose(run: Run) -> str:
    drawings = {
        drawing.name: {"description": drawing.description, **_draw(drawing, run.folder / "figures")}
        for drawing in plan_drawings(run)
    }
    return _render(run, drawings)


def _draw(drawing: Drawing, folder: Path) -> dict[str, str]:
    """The picture as ``svg``, or the ``reason`` why there is none."""
    try:
        picture = figures.render(drawing.draw(), drawing.name)
    except Exception as error:  # One failed picture must not cost the whole page.
        return {"reason": str(error) or type(error).__name__}
    picture.write(folder, drawing.name)
    svg = figures.inline_svg(picture.svg, drawing.name)
    return {"svg": Markup(svg)}  # noqa: S704 (our own drawing) # nosec B704


def _render(
    run: Run,
    drawings: dict[str, dict[str, str]],
) -> str:
    excerpt = take_excerpt(run)
    headline = summary.headline(run)
    parts = conclusion.part_rows(run)
    found = "communities" if run.prediction is None else f"{run.task} classification"
    return fill(
        "report.html",
        SCRIPTS,
        build_payload(run, excerpt),
        title=run.title,
        eyebrow=f"VEPM {found}",
        lede=summary.size_line(run),
        run=run,
        conclusion=conclusion.conclusion(run, headline),
        headline=headline,
        warnings=summary.warnings(run),
        communities=summary.community_rows(run),
        parts=parts,
        verdict=conclusion.part_verdict(parts),
        confused=summary.most_confused(run),
        settings=summary.settings_groups(run),
        provenance=summary.provenance(run),
        drawings=drawings,
        excerpt=excerpt,
        places={int(node): place for place, node in enumerate(excerpt.nodes)},
    )


def fill(template: str, scripts: tuple[str, ...], data: dict[str, Any], **values: Any) -> str:
    """A page from a template: style, script and data are put inside, text is escaped."""
    script = _script(scripts)
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        style=Markup(_asset("report.css")),  # noqa: S704 (our own file) # nosec B704
        script=Markup(script),  # noqa: S704 (our own file) # nosec B704
        script_hash=_hash(script),
        data=Markup(embed_json(data)),  # noqa: S704 # nosec B704
        **values,
    )


def _script(names: tuple[str, ...]) -> str:
    libraries = "\n".join(_asset(name) for name in names if name.endswith(".min.js"))
    own = "\n".join(_asset(name) for name in names if not name.endswith(".min.js"))
    return f'{libraries}\n(() => {{\n"use strict";\n{own}\n}})();\n'


def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The hash by which the page's own policy admits this script and no other."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
