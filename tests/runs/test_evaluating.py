"""Judging a trained network: which data, which resolutions, and files that are not what they should be."""

import copy
import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.runs import Machine, evaluate_run, load_network, run_training
from pictures import encoded, picture, write_parquet
from small_runs import COLOURS, tiny_settings, train_tiny, write_easy_set, write_mixed_folder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    run_training(dataclasses.replace(tiny_settings(easy), holdout=6), out, Machine("cpu"))
    return out


@pytest.mark.parametrize(("split", "total"), [("test", 9), ("validation", 6), ("train", 12)])
def test_it_judges_by_any_split_of_the_run(run: Path, split: str, total: int) -> None:
    report = evaluate_run(run, [8], split=split, device="cpu")
    assert {result["total"] for result in report.results} == {total}
    assert (report.model, report.facts["split"], report.facts["skipped"]) == ("arrn", split, 0)


def test_streaming_and_any_batch_size_give_the_same_report(run: Path) -> None:
    reports = [
        evaluate_run(run, device="cpu", batch_size=256).results,
        evaluate_run(run, device="cpu", batch_size=2).results,
        evaluate_run(run, device="cpu", batch_size=4, stream=True, workers=0).results,
    ]
    assert reports[0] == reports[1] == reports[2]


def test_by_default_resolutions_go_down_from_the_images_own(run: Path) -> None:
    found = [
        result["resolution"] for result in evaluate_run(run, policies=["exact"], adapt=[True], device="cpu").results
    ]
    assert found == [8, 7, 6, 5, 4, 3, 2, 1]


def test_another_data_set_with_the_same_classes_can_be_used(run: Path, tmp_path: Path) -> None:
    other = write_easy_set(tmp_path / "other", test=12)
    assert evaluate_run(run, [8], dataset=str(other), device="cpu").results[0]["total"] == 12
    assert evaluate_run(run, [8], data=str(other), device="cpu").results[0]["total"] == 12


def test_other_classes_are_refused(run: Path, tmp_path: Path) -> None:
    image = encoded(picture(8, 8))
    for split in ("train", "test"):
        write_parquet(tmp_path / f"{split}-0.parquet", [image] * 3, [0, 1, 2], ("red", "green", "violet"))
    with pytest.raises(ArrnError, match="'blue' against 'violet'"):
        evaluate_run(run, [8], dataset=str(tmp_path), device="cpu")


def test_no_split_nothing_held_out_and_no_samples_are_errors_in_words(run: Path, easy: Path, tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match="unknown split 'tests'; did you mean 'test'"):
        evaluate_run(run, [8], split="tests", device="cpu")
    with pytest.raises(ArrnError, match="this run held out no samples"):
        evaluate_run(train_tiny(easy, tmp_path / "plain", epochs=1), [8], split="validation", device="cpu")
    with pytest.raises(ArrnError, match="has no validation split: give --dataset a folder with train, val and test"):
        evaluate_run(run, [8], dataset=str(easy), split="validation", device="cpu")
    image = encoded(picture(8, 8))
    write_parquet(tmp_path / "train-0.parquet", [image] * 3, [0, 1, 2], COLOURS)
    with pytest.raises(ArrnError, match="has no test split; train with --holdout N"):
        evaluate_run(run, [8], dataset=str(tmp_path), device="cpu")
    write_parquet(tmp_path / "test-0.parquet", [], [], COLOURS)
    with pytest.raises(ArrnError, match="holds no rows"):
        evaluate_run(run, [8], dataset=str(tmp_path), device="cpu")


def test_a_resolution_above_the_images_leaves_them_and_warns(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        above, own = evaluate_run(run, [100, 8], policies=["exact"], adapt=[True], device="cpu").results
    assert caplog.messages == ["no image is larger than 8: resolution 100 measures them at their own size"]
    assert (above["resolution"], above["correct"]) == (100, own["correct"])


def test_bad_samples_are_named_or_skipped_and_counted(run: Path, tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8)], per_class=2)
    names = sorted(COLOURS)
    bad = data / "test" / "red" / "000.png"
    bad.write_bytes(bad.read_bytes()[:70])
    out = tmp_path / "run"
    run_training(tiny_settings(data, epochs=1), out, Machine("cpu"))
    assert arrn.load(out).metadata.class_names == tuple(names)
    with pytest.raises(ArrnError, match=r"red/000\.png: cannot be decoded"):
        evaluate_run(out, [8], device="cpu")
    report = evaluate_run(out, [8], device="cpu", skip_bad=True)
    assert (report.results[0]["total"], report.facts["skipped"]) == (5, 1)


def test_an_unfinished_run_says_how_to_go_on(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "run.json", tmp_path)
    with pytest.raises(ArrnError, match=r"is not finished: go on with `arrn train --resume --out .*`"):
        load_network(tmp_path, CPU)
    with pytest.raises(ArrnError, match="is not a directory"):
        load_network(tmp_path / "nowhere", CPU)


def test_a_saved_network_without_a_run_is_judged_on_a_named_data_set(easy: Path, tmp_path: Path) -> None:
    model = arrn.create_model("arrn", sizes=(8, 4), features=(4, 4), num_classes=3)
    arrn.save(model, tmp_path / "bare")
    with pytest.raises(ArrnError, match="does not say how inputs are normalised"):
        evaluate_run(tmp_path / "bare", [8], dataset=str(easy), device="cpu")
    arrn.save(model, tmp_path / "told", Metadata((0.5,) * 3, (0.2,) * 3))
    with pytest.raises(ArrnError, match="name one with --dataset"):
        evaluate_run(tmp_path / "told", [8], device="cpu")
    assert evaluate_run(tmp_path / "told", [8], dataset=str(easy), device="cpu").results[0]["total"] == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [0.1, 0.2]}, "mean and std must have one number per channel each, got 2 and 3"),
        ({"mean": [0.1, 0.2], "std": [0.1, 0.2]}, "mean should have 3 numbers, one for each channel"),
        ({"std": [0.1, 0.2, 0.0]}, "std must be above 0"),
        ({"class_names": ["a", "b"]}, "2 class names for a network of 3 classes"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(
    run: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    for name in ("model.safetensors", "run.json"):
        shutil.copy(run / name, tmp_path)
    document = json.loads((run / "config.json").read_text())
    document["inputs"] |= change
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(ArrnError, match=message):
        load_network(tmp_path, CPU)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 50) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.data())
def test_no_config_escapes_as_anything_but_an_arrn_error(run: Path, data: st.DataObject) -> None:
    folder = run.parent / "fuzz"
    folder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "run.json"):
        shutil.copy(run / name, folder)
    document: dict[str, Any] = copy.deepcopy(json.loads((run / "config.json").read_text()))
    place = data.draw(st.sampled_from([document, document["inputs"], document["model"], document["model"]["options"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(anything)
    (folder / "config.json").write_text(json.dumps(document))
    try:
        model, _, normalisation = load_network(folder, CPU)
    except ArrnError:
        return
    model(normalisation(torch.zeros(2, 3, 5, 5, dtype=torch.uint8)))


def test_a_network_with_another_kernel_is_judged_with_it(easy: Path, tmp_path: Path) -> None:
    options = dict(tiny_settings(easy).options) | {"kernel": "poor"}
    run_training(dataclasses.replace(tiny_settings(easy, epochs=1), options=options), tmp_path / "run", Machine("cpu"))
    model, metadata, _ = load_network(tmp_path / "run", CPU)
    assert model.kernel == arrn.signal.kernel("poor")
    # Lower resolutions are made by what was recorded, which is the perfect kernel: the network's own is another matter.
    assert metadata.resampler == "perfect"
    assert evaluate_run(tmp_path / "run", [6], device="cpu").facts["resampler"] == "perfect"
    assert evaluate_run(tmp_path / "run", [6], resampler="area", device="cpu").facts["resampler"] == "area"
    with pytest.raises(ArrnError, match="unknown resampler 'nearest'"):
        evaluate_run(tmp_path / "run", [6], resampler="nearest", device="cpu")
