"""Put the numbers of `results/` into the README: ``python docs/tools/readme.py``."""

from headlines import EXAMPLES, headlines, split_table
from results import ROOT


def main() -> None:
    """Replace what stands between the marks."""
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    text = filled(text, "headlines", headlines())
    path.write_text(filled(text, "split", split_table(EXAMPLES)), encoding="utf-8")


def filled(text: str, name: str, body: str) -> str:
    """A text with another body between the marks of a name."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n{body}\n{end}{after}"


if __name__ == "__main__":
    main()
