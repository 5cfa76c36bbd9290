"""The tables of docs/transplanting.md say what is so."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("torchvision")


def load_survey() -> ModuleType:
    path = ROOT / "tools" / "survey_transplants.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SURVEY = load_survey()


@pytest.mark.parametrize("name", SURVEY.TORCHVISION)
def test_torchvision_is_cut_as_the_page_says(name: str) -> None:
    row = SURVEY.row(SURVEY.torchvision_model, name, SURVEY.TORCHVISION[name], verify=False)
    assert row in SURVEY.find_table("torchvision").group(2).splitlines()


@pytest.mark.slow
def test_the_whole_torchvision_table() -> None:
    assert SURVEY.table(SURVEY.torchvision_model, SURVEY.TORCHVISION) == SURVEY.find_table("torchvision").group(2)


@pytest.mark.slow
def test_the_whole_timm_table() -> None:
    pytest.importorskip("timm")
    written = SURVEY.find_table("timm").group(2)
    assert SURVEY.table(SURVEY.timm_model, SURVEY.TIMM) == written
    assert len(re.findall(r"\| (paper|difference)[ ,|]", written)) >= 6


def test_the_page_example_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", SURVEY.PAGE.read_text(), flags=re.DOTALL):
        exec(compile(block, str(SURVEY.PAGE), "exec"), {})
