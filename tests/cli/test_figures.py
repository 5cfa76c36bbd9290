"""`arrn figures`: files for what there is, words for what there is not."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

import arrn
from arrn.experiments import write_result
from arrn.metadata import Metadata
from commands import Command
from invented import invent_all
from pictures import picture

PNG = b"\x89PNG"


def write_results(folder: Path, *names: str) -> Path:
    for result in invent_all():
        if not names or result.name in names:
            write_result(result, folder)
    return folder


def test_every_figure_is_written_as_png_and_svg(tmp_path: Path, arrn_command: Command) -> None:
    results = write_results(tmp_path / "results")
    said = arrn_command("figures", "--results", results, "--out", tmp_path / "out").out
    of_results = ("robustness", "efficiency", "generalization", "ablation", "tree", "frontier")
    stems = [*(f"{name}-sample" for name in of_results), "skipping", "pyramid", "features", "bandwidth"]
    files = {f"{stem}.{end}" for stem in stems for end in ("png", "svg")} | {"tables-sample.md", "claims.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    for stem in stems:
        assert (tmp_path / "out" / f"{stem}.png").read_bytes().startswith(PNG)
        assert "<svg" in (tmp_path / "out" / f"{stem}.svg").read_text()
    assert "missing" not in said


def test_drawn_again_files_are_the_same_byte_for_byte(tmp_path: Path, arrn_command: Command) -> None:
    results = write_results(tmp_path / "results", "arrn_small", "resnet18")
    for out in ("one", "two"):
        arrn_command("figures", "ablation", "pyramid", "--results", results, "--out", tmp_path / out)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_pictures_need_no_results(tmp_path: Path, arrn_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = arrn_command("figures", "tree", "bandwidth").out
    assert "tree: not drawn, since these are missing: results of `arrn reproduce ablation`" in said
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"bandwidth.png", "bandwidth.svg"}
    (tmp_path / "empty").mkdir()
    said = arrn_command("figures", "robustness", "--results", "empty", "--out", "none").out
    assert "robustness: not drawn" in said
    assert not (tmp_path / "none").exists()


def test_what_is_lacking_is_told(tmp_path: Path, arrn_command: Command) -> None:
    results = write_results(tmp_path / "results", "arrn_small", "arrn_small-no-dropout", "arrn_small-fair")
    said = arrn_command("figures", "ablation", "tree", "--results", results, "--out", tmp_path).out
    lacking = "missing: arrn_small-fair-no-dropout, arrn_small-poor, arrn_small-poor-no-dropout\n"
    assert f"tree-sample: not drawn, since these are {lacking}" in said
    assert f"ablation-sample.svg; {lacking}" in said


def test_features_are_those_of_the_network_and_the_image(tmp_path: Path, arrn_command: Command) -> None:
    model = arrn.create_model("arrn", sizes=(8, 4), features=(4, 4), depth=1)
    arrn.save(model, tmp_path / "net", Metadata((0.5,) * 3, (0.25,) * 3))
    Image.fromarray(picture(300, 200)).save(tmp_path / "wide.png")
    given = ("--network", tmp_path / "net", "--image", tmp_path / "wide.png", "--out", tmp_path / "out")
    assert "features.svg" in arrn_command("figures", "features", *given).out


def test_wrong_input_is_told_in_a_line(tmp_path: Path, arrn_command: Command) -> None:
    assert "unknown figure 'trees'; did you mean 'tree'?" in arrn_command("figures", "trees", code=2).err
    nowhere = arrn_command("figures", "--results", tmp_path / "nowhere", code=2).err
    assert "is not a folder of results" in nowhere
    Image.fromarray(picture(4, 9)).save(tmp_path / "tiny.png")
    tiny = arrn_command("figures", "pyramid", "--image", tmp_path / "tiny.png", "--out", tmp_path, code=2).err
    assert "at least 8x8 is needed, got 4x9" in tiny
    (tmp_path / "file").write_text("in the way")
    blocked = arrn_command("figures", "pyramid", "--out", tmp_path / "file", code=2).err
    assert "cannot write to" in blocked
    fixed = arrn.create_model("resnet18_small_stem", width=4)
    arrn.save(fixed, tmp_path / "fixed", Metadata((0.5,) * 3, (0.25,) * 3))
    refused = arrn_command("figures", "features", "--network", tmp_path / "fixed", code=2).err
    assert "needs an ARRN" in refused
