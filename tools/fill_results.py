"""Puts the tables of `results/` into docs/results.md, between the comments that name a data set or the claims.

    python tools/fill_results.py            # after new results, or --check to see whether there is anything to do

A test does the second, so the page cannot say what the results do not.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from arrn.experiments import read_results
from arrn.figures.claims import claims_page
from arrn.figures.runs import group_runs
from arrn.figures.tables import tables_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
PLACE = re.compile(r"(<!-- tables of (\S+) -->\n).*?(<!-- end of tables -->)", re.DOTALL)
CLAIMS = re.compile(r"(<!-- claims -->\n).*?(<!-- end of claims -->)", re.DOTALL)


def filled(page: str, results: Path) -> str:
    """The page with its tables as the results are now."""
    runs = group_runs(read_results(results))

    def fill(place: re.Match[str]) -> str:
        return f"{place[1]}\n{tables_page(place[2], runs.get(place[2], [])).text}\n{place[3]}"

    page = CLAIMS.sub(lambda place: f"{place[1]}\n{claims_page(runs).text}\n{place[2]}", page)
    return PLACE.sub(fill, page)


def main() -> None:
    """Fills the page, or says whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if there is something to change")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    now = filled(page, ROOT / "results")
    if check:
        sys.exit(f"{PAGE} is not what results/ gives: run python tools/fill_results.py" if now != page else 0)
    PAGE.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
