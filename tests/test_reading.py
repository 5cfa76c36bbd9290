"""Files that someone else may have written: what is no regular file, too large, too deep or too long is refused."""

import errno
import os
from pathlib import Path

import pytest

from arrn.errors import ArrnError
from arrn.reading import LARGEST_DOCUMENT, open_regular, parse_json, read_bytes, read_json, read_toml


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    for read in (open_regular, read_bytes, read_json, read_toml):
        with pytest.raises(OSError, match=f"it is {kind}, and should be a regular file") as caught:
            read(path)
        assert caught.value.filename == str(path)


def test_a_link_to_a_regular_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"[1]")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_bytes(tmp_path / "link") == b"[1]"
    assert read_json(tmp_path / "link") == [1]


def test_a_document_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_DOCUMENT + 1)  # which takes no room on the disk
    with pytest.raises(OSError, match=r"it has 16,777,217 bytes, and should have 16,777,216 at most") as caught:
        read_json(path)
    assert caught.value.errno == errno.EFBIG
    assert len(read_bytes(path, LARGEST_DOCUMENT + 1)) == LARGEST_DOCUMENT + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 64 levels deep"),
        ("[" * 65 + "1" + "]" * 65, "nested more than 64 levels deep"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested more than 64 levels deep"),
        (f'{{"a": [{2**63}]}}', "a whole number of 64 bits, and at most 63 are read"),
        ("9" * 4000, "a whole number of 13288 bits"),
        ("9" * 5000, "Exceeds the limit"),
        ("{", "Expecting property name"),
        ("\ud800", "utf-8"),
    ],
)
def test_json_beyond_its_bounds_is_no_json(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArrnError, match=f"x.json is not valid JSON: .*{message}"):
        read_json(path)


def test_what_is_within_the_bounds_is_read() -> None:
    deep = "[" * 64 + "]" * 64
    assert str(parse_json(deep)).replace(" ", "") == deep
    assert parse_json(f"[{2**63 - 1}, {-(2**63)}, true, 1e400]") == [2**63 - 1, -(2**63), True, float("inf")]


@pytest.mark.parametrize("text", ["a = " + "[" * 50_000, "a = " + "9" * 30, "a." * 3000 + "b = 1", "a = 1\na = 2"])
def test_toml_is_bounded_alike(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ArrnError, match=r"x.toml is not valid TOML"):
        read_toml(path)
