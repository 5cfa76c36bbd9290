"""`arrn predict`."""

import csv
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arrn.deploy import Predictor
from arrn.runtime import Reader
from commands import QUIET, Command
from pictures import encoded, picture


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = []
    for height, width in ((8, 8), (30, 50), (3, 4), (4, 4), (5, 2)):
        path = tmp_path / f"{height}x{width}.png"
        Image.fromarray(np.asarray(picture(height, width))).save(path)
        found.append(path)
    return found


def rows(out: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]


def test_files_of_different_sizes_get_class_probability_level_and_time(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    out = arrn_command("predict", finished, *(path.name for path in files), "--device", "cpu").out
    found = rows(out)
    assert [row[0] for row in found] == [path.name for path in files]
    assert [row[1] for row in found] == ["8x8", "30x50", "3x4", "4x4", "5x2"]
    assert {row[2] for row in found} <= {"red", "green", "blue"}
    assert all(row[3].endswith("%") and 33 <= float(row[3][:-1]) <= 100 for row in found)
    assert [row[4] for row in found] == ["8", "8", "4", "4", "8"]
    assert all(row[5].endswith(" ms") for row in found)


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    Path("none.png").write_bytes(b"no image")
    told = arrn_command("predict", finished, "8x8.png", "none.png", "8x8.png", "gone.png", "--device", "cpu", code=2)
    assert [row[0] for row in rows(told.out)] == ["8x8.png", "8x8.png"]
    assert "not read: none.png: not an image of a known format" in told.out
    assert "not read: gone.png: no such file" in told.out
    assert told.err == "arrn: 2 of 4 files could not be read\n"
    assert "none.png: not an image" in arrn_command("predict", finished, "none.png", "--device", "cpu", code=2).err
    told = arrn_command("predict", finished, "none.png", "gone.png", "--device", "cpu", code=2)
    assert [line.split(":")[1] for line in told.out.splitlines()] == [" none.png", " gone.png"]
    assert told.err == "arrn: 2 of 2 files could not be read\n"


def test_many_files_are_read_a_few_at_a_time(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    order: list[str] = []
    read, run = Reader.read, Predictor.run
    monkeypatch.setattr("arrn.runtime.predictor._TOGETHER", 2)
    monkeypatch.setattr(Reader, "read", lambda *given: (order.append("read"), read(*given))[1])
    monkeypatch.setattr(Predictor, "run", lambda *given: (order.append("run"), run(*given))[1])
    out = arrn_command("predict", finished, *(path.name for path in files), "--device", "cpu").out
    assert [row[0] for row in rows(out)] == [path.name for path in files]
    # The first two are of the upper level, the next two of the lower one.
    assert order == ["read", "read", "run", "read", "read", "run", "read", "run"]


def test_the_policy_can_be_chosen(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    out = arrn_command("predict", finished, "5x2.png", "--policy", "cheap", "--device", "cpu").out
    assert rows(out)[0][4] == "4"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(height: int, width: int, data: bytes = b"", extra: bytes = b"") -> bytes:
    """A file that says it is of this size."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


ONE = bytes([0, 10, 20, 30])
HOSTILE = {
    "bomb.png": png(60_000, 60_000),
    "large.png": png(9000, 9000),
    "wide.png": png(1, 70_000),
    "none.png": png(0, 1),
    "short.png": png(8, 8, ONE),
    "text.png": png(1, 1, ONE, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**22)))),
    "profile.png": png(1, 1, ONE, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**22)))),
    "exif.png": png(1, 1, ONE, chunk(b"eXIf", b"MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12\0\x03\xff\xff\xff\xff" * 99)),
    "script.ppm": b"P6 99999999999999999999 1 255 ",
    "sound.gif": b"RIFF\x24\0\0\0WAVEfmt ",
    "empty.jpg": b"",
}


def test_hostile_files_are_told_in_a_line_each_and_stop_no_others(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    for name, content in HOSTILE.items():
        Path(name).write_bytes(content)
    os.mkfifo("pipe.png")
    Path("folder.png").mkdir()
    Path("round.png").symlink_to("round.png")
    names = [*HOSTILE, "pipe.png", "folder.png", "round.png", "/dev/zero", "8x8.png"]
    told = arrn_command("predict", finished, *names, "--device", "cpu", code=2)
    read = [row[0] for row in rows(told.out)]
    assert read[-1] == "8x8.png"
    assert set(read[:-1]) <= {"text.png", "profile.png", "exif.png"}  # of these, the pixels are sound
    complaints = [line for line in told.out.splitlines() if line.startswith("not read: ")]
    assert [line.split(": ")[1] for line in complaints] == [name for name in names if name not in read]
    assert told.err == f"arrn: {len(complaints)} of {len(names)} files could not be read\n"
    assert (
        "not read: large.png: its size, 9000x9000, is 81,000,000 pixels, more than the limit of 64,000,000" in told.out
    )


def test_a_flag_takes_larger_images(arrn_command: Command, finished: Path, files: list[Path]) -> None:
    file = files[1]
    err = arrn_command("predict", finished, file, "--max-pixels", 1499, "--device", "cpu", code=2).err
    assert "30x50, is 1,500 pixels, more than the limit of 1,499" in err
    assert rows(arrn_command("predict", finished, file, "--max-pixels", 1500, "--device", "cpu").out)


def test_a_large_image_is_shown_at_its_own_size(
    arrn_command: Command, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrn.runtime.pictures._READ_WHOLE", 1000)
    (tmp_path / "a.jpg").write_bytes(encoded(picture(300, 400), "JPEG"))
    monkeypatch.chdir(tmp_path)
    assert rows(arrn_command("predict", finished, "a.jpg", "--device", "cpu").out)[0][:2] == ["a.jpg", "300x400"]


@pytest.mark.slow
def test_a_very_large_image_takes_a_small_part_of_the_memory(finished: Path, files: list[Path]) -> None:
    """Of 9400x9400 pixels, 4.9 GB before; what a small image takes is not counted."""
    large = files[0].with_name("large.png")
    Image.new("RGB", (9400, 9400), (90, 10, 10)).save(large)

    def peak(*arguments: object) -> float:
        command = [sys.executable, "-m", "arrn", "predict", *map(str, (finished, *arguments)), "--device", "cpu"]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | QUIET)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20

    few = peak(files[0])
    assert peak(large, "--max-pixels", 10**8) - few < 0.6


EVIL = "[red]cat\x1b]0;owned\x07\nfalse \u202ename :bug:"


def test_names_of_strangers_are_shown_and_do_nothing(
    arrn_command: Command, finished: Path, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "run.json").unlink()
    config = json.loads((run / "config.json").read_text())
    place = config if "class_names" in config else config["inputs"]
    place["class_names"] = [f"{EVIL}{number}" for number in range(3)]
    (run / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    evil = Path("a\x1b[31m\n[b]x\u2028.png")
    evil.write_bytes(encoded(picture(8, 8)))
    undecodable = os.fsdecode(b"\xff.png")
    told = arrn_command("predict", run, evil, undecodable, f"{evil}.gone", "--device", "cpu", code=2)
    told.out.encode()
    assert all(letter.isprintable() or letter == "\n" for letter in told.out + told.err)
    row = ["".join(cells) for cells in zip(*rows(told.out), strict=True)]  # long names are folded
    assert row[0] == r"a\x1b[31m\n[b]x\u2028.png"
    assert row[2].startswith(r"[red]cat\x1b]0;owned\x07\nfalse")
    assert r"\u202ename :bug:" in row[2]
    assert r"not read: \udcff.png: no such file" in told.out
    assert r"not read: a\x1b[31m\n[b]x\u2028.png.gone: no such file" in told.out
    alone = arrn_command("predict", run, f"{evil}.gone", "--device", "cpu", code=2).err
    assert alone == "arrn: a\\x1b[31m [b]x .png.gone: no such file\n"


def test_folders_and_patterns_are_taken(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    deep = Path("more") / "deeper"
    deep.mkdir(parents=True)
    for name in ("b.PNG", "a.jpg", ".hidden.png", "notes.txt"):
        (deep / name).write_bytes(encoded(picture(8, 8)))
    Path("empty").mkdir()
    told = arrn_command("predict", finished, "more", "?x?.png", "more/**/*.jpg", "empty", "*.bmp", code=2)
    assert [row[0] for row in rows(told.out)] == [
        *("more/deeper/a.jpg", "more/deeper/b.PNG", "3x4.png", "4x4.png", "5x2.png", "8x8.png", "more/deeper/a.jpg"),
    ]
    assert "not read: empty: the folder has no files that the network reads (.bmp, .gif" in told.out
    assert "not read: *.bmp: no such file" in told.out
    assert told.err == "arrn: 2 of 9 files could not be read\n"


def test_answers_are_written_as_json_and_csv(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    names = [*(path.name for path in files), "gone.png"]
    flags = ["--top", 2, "--json", "out/a.json", "--csv", "a.csv", "--device", "cpu"]
    table = rows(arrn_command("predict", finished, *names, *flags, code=2).out)
    document = json.loads(Path("out/a.json").read_text())
    assert document["kind"] == "image"
    assert [answer["file"] for answer in document["answers"]] == names
    assert document["answers"][-1]["error"] == "no such file"
    first = document["answers"][0]
    assert (first["size"], first["level"], len(first["top"])) == ([8, 8], [8, 8], 2)
    assert table[0][2:4] == [first["class"], f"{first['probability']:.1%}"]
    assert table[1][2:4] == [first["top"][1]["class"], f"{first['top'][1]['probability']:.1%}"]  # below it
    lines = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert [line["file"] for line in lines] == names
    seconds = [answer["top"][1]["class"] for answer in document["answers"][:-1]]
    assert [line["class_2"] for line in lines[:-1]] == seconds
    assert (lines[1]["size"], lines[1]["level"], lines[-1]["error"]) == ("30x50", "8x8", "no such file")
    told = arrn_command("predict", finished, "8x8.png", "--json", "-", "--device", "cpu")
    assert json.loads(told.out)["answers"][0]["file"] == "8x8.png"
    told = arrn_command("predict", finished, "8x8.png", "gone.png", "--csv", "-", "--device", "cpu", code=2)
    assert [line.split(",")[0] for line in told.out.splitlines()] == ["file", "8x8.png", "gone.png"]
    err = arrn_command("predict", finished, "8x8.png", "--csv", "-", "--json", "-", code=2).err
    assert "only one of --json and --csv can go to standard output" in err
    assert "cannot write" in arrn_command("predict", finished, "8x8.png", "--json", "8x8.png/a.json", code=2).err


def test_the_column_is_named_after_what_the_inputs_are(
    arrn_command: Command, finished: Path, files: list[Path]
) -> None:
    out = arrn_command("predict", finished, files[0], "--device", "cpu").out
    assert [cell.strip() for cell in out.splitlines()[1].split("┃")[1:3]] == ["image", "size"]
    assert "time: an equal share of the time of its batch" in out


def test_an_exported_folder_answers_as_the_network_does(
    arrn_command: Command, finished: Path, files: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    arrn_command("export", finished, "--out", tmp_path / "out")
    found, expected = (
        json.loads(arrn_command("predict", folder, *files, "--json", "-", "--device", "cpu").out)
        for folder in (tmp_path / "out", finished)
    )
    assert found["device"] == expected["device"] == "cpu"
    for one, other in zip(found["answers"], expected["answers"], strict=True):
        assert {**one, "seconds": 0, "top": [], "probability": 0} == {
            **other,
            "seconds": 0,
            "top": [],
            "probability": 0,
        }
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)
    error = arrn_command("predict", tmp_path / "out", files[0], "--device", "cuda", code=2).err
    assert "is an export, which runs on the CPU: leave out --device cuda" in error
