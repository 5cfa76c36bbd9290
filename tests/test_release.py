"""What a release says of itself: one version everywhere, every extra tried and documented, CI that calls make."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import arrn

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def test_one_version_stands_everywhere() -> None:
    assert f"\nversion: {arrn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].split()[0] == arrn.__version__


def test_every_extra_is_tried_by_a_release() -> None:
    trials = runpy.run_path(str(ROOT / "tools" / "try_release.py"))["TRIALS"]
    tried = {extra for extras in trials for extra in extras.split(",")}
    assert tried == EXTRAS - {"dev"}  # which the tests themselves try


def test_the_page_of_support_knows_every_extra_and_version() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == EXTRAS
    listed = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: \d\.\d", line)}
    assert f"| Python | {', '.join(sorted(listed))} |" in page


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_make_has(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = [
        line.split()[1]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]
    assert called
    assert set(called) <= targets


def test_there_are_workflows_for_tests_docs_and_wheels() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "tests", "wheel"]


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    module = runpy.run_path(str(ROOT / "tools" / "try_release.py"))
    with pytest.raises(SystemExit, match=r"should hold one arrn-\*.whl, and holds 0"):
        module["built"](tmp_path, "arrn-*.whl")
