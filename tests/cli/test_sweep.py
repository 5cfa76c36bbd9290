"""`arrn sweep`: the real program on a few images."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from arrn.experiments import read_results
from commands import Command, program

GRID = ["--sizes", "8,4", "--features", "4,8", "--expansion", "2", "--depth", "1", "--p", "0.4,0.6"]


def test_designs_are_compared_on_held_out_images(easy: Path, tmp_path: Path, arrn_command: Command) -> None:
    out = tmp_path / "sweep"
    arguments = ["sweep", easy, *GRID, "--epochs", 1, "--holdout", 6, "--out", out, "--device", "cpu"]
    done = program(*arguments, "--jobs", 2)
    assert done.stderr == ""
    assert "a search, 2 at once" in done.stdout
    results = read_results(out / "results")
    assert {result.split for result in results} == {"validation"}
    assert {result.report.results[0]["total"] for result in results} == {6}
    # From here on there is nothing to run, so this process can do it.
    said = arrn_command(*arguments).out
    assert "2 runs finished before and are skipped" in said
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if line.startswith("│")]
    assert {row[1] for row in rows} == {f"8-4_f4-8_e2-2_d1-1_p{p}_inverted" for p in (0.4, 0.6)}
    document = json.loads((out / f"sweep-{easy.name}.json").read_text())
    means = [row["mean_accuracy"] for row in document["designs"]]
    assert means == sorted(means, reverse=True)
    assert f"{100 * means[0]:.1f}*" in rows[0][2]
    assert f"numbers: {out / f'sweep-{easy.name}.json'}" in said
    assert (out / f"sweep-{easy.name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_not_given_is_the_data_sets_own_design(arrn_command: Command, tmp_path: Path) -> None:
    table = arrn_command("sweep", "sample", "--p", "0.4,0.5", "--out", tmp_path, "--list").out
    assert "2 designs on sample, judged by 500 images of its training set" in table
    assert table.count("32-16-8_f16-32-64_e2-3-4_d1-1-2_p0.") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [80, 110])
def test_a_long_design_leaves_room_for_the_rest(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    ladder = ["--sizes", "32,30,28,26,24,22,20,18,16,14,12,10,8", "--features", ",".join(["256"] * 13)]
    monkeypatch.setattr("arrn.cli.fleet.print_wide", Console(width=width).print)
    table = arrn_command("sweep", "sample", *ladder, "--out", tmp_path, "--list").out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]
    assert [rows[0][1], *rows[0][3:]] == ["arrn", "100", "to do"]
    assert "".join(row[0] for row in rows).endswith("_inverted-seed0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--p", "0,0.1,0.2", "--limit", "2"],
            "more than 2: give fewer choices, draw some of the designs by --trials, or allow them by --limit 3",
        ),
        (["--sizes", "32,x"], "--sizes takes whole numbers of at least 1 with commas between"),
        (["--p", "half"], "--p takes numbers of at least 0 with commas between, such as 0.4,0.6; got 'half'"),
        (["--block", "square"], "unknown block 'square'"),
        (["--sizes", "8,16"], "8"),
        (["--p", "1.5"], "1.5"),
        (["--holdout", "5000"], "5000 samples cannot be held out"),
    ],
)
def test_what_cannot_be_right_is_told_before_anything_runs(
    arrn_command: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    refused = arrn_command("sweep", "sample", *arguments, "--out", tmp_path, "--device", "cpu", code=2)
    assert message in refused.err
    assert not list(tmp_path.iterdir())
