"""The pages that show results say what results/ holds."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from arrn.experiments import read_results

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_pages_are_those_of_the_results() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "fill_results.py", "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_results_are_of_the_test_split_and_say_where_they_come_from() -> None:
    results = read_results(ROOT / "results")
    assert results
    for result in results:
        assert result.split == "test"
        assert result.provenance["commit"]
        assert result.command.startswith("arrn reproduce ")


def test_every_data_set_has_a_page_with_its_tables() -> None:
    for folder in {path.parent for path in (ROOT / "results").glob("*/*.json")}:
        page = (folder / "README.md").read_text()
        assert f"<!-- tables of {folder.name} -->" in page
        assert "## Accuracy" in page
