"""`arrn benchmark`: the tables, the files, the comparison; never the times."""

import json
from pathlib import Path

import pytest

from arrn.benchmarks import SUBJECTS
from commands import Command
from small_runs import TINY

MODEL = ["--model", "arrn", *(word for name, value in TINY.items() for word in ("--option", f"{name}={value}"))]


def test_everything_end_to_end(arrn_command: Command, tmp_path: Path) -> None:
    numbers, picture = tmp_path / "b.json", tmp_path / "b.png"
    quick = ["--quick", "--batch", 2, "--baselines", "none", "--device", "cpu"]
    out = arrn_command("benchmark", *MODEL, *quick, "--json", numbers, "--plot", picture).out
    for title in (
        "A training step",
        "Inference, batch 2",
        "does time fall",
        "Resampling",
        "Depthwise 3x3",
        "TrivialAugment",
        "PyTorch, exported files, and these in 8 bits",
    ):
        assert title in out
    assert "measured ceilings: copy" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = json.loads(numbers.read_text())
    # The sizes of this network are too few for the shares of the recipe `frontier`, which has a test of its own.
    assert {entry["subject"] for entry in document["measurements"]} == set(SUBJECTS) - {"recipe"}
    again = arrn_command("benchmark", "--load", numbers, "--plot", tmp_path / "again.png").out
    assert "measured on" in again
    assert all(line in again for line in out.splitlines() if "│" in line)
    assert (tmp_path / "again.png").read_bytes() == picture.read_bytes()
    same = arrn_command("benchmark", "--compare", numbers, numbers).out
    assert f"0 of {len(document['measurements'])} times changed" in same
    assert "+0.0%" in same
    assert "the runs differ" not in same


def test_a_saved_network_is_measured_as_it_is_deployed(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "b.json"
    quick = ["--quick", "--batch", 2, "--baselines", "resnet18", "--device", "cpu", "--json", numbers]
    arrn_command("benchmark", "deploy", "--network", finished, *quick)
    found = json.loads(numbers.read_text())["measurements"]
    ways = ["PyTorch", "ONNX Runtime", "ONNX Runtime, 8 bits"]
    cases = list(dict.fromkeys(each["case"] for each in found))
    assert [each["way"] for each in found] == ways * len(cases)
    assert all(each["seconds"] and each["failure"] is None for each in found)
    facts = [(each["facts"]["model"], each["facts"]["resolution"], each["facts"]["level"]) for each in found]
    assert list(dict.fromkeys(facts)) == [
        ("arrn", 8, "8"),
        ("arrn", 4, "4"),
        ("resnet18", 8, "8"),
        ("resnet18", 4, "8"),
    ]


def test_a_failure_is_told(arrn_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("no [such] kernel")

    monkeypatch.setattr("arrn.benchmarks.step.TrainingStep", refuse)
    out = arrn_command("benchmark", "step", *MODEL, "--quick", "--device", "cpu").out
    assert "failed 1 times, reference: RuntimeError: no [such] kernel" in out


def test_a_comparison_marks_what_moved_and_tells_what_is_missing(arrn_command: Command, tmp_path: Path) -> None:
    paths = []
    for name, seconds, way in (("a", 1.0, "old"), ("b", 0.5, "new")):
        entries = [{"subject": "step", "case": "c", "way": w, "seconds": s, "lower": s, "upper": s}
                   for w, s in (("reference", seconds), (way, 1.0))]  # fmt: skip
        document = {"format": "arrn-benchmark", "format_version": 1, "measurements": entries}
        document["provenance"] = {"commit": name}
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(document))
    out = arrn_command("benchmark", "--compare", *paths).out
    assert "the runs differ: commit: a -> b" in out
    assert "-50.0% │ *" in out
    assert f"only in {paths[0]}: step: c, old" in out
    assert f"only in {paths[1]}: step: c, new" in out
    assert "1 of 1 times changed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["steps"], "unknown subject 'steps'; did you mean 'step'?"),
        (["--model", "resnet"], "unknown model 'resnet'"),
        (["--option", "dropot=1"], "unknown option of model 'arrn_cifar10': 'dropot'"),
        (["--baselines", "resnet"], "unknown model 'resnet'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--batch", "few"], "--batch takes whole numbers"),
        (["--resolutions", "8,x"], "--resolutions takes whole numbers"),
        (["--plot", "x.jpg"], "--plot takes a file ending in .png or .svg, got 'x.jpg'"),
        (["step", "--plot", "x.png"], "--plot draws times of inference, which 'step' does not measure"),
        (["--load", "a.json"], "a.json is missing"),
        (["--compare", "a.json"], "requires 2 arguments"),
        (["--compare", "a.json", "b.json"], "a.json is missing"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arrn_command: Command, arguments: list[str], message: str) -> None:
    device = [] if "--device" in arguments else ["--device", "cpu"]
    assert message in arrn_command("benchmark", *device, *arguments, code=2).err


def test_a_device_that_is_not_there(arrn_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "there is no cuda device here" in arrn_command("benchmark", "--device", "cuda", code=2).err
