"""A run's settings as a file, and whatever else that file may hold."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError
from arrn.runs import RunSettings, read_settings
from arrn.runs.settings import write_run_file
from arrn.training import Recipe

GOOD = RunSettings("sample", "arrn", {"sizes": [8, 4]}, Recipe(epochs=2, resolutions=(8, 4)), 3, 10, True, "/data")


def document(folder: Path) -> dict[str, Any]:
    write_run_file(GOOD, folder, {"device": "cpu"})
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    assert document(tmp_path)["device"] == "cpu"
    assert read_settings(tmp_path) == GOOD
    assert read_settings(tmp_path / "nowhere") is None


def test_the_name_that_the_format_once_had_is_read(tmp_path: Path) -> None:
    written = document(tmp_path)
    assert written["format"] == "arrn-run"
    (tmp_path / "run.json").write_text(json.dumps(written | {"format": "arrn run"}))
    assert read_settings(tmp_path) == GOOD


def test_tuples_and_lists_are_no_difference_and_neither_is_the_place_of_the_data() -> None:
    other = dataclasses.replace(GOOD, options={"sizes": (8, 4)}, data=None)
    assert GOOD.differences(other) == []
    assert GOOD.differences(dataclasses.replace(other, options={"sizes": (8, 4), "depth": 1})) == [
        "arrn's depth was None and is now 1"
    ]


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"holdout": -2}])
def test_negative_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArrnError, match=r"(at least 0|from 0 to .*), got -"):
        dataclasses.replace(GOOD, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", "0", "seed has the wrong type, got '0'"),
        ("seed", True, "seed has the wrong type, got True"),
        ("seed", -1, "the seed must be a whole number from 0 to 2**63 - 1, got -1"),
        ("recipe", {"epochs": 0}, "epochs must be a whole number from 1 to 1000000, got 0"),
        ("recipe", {"epoch": 1}, "unknown option of a recipe: 'epoch'; did you mean 'epochs'?"),
        ("options", [], "options has the wrong type"),
        ("data", 3, "data has the wrong type"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(tmp_path: Path, name: str, value: object, message: str) -> None:
    changed = document(tmp_path)
    changed["settings"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(changed))
    with pytest.raises(ArrnError) as caught:
        read_settings(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "run.json") in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": "arrn run"}', b"\xff", b"[" * 100_000])
def test_other_files_are_not_runs(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ArrnError, match=r"run\.json"):
        read_settings(tmp_path)


def test_a_newer_format_and_a_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    changed = document(tmp_path) | {"format_version": 2}
    (tmp_path / "run.json").write_text(json.dumps(changed))
    with pytest.raises(ArrnError, match=r"has format version 2, .* reads up to 1: upgrade arrn"):
        read_settings(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "run.json").mkdir()
    with pytest.raises(ArrnError, match="cannot read"):
        read_settings(tmp_path)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
def test_no_file_escapes_as_anything_but_an_arrn_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz-settings"
    folder.mkdir(exist_ok=True)
    changed = copy.deepcopy(document(folder))
    place = data.draw(st.sampled_from([changed, changed["settings"], changed["settings"]["recipe"]]))
    place[data.draw(st.sampled_from(sorted(place)) | st.text(max_size=5))] = data.draw(anything)
    (folder / "run.json").write_text(json.dumps(changed))
    try:
        found = read_settings(folder)
    except ArrnError:
        return
    assert found is not None
    assert GOOD.differences(found) is not None
