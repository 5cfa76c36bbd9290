"""`arrn evaluate`: table, picture and numbers."""

import errno
import json
from pathlib import Path

import pytest
from PIL import Image

from commands import Command
from reading_pages import check_alone
from small_runs import TINY, write_easy_set, write_mixed_folder

MODEL = ["--model", "arrn", *(word for name, value in TINY.items() for word in ("--option", f"{name}={value}"))]


def test_by_default_every_policy_with_and_without_adaptation(
    arrn_command: Command, finished: Path, tmp_path: Path
) -> None:
    files = ["--json", tmp_path / "e.json", "--plot", tmp_path / "deep" / "e.svg"]
    out = arrn_command("evaluate", finished, *files, "--device", "cpu").out
    results = json.loads((tmp_path / "e.json").read_text())["results"]
    assert {(r["adapt"], r["policy"]) for r in results} == {(a, p) for a in (True, False) for p in ("exact", "cheap")}
    for column in ("adapted", "(exact)", "(cheap)", "all levels"):
        assert column in out
    first = next(r for r in results if r["resolution"] == 8)
    low, high = first["interval"]
    assert f"{100 * first['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]" in out
    assert f"numbers: {tmp_path / 'e.json'}" in out
    picture = (tmp_path / "deep" / "e.svg").read_text()
    assert "<svg" in picture


def test_flags_narrow_it(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    narrow = ["--resolutions", "8,4", "--policy", "cheap", "--no-adapt", "--json", tmp_path / "e.json"]
    arrn_command("evaluate", finished, *narrow, "--plot", tmp_path / "e.png", "--device", "cpu")
    results = json.loads((tmp_path / "e.json").read_text())["results"]
    assert [(r["resolution"], r["adapt"], r["policy"]) for r in results] == [(8, False, "cheap"), (4, False, "cheap")]
    with Image.open(tmp_path / "e.png") as image:
        assert min(image.size) > 300


def test_flags_of_adaptive_networks_say_so_for_others(arrn_command: Command, easy: Path, tmp_path: Path) -> None:
    fixed = ["--model", "resnet18_small_stem", "--option", "width=2", "--epochs", "1", "--device", "cpu"]
    arrn_command("train", easy, *fixed, "--out", tmp_path / "run")
    flags = ["--policy", "cheap", "--resolutions", "8", "--device", "cpu"]
    assert "have no effect" in arrn_command("evaluate", tmp_path / "run", *flags).out
    image = tmp_path / "image.png"
    Image.new("RGB", (8, 8)).save(image)
    assert "has no effect" in arrn_command("predict", tmp_path / "run", image, *flags[:2]).out


def test_another_data_set_does_not_overwrite_what_was_found_before(arrn_command: Command, tmp_path: Path) -> None:
    own, other = write_easy_set(tmp_path / "own"), write_easy_set(tmp_path / "other")
    run = tmp_path / "run"
    arrn_command("train", own, *MODEL, "--epochs", "1", "--out", run, "--device", "cpu")
    for what in ([], ["--resampler", "area"], ["--dataset", other], ["--dataset", other, "--split", "train"]):
        arrn_command("evaluate", run, *what, "--resolutions", "8", "--device", "cpu")
    found = {path.stem: json.loads(path.read_text()) for path in run.glob("evaluation*.json")}
    assert set(found) == {"evaluation", "evaluation-area", "evaluation-other", "evaluation-other-train"}
    assert [Path(found[name]["dataset"]).name for name in sorted(found)] == ["own", "own", "other", "other"]
    assert [found[name]["resampler"] for name in sorted(found)] == ["perfect", "area", "perfect", "perfect"]
    for suffix in ("png", "html"):
        assert {path.stem for path in run.glob(f"evaluation*.{suffix}")} == set(found)


def test_what_cannot_be_written_is_told_before_the_work(
    arrn_command: Command, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("it was begun")

    monkeypatch.setattr("arrn.runs.evaluate_run", work)
    (tmp_path / "file").write_text("")
    for option, name in (("--json", "e.json"), ("--plot", "e.png"), ("--report", "e.html")):
        target = tmp_path / "file" / name
        refused = arrn_command("evaluate", finished, option, target, "--device", "cpu", code=2)
        assert refused.err == f"arrn: cannot write {target}: Not a directory\n"
    assert "it is a folder" in arrn_command("evaluate", finished, "--json", tmp_path, code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_was_found_is_shown_also_if_it_cannot_be_written(
    arrn_command: Command, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("arrn.evaluation.report.write_atomically", full)
    files = ["--json", tmp_path / "e.json", "--plot", tmp_path / "e.png"]
    failed = arrn_command("evaluate", finished, *files, "--resolutions", "8", "--device", "cpu", code=2)
    assert "accuracy in %, with 95% intervals" in failed.out
    assert failed.err == f"arrn: cannot write {tmp_path / 'e.json'}: No space left on device\n"


def test_the_resampler_is_looked_at_before_the_data(arrn_command: Command, finished: Path) -> None:
    wrong = ["--dataset", "./nowhere", "--resampler", "nonsense", "--resolutions", "8", "--device", "cpu"]
    assert "unknown resampler 'nonsense'" in arrn_command("evaluate", finished, *wrong, code=2).err


@pytest.mark.parametrize("resampler", ["area", "bicubic", "fair"])
def test_the_resampler_is_recorded(arrn_command: Command, finished: Path, tmp_path: Path, resampler: str) -> None:
    files = ["--json", tmp_path / "e.json", "--plot", tmp_path / "e.png"]
    arrn_command("evaluate", finished, *files, "--resampler", resampler, "--resolutions", "4", "--device", "cpu")
    assert json.loads((tmp_path / "e.json").read_text())["resampler"] == resampler


def test_mixed_sizes_as_they_come_lead(arrn_command: Command, tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8), (5, 7), (3, 3), (4, 2), (12, 12)], per_class=5)
    arrn_command("train", data, *MODEL, "--epochs", "1", "--out", tmp_path / "run", "--device", "cpu")
    out = arrn_command("evaluate", tmp_path / "run", "--plot", tmp_path / "e.svg", "--device", "cpu").out
    first, second = out.index("as they come"), out.index("lowered to one resolution; smaller images stay as they are")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out[first:second].splitlines() if "│" in line]
    assert [row[:3] for row in rows] == [
        ["exact", "all", "15"],
        ["exact", "8", "9"],
        ["exact", "4", "6"],
        ["cheap", "all", "15"],
        ["cheap", "8", "6"],
        ["cheap", "4", "9"],
    ]
    assert "<!-- come -->" in (tmp_path / "e.svg").read_text()
    page = check_alone((tmp_path / "run" / "evaluation.html").read_text())
    assert any("right as they come" in text for text in page.texts)


def test_the_report_shows_the_mistakes_and_the_numbers_have_them_too(
    arrn_command: Command, finished: Path, tmp_path: Path
) -> None:
    files = ["--json", tmp_path / "e.json", "--plot", tmp_path / "e.png", "--report", tmp_path / "new" / "e.html"]
    out = arrn_command("evaluate", finished, *files, "--resolutions", "8,2", "--device", "cpu").out
    assert f"report, for a browser: {tmp_path / 'new' / 'e.html'}" in out
    document = json.loads((tmp_path / "e.json").read_text())
    assert document["class_names"] == ["red", "green", "blue"]
    by_setting = {(r["resolution"], r["adapt"], r["policy"]): r for r in document["results"]}
    page = check_alone((tmp_path / "new" / "e.html").read_text())
    wrong = 0
    for entry in document["by_class"]:
        result = by_setting[entry["resolution"], entry["adapt"], entry["policy"]]
        matrix = entry["confusion"]
        assert [sum(row) for row in matrix] == document["class_counts"]
        assert [row[n] for n, row in enumerate(matrix)] == entry["correct"]
        assert sum(entry["correct"]) == result["correct"]
        wrong += result["total"] - result["correct"]
    assert len(page.pictures) == wrong  # fewer than twelve at each resolution
    assert wrong > 0
    costs = {entry["resolution"]: entry["multiply_adds"] for entry in document["cost"]}
    assert costs[2] < costs[8] == document["cost"][0]["full"]


def test_brackets_in_names_are_not_taken_for_markup(arrn_command: Command, tmp_path: Path) -> None:
    data = write_easy_set(tmp_path / "[bold]data")
    out = tmp_path / "[red]run"
    said = arrn_command("train", data, *MODEL, "--epochs", "1", "--out", out, "--device", "cpu").out
    assert f"trained network: {out}" in said
    said = arrn_command("evaluate", out, "--resolutions", "8", "--device", "cpu").out
    assert "[bold]data" in said
    assert f"numbers: {out / 'evaluation.json'}" in said
    image = tmp_path / "[i]x.png"
    Image.new("RGB", (8, 8), "red").save(image)
    assert "[i]x.png" in arrn_command("predict", out, image, "--device", "cpu").out.replace("\n", "")
