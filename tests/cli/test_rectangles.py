"""Rectangles in training, evaluation and prediction: one treatment, recorded with the network."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import arrn
from arrn.data import BadSample, Framed, ImageFolder, aspect_in_words, examine, frame
from arrn.errors import ArrnError
from arrn.runs import Machine, evaluate_run, load_network, read_settings, run_training
from arrn.runtime import Aspect
from commands import Command
from small_runs import said_by, tiny_settings, train_tiny, write_easy_set, write_mixed_folder
from sounds import write_tones

SIZES = [(8, 8), (6, 12), (12, 6), (5, 7)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed_folder(tmp_path_factory.mktemp("rectangles"), SIZES, per_class=4)


@pytest.fixture(scope="module")
def padded(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "padded"
    run_training(dataclasses.replace(tiny_settings(data, epochs=1), aspect="pad"), out, Machine("cpu"))
    return out


def test_the_choice_is_recorded_and_used_everywhere(padded: Path, data: Path, arrn_command: Command) -> None:
    assert json.loads((padded / "config.json").read_text())["inputs"]["aspect"] == "pad"
    settings = read_settings(padded)
    assert settings is not None
    assert settings.aspect == "pad"
    model, metadata, normalisation = load_network(padded, torch.device("cpu"))
    # By hand: the probabilities of every test image, padded by numpy.
    right = 0
    for path in sorted((data / "test").rglob("*.png")):
        pixels = np.asarray(Image.open(path)).transpose(2, 0, 1)
        side = max(pixels.shape[1:])
        before = [(side - n) // 2 for n in pixels.shape[1:]]
        around = [(b, side - n - b) for b, n in zip(before, pixels.shape[1:], strict=True)]
        square = np.pad(pixels, [(0, 0), *around], mode="symmetric")
        chances = model(normalisation(torch.from_numpy(square)[None])).detach().softmax(1)[0]
        right += metadata.class_names[int(chances.argmax())] == path.parent.name
        size = f"{pixels.shape[1]}x{pixels.shape[2]}"  # its own
        (line,) = [line for line in arrn_command("predict", padded, path).out.splitlines() if size in line]
        assert f"{float(chances.max()):.1%}" in line
    report = evaluate_run(padded, policies=["exact"], adapt=[True], device="cpu")
    assert (report.results[0]["resolution"], report.results[0]["correct"]) == (None, right)
    assert report.facts["aspect"] == "pad"
    assert {level["grid"] for level in report.results[0]["levels"]} == {"8"}
    other = evaluate_run(padded, policies=["exact"], adapt=[True], device="cpu", aspect="crop")
    assert other.facts["aspect"] == "crop"
    assert {level["grid"] for level in other.results[0]["levels"]} == {"8"}


def test_the_entry_level_is_that_of_the_framed_image(padded: Path, tmp_path: Path, arrn_command: Command) -> None:
    Image.new("RGB", (8, 2)).save(tmp_path / "strip.png")
    for aspect, level in (("stretch", "8"), ("pad", "8"), ("crop", "4")):
        out = arrn_command("predict", padded, tmp_path / "strip.png", "--aspect", aspect).out
        (row,) = [line for line in out.splitlines() if "2x8" in line]
        assert level in [cell.strip() for cell in row.split("│")], row
    wrong = arrn_command("predict", padded, tmp_path / "strip.png", "--aspect", "squeeze", code=2).err
    assert wrong == "arrn: unknown aspect 'squeeze' (known: 'crop', 'pad', 'stretch')\n"


def test_training_says_what_happens_to_many_rectangles(data: Path, tmp_path: Path) -> None:
    settings = tiny_settings(data, epochs=1)
    start = "9 of 12 images have other proportions than the network's grids, 1:1 (one is "
    told = {
        "stretch": "they are stretched by up to 2 times; --aspect pad or --aspect crop keeps their proportions",
        "pad": "they are padded with mirrored edges; on average 57% of the result is original",
        "crop": "they are cropped to their middle; on average this keeps 57% of the original",
    }
    for aspect, words in told.items():
        said = said_by(dataclasses.replace(settings, aspect=aspect), tmp_path / aspect)
        (line,) = [line for line in said if "1:1" in line]
        assert line.startswith(start)
        assert line.endswith(words)
    square = examine(ImageFolder(write_mixed_folder(tmp_path / "squares", [(8, 8)], 2), "train"))
    for aspect in told:
        assert aspect_in_words(square, Aspect(aspect, (8, 8))) is None
        assert frame(square, Aspect(aspect, (8, 8))) is square


def test_a_rectangular_ladder_has_its_own_proportions(data: Path, tmp_path: Path) -> None:
    settings = tiny_settings(data, epochs=1)
    options = dict(settings.options) | {"sizes": [[8, 16], [4, 8]]}
    said = said_by(dataclasses.replace(settings, options=options, aspect="crop"), tmp_path / "run")
    (line,) = [line for line in said if "8:16" in line]
    assert line.startswith("9 of 12 images have other proportions than the network's grids, 8:16")
    report = evaluate_run(tmp_path / "run", policies=["exact"], adapt=[True], device="cpu")
    # 8x8 -> 4x8, 6x12 as it is, 12x6 -> 3x6, 5x7 -> 4x7 (half of 7, rounded to even)
    assert {level["grid"]: level["total"] for level in report.results[0]["levels"]} == {"8x16": 3, "4x8": 9}


def test_another_aspect_is_another_run(padded: Path, data: Path) -> None:
    with pytest.raises(ArrnError, match="aspect was 'pad' and is now 'stretch'"):
        run_training(tiny_settings(data, epochs=1), padded, Machine("cpu"), resume=True)


def test_old_folders_mean_stretch(tmp_path: Path) -> None:
    out = train_tiny(write_easy_set(tmp_path / "easy"), tmp_path / "run", epochs=1)
    run, config = (json.loads((out / name).read_text()) for name in ("run.json", "config.json"))
    del run["settings"]["aspect"], config["inputs"]["aspect"]
    (out / "run.json").write_text(json.dumps(run))
    (out / "config.json").write_text(json.dumps(config))
    assert arrn.load(out).metadata.aspect == "stretch"
    settings = read_settings(out)
    assert settings is not None
    assert settings.aspect == "stretch"
    config["inputs"]["aspect"] = ["pad"]
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArrnError, match=r"config.json: unknown aspect \['pad'\]"):
        arrn.load(out)


def test_a_strip_that_would_be_huge_once_padded_is_refused_or_skipped(
    data: Path, tmp_path: Path, arrn_command: Command
) -> None:
    images = write_mixed_folder(tmp_path / "data", [(8, 8)], per_class=3)
    strip = images / "train" / "red" / "strip.png"
    Image.new("RGB", (20_000, 1), "red").save(strip)
    command = ["train", images, "--model", "arrn", "--epochs", "1", "--batch-size", "4", "--device", "cpu"]
    command += [
        word for name, value in tiny_settings(images).options.items() for word in ("--option", f"{name}={value}")
    ]
    command += ["--aspect", "pad", "--out", tmp_path / "run"]
    refused = arrn_command(*command, code=2).err
    assert f"{strip}: padded to the network's proportions, its size, 20000x20000" in refused
    assert "--skip-bad" in refused
    assert f"skipped 1 bad sample: {strip}: padded" in arrn_command(*command, "--skip-bad").out
    assert (tmp_path / "run" / "skipped.txt").read_text().startswith(f"{strip}: padded")
    grown = Framed(ImageFolder(images, "train"), Aspect("pad", (8, 8)))
    place = next(n for n in range(len(grown)) if grown.where(n) == str(strip))
    with pytest.raises(BadSample, match="padded to the network's proportions"):
        grown.read(place)


def test_sound_has_no_aspect(tmp_path: Path) -> None:
    folder = write_tones(tmp_path / "tones")
    settings = dataclasses.replace(tiny_settings(folder, epochs=1), aspect="pad", window=0.125)
    with pytest.raises(ArrnError, match="aspect is for images and volumes"):
        run_training(settings, tmp_path / "run", Machine("cpu"))
