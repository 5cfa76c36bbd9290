"""What users type: lists of numbers, names with values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrn.cli.console import assignments, numbers, whole_numbers
from arrn.errors import ArrnError


def test_numbers_with_commas_between() -> None:
    assert whole_numbers("--resolutions", "32, 16,8") == [32, 16, 8]
    assert whole_numbers("--resolutions", None) == []


@pytest.mark.parametrize("text", ["", ",", "8,", "0", "-4", "8.5", "all", "9" * 5000])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ArrnError, match="--resolutions takes whole numbers of at least 1 with commas between"):
        whole_numbers("--resolutions", text)


def test_values_are_tomls_or_plain_text() -> None:
    assert assignments("--option", ["a=1", "b = 0.5", "c=[8, 4]", "d=poor", 'e="poor"', "f=true", "g=x=y", "h="]) == {
        "a": 1,
        "b": 0.5,
        "c": [8, 4],
        "d": "poor",
        "e": "poor",
        "f": True,
        "g": "x=y",
        "h": "",
    }


@given(st.text(max_size=30))
def test_any_text_is_a_value_that_json_holds_or_an_arrn_error(text: str) -> None:
    try:
        found = assignments("--set", [text])
    except ArrnError:
        return
    assert json.dumps(found)


def test_fractions_with_commas_between() -> None:
    assert numbers("--p", "0.4, 1,2.5") == [0.4, 1, 2.5]
    for text in ("", "0.4,", "-1", "nan", "inf", "half"):
        with pytest.raises(ArrnError, match="--p takes numbers of at least 0 with commas between"):
            numbers("--p", text)
