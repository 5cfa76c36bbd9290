"""Puts the tables that results make into the pages that show them, between comments that name the table.

    python tools/fill_results.py            # after new results, or --check to see whether there is anything to do

`results/SET/README.md` has all tables of a data set, docs/results.md the paper's claims, and README.md, like
docs/results.md, the comparison of the networks in `HEADLINE`. A test runs `--check`, so pages and results agree.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from arrn.experiments import read_results
from arrn.figures.claims import claims_page
from arrn.figures.runs import Run, group_runs
from arrn.figures.tables import headline_table, tables_page

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
TABLES = re.compile(r"(<!-- tables of (\S+) -->\n).*?(<!-- end of tables -->)", re.DOTALL)
CLAIMS = re.compile(r"(<!-- claims -->\n).*?(<!-- end of claims -->)", re.DOTALL)
COMPARISON = re.compile(r"(<!-- headline -->\n).*?(<!-- end of headline -->)", re.DOTALL)

# Of CIFAR-10: runs by name, with what a first-time reader needs to be told of them.
HEADLINE = {
    "arrn_medium": "ARRN medium (`arrn_medium`, 6.6 million parameters)",
    "arrn_mini": "ARRN mini (`arrn_mini`, 0.7 million parameters)",
    "resnet18_switchable-frontier": "ResNet18 with grids and norms for each of 7 resolutions (11.2 million)",
    "resnet18_small_stem-random-resolution-frontier": "ResNet18 always on 32x32, random resolutions (11.2 million)",
    "arrn_cifar10": "ARRN of the paper's form (`arrn_cifar10`), the paper's recipe",
    "resnet18": "ResNet18 as in the paper, the paper's recipe",
}


def pages(results: Path) -> list[Path]:
    """The pages that hold tables; each data set with results has one of its own."""
    return [*PAGES, *(folder / "README.md" for folder in sorted(results.iterdir()) if folder.is_dir())]


def read(page: Path) -> str:
    """A page as it is; of a data set that has none yet, a page with a place for its tables."""
    if page.exists():
        return page.read_text(encoding="utf-8")
    dataset = page.parent.name
    return f"# {dataset}: all tables\n\n<!-- tables of {dataset} -->\n<!-- end of tables -->\n"


def filled(page: str, runs: Mapping[str, Sequence[Run]]) -> str:
    """A page with its tables as the results are now."""

    def fill(place: re.Match[str]) -> str:
        text = (tables_page(place[2], runs.get(place[2], [])).text or "").replace("### ", "## ")
        return f"{place[1]}\n{text}\n{place[3]}"

    headline = headline_table(runs.get("cifar10", []), HEADLINE, (32, 16, 8))
    page = COMPARISON.sub(lambda place: f"{place[1]}\n{headline}\n\n{place[2]}", page)
    page = CLAIMS.sub(lambda place: f"{place[1]}\n{claims_page(runs).text}\n{place[2]}", page)
    return TABLES.sub(fill, page)


def main() -> None:
    """Fills the pages, or says which are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if there is something to change")
    check = parser.parse_args().check
    results = ROOT / "results"
    runs = group_runs(read_results(results))
    old = []
    for page in pages(results):
        before = read(page)
        now = filled(before, runs)
        if now != before or not page.exists():
            old.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(now, encoding="utf-8")
    if check and old:
        sys.exit(f"not what results/ gives: {', '.join(old)}; run python tools/fill_results.py")


if __name__ == "__main__":
    main()
