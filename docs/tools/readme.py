"""Put the tables of `results/` into the README: ``python docs/tools/readme.py``."""

import re

from results import ROOT, tables

START, END = "<!-- results -->", "<!-- /results -->"


def main() -> None:
    """Replace what stands between the two marks."""
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    found = re.sub(r"^## ", "### ", tables("results"), flags=re.M)
    before, rest = text.split(START)
    after = rest.split(END)[1]
    path.write_text(f"{before}{START}\n{found}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
