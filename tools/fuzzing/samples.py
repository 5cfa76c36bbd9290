"""What is damaged, before it is: small files of every format, networks, runs and data sets."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from PIL import Image

from fuzzing.formats import IMAGE_TYPE, repair_weights
from fuzzing.mutations import CANARY
from fuzzing.places import write_answers, write_listing

TINY: dict[str, Any] = {"sizes": [8, 4], "features": [4, 8], "depth": 1, "expansion": 2}
COLOURS = ("blue", "green", "red")


def _pixels(height: int, width: int, label: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([seed, label])
    pixels = rng.integers(0, 160, size=(height, width, 3))
    pixels[..., label] += 90
    return pixels.astype(np.uint8)


def encoded(kind: str = "PNG", mode: str = "RGB", size: int = 8, label: int = 0, seed: int = 0, **how: Any) -> bytes:
    """An image file: some colour and noise."""
    file = io.BytesIO()
    image = Image.fromarray(_pixels(size, size, label, seed))
    (image if mode == "I;16" else image.convert(mode)).save(file, kind, **how)
    if mode == "I;16":
        file = io.BytesIO()
        levels = _pixels(size, size, label, seed)[..., 0].astype(np.uint16) * 257
        Image.fromarray(levels).save(file, kind)
    return file.getvalue()


def sound(rate: int = 64, bits: int = 16, channels: int = 1, seed: int = 0) -> bytes:
    """A short clip: PCM, or floating-point numbers for 32 bits."""
    levels = np.random.default_rng(seed).uniform(-0.5, 0.5, (rate, channels))
    code = 3 if bits == 32 else 1
    data = levels.astype("<f4").tobytes() if code == 3 else (levels * 2 ** (bits - 1)).astype("<i4").tobytes()
    if code == 1:
        data = np.frombuffer(data, np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    block = channels * bits // 8
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, code, channels, rate, block * rate, block, bits)
    content = b"WAVE" + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(content)) + content


def table(samples: Sequence[bytes], column: str, feature: dict[str, Any], names: Sequence[str]) -> bytes:
    """A parquet file in the Hugging Face convention."""
    features = {column: feature, "label": {"_type": "ClassLabel", "names": list(names)}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([(column, IMAGE_TYPE), ("label", pa.int64())], metadata=metadata)
    rows = [{"bytes": sample, "path": None} for sample in samples]
    labels = [n % len(names) for n in range(len(samples))]
    file = io.BytesIO()
    pq.write_table(pa.table([pa.array(rows, IMAGE_TYPE), pa.array(labels)], schema=schema), file)
    return file.getvalue()


def pictures(count: int, seed: int) -> list[bytes]:
    """PNG files, class after class."""
    return [encoded(label=n % 3, seed=seed + n) for n in range(count)]


def arrays(size: tuple[int, ...]) -> bytes:
    """An npz file of MedMNIST's layout."""
    rng = np.random.default_rng(0)
    held: dict[str, Any] = {}
    for split in ("train", "val", "test"):
        held[f"{split}_images"] = rng.integers(0, 255, (12, *size), np.uint8)
        held[f"{split}_labels"] = (np.arange(12) % 3).astype(np.uint8)[:, None]
    file = io.BytesIO()
    np.savez_compressed(file, **held)
    return file.getvalue()


def tiny_archive() -> bytes:
    """A zip in the layout of TinyImageNet."""
    wnids = ("n00000001", "n00000002")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as held:
        for label, wnid in enumerate(wnids):
            for n in range(3):
                held.writestr(f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{n}.JPEG", encoded("JPEG", label=label))
        lines = [f"val_{n}.JPEG\t{wnids[n % 2]}\t0\t0\t8\t8\n" for n in range(4)]
        held.writestr("tiny-imagenet-200/val/val_annotations.txt", "".join(lines))
        for n in range(4):
            held.writestr(f"tiny-imagenet-200/val/images/val_{n}.JPEG", encoded("JPEG", label=n % 2))
        held.writestr("tiny-imagenet-200/words.txt", "".join(f"{wnid}\tfish, {wnid}\n" for wnid in wnids))
    return file.getvalue()


def shard(seed: int = 0) -> bytes:
    """A tar file in the WebDataset convention; some labels are in JSON."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as held:
        for n in range(9):
            label = ("json", b'{"label": %d}' % (n % 3)) if n % 2 else ("cls", b"%d" % (n % 3))
            for ending, content in (("png", encoded(label=n % 3, seed=seed + n)), label):
                member = tarfile.TarInfo(f"{n:04}.{ending}")
                member.size = len(content)
                held.addfile(member, io.BytesIO(content))
    return file.getvalue()


def array() -> bytes:
    """An npy file of a volume."""
    file = io.BytesIO()
    np.save(file, np.random.default_rng(0).integers(0, 255, (8, 8, 8), np.uint8))
    return file.getvalue()


def _save_network(folder: Path, classes: Sequence[str], **options: Any) -> None:
    from arrn import create_model, save
    from arrn.metadata import Metadata

    torch.manual_seed(0)
    ladder = {} if "name" in options else {"name": "arrn", **TINY}
    model = create_model(**{**ladder, "num_classes": len(classes), **options})
    channels = options.get("in_channels", 3)
    names = tuple(classes)
    save(model, folder, Metadata((0.5,) * channels, (0.25,) * channels, "perfect", names, 0.125))


def fit_weights(folder: Path) -> None:
    """Gives a network whose config was changed weights of the shapes that the config asks for, where they are few.

    So the config gets past the comparison of shapes, as that of an attacker would who made both files.
    """
    from arrn import create_model, list_models

    try:
        model = json.loads((folder / "config.json").read_bytes())["model"]
        if model["name"] not in list_models():
            return  # code of the case's own, or another library's
        with torch.device("meta"):
            state = create_model(model["name"], **model["options"]).state_dict()
        if sum(tensor.numel() for tensor in state.values()) > 1 << 20:
            return
        # Ones: a variance of zero would be refused, and a network of zeros answers the same at any size.
        content = {name: torch.ones(tensor.shape, dtype=tensor.dtype) for name, tensor in state.items()}
        (folder / "model.safetensors").write_bytes(safetensors.torch.save(content))
        repair_weights(folder)
    except Exception:  # a config that describes no network
        return


def make_templates(root: Path) -> None:
    """Writes the folders that cases start from below `root`; it trains, so a process of its own should."""
    from arrn.runs import Machine, RunSettings, run_training
    from arrn.training import Recipe, checkpoints

    easy = root / "easy"
    easy.mkdir(parents=True)
    for split, count, seed in (("train", 18, 0), ("test", 9, 1000)):
        content = table(pictures(count, seed), "img", {"_type": "Image"}, COLOURS)
        (easy / f"{split}-00000-of-00001.parquet").write_bytes(content)
    for name, options in (
        ("net", {}),
        ("fair", {"kernel": "fair", "block": "zero_preserving", "repeats": 2}),
        ("grey", {"in_channels": 1, "kernel": {"name": "poor", "sigma": 0.5, "radius": 1.0}, "blockless": [6]}),
        ("sound", {"in_channels": 1, "ndim": 1}),
        ("volume", {"in_channels": 1, "ndim": 3}),
        ("gated", {"name": "arrn_pyramid", "sizes": [8, 4], "width": 4}),
        ("tied", {"name": "arrn_mini", "sizes": [8, 4], "width": 4, "repeats": [1, 1]}),
    ):
        _save_network(root / name / "net", COLOURS, **options)
        (root / name / "dataset.txt").write_text(str(easy))
        file, content = {"sound": ("clip.wav", sound()), "volume": ("volume.npy", array())}.get(
            name, ("cat.png", encoded())
        )
        (root / name / file).write_bytes(content)
        (root / name / "input.txt").write_text(file)
    _make_deployed(root)
    checkpoints._KEPT = 10  # an interrupted run is made from a whole one
    settings = RunSettings(str(easy), "arrn", TINY, Recipe(epochs=3, batch_size=6))
    run_training(settings, root / "done" / "run", Machine("cpu", checkpoint_every=0.4))
    shutil.copytree(root / "done", root / "begun")
    begun = root / "begun" / "run"
    for path in (begun / "model.safetensors", begun / "config.json", *sorted((begun / "checkpoints").iterdir())[4:]):
        path.unlink()
    (root / "begun" / "dataset.txt").write_text(str(easy))
    for template in ("parquet", "folder", "npz", "sounds", "archive", "tar"):
        (root / template / "data").mkdir(parents=True)
    for path in easy.iterdir():
        shutil.copy(path, root / "parquet" / "data")
    (root / "npz" / "data" / "set.npz").write_bytes(arrays((8, 8)))
    (root / "archive" / "data" / "tiny-imagenet-200.zip").write_bytes(tiny_archive())
    for split, seed in (("train", 0), ("test", 1000)):
        (root / "tar" / "data" / f"{split}-0000.tar").write_bytes(shard(seed))
    for split, seed in (("train", 0), ("test", 1000)):
        for label, colour in enumerate(COLOURS):
            for template, ending in (("folder", "png"), ("sounds", "wav")):
                place = root / template / "data" / split / colour
                place.mkdir(parents=True)
                for n in range(3):
                    content_of = encoded(size=8, label=label, seed=seed + n) if ending == "png" else sound(seed=n)
                    (place / f"{n}.{ending}").write_bytes(content_of)
    (root / "sounds" / "flags.txt").write_text("--window 0.25 --option ndim=1")
    shutil.copytree(root / "net" / "net", root / "folder" / "net")
    shutil.copytree(root / "sound" / "net", root / "sounds" / "net")
    for template in ("parquet", "folder", "npz", "archive", "tar"):
        (root / template / "dataset.txt").write_text("data")
    shutil.copytree(root / "net" / "net", root / "parquet" / "net")
    _make_documents(root)
    _make_places(root)


def _make_deployed(root: Path) -> None:
    """Templates of what comes after training: a transplant, a calibrated cascade, an export, and what a server gets."""
    from arrn import create_model, save
    from arrn.deploy import Predictor, calibrate, write_cascade
    from arrn.deploy.export import export_network
    from arrn.metadata import Metadata

    torch.manual_seed(0)
    model = create_model("timm:test_resnet", num_classes=3, size=32)
    save(model, root / "transplant" / "net", Metadata((0.5,) * 3, (0.25,) * 3, "perfect", COLOURS))
    for template in ("cascade", "server", "exported"):
        shutil.copytree(root / "net" / "net", root / template / "net")
    cascade = calibrate(
        Predictor(root / "net" / "net", device="cpu"),
        [_pixels(8, 8, n % 3, n) for n in range(12)],
        [n % 3 for n in range(12)],
        "12 images",
    )
    write_cascade(root / "cascade" / "net", cascade)
    export_network(root / "cascade" / "net", root / "exported" / "exported")
    for template in ("transplant", "cascade", "exported"):
        (root / template / "cat.png").write_bytes(encoded())
        (root / template / "input.txt").write_text("cat.png")
        (root / template / "dataset.txt").write_text(str(root / "easy"))
    for template in ("net", "transplant"):  # a config that names it must not run it
        (root / template / "harmful.py").write_text(f"open({CANARY!r}, 'w')\n\n\ndef build(**options):\n    pass\n")


def _make_places(root: Path) -> None:
    """Templates of what others answer for: a repository on the hub, stores; and a run that is to be published."""
    shutil.copytree(root / "cascade" / "net", root / "hub" / "repo")
    (root / "hub" / "repo" / "README.md").write_text("---\nlicense: mit\n---\n# Birds\n")
    (root / "hub" / "cat.png").write_bytes(encoded())
    write_answers(root / "hub" / "repo")
    result = {"resolution": 8, "policy": "exact", "adapt": True, "accuracy": 0.9, "total": 9}
    evaluation = {"dataset": "easy", "results": [result], "provenance": {"commit": "x", "hostname": "home"}}
    shutil.copytree(root / "done" / "run", root / "published" / "published")
    shutil.copytree(root / "done" / "run", root / "hub" / "published")
    (root / "published" / "published" / "evaluation.json").write_text(json.dumps(evaluation))
    shutil.copy(root / "cascade" / "net" / "cascade.json", root / "published" / "published")
    (root / "published" / "published" / "evaluation.png").write_bytes(encoded())
    shutil.copytree(root / "hub" / "repo", root / "published" / "repo")
    shutil.copy(root / "hub" / "answers.json", root / "published")
    for template, source in (("stored", root / "easy"), ("stored tars", root / "tar" / "data")):
        shutil.copytree(source, root / template / "bucket")
        write_listing(root / template / "bucket")


def _make_documents(root: Path) -> None:
    """Templates of recipes, results, jobs and benchmarks."""
    from arrn.experiments.jobs import Job, write_job
    from arrn.runs import RunSettings
    from arrn.training import Recipe

    for name in ("recipe", "documents"):
        (root / name).mkdir()
        (root / name / "dataset.txt").write_text(str(root / "easy"))
    (root / "recipe" / "recipe.toml").write_text(Recipe(epochs=1).to_toml())
    shipped = Path(__file__).parents[2] / "results" / "cifar10"
    target = root / "documents" / "results" / "cifar10"
    target.mkdir(parents=True)
    for name in ("arrn_cifar10", "arrn_cifar10-no-dropout", "resnet18"):
        shutil.copy(shipped / f"{name}-seed0.json", target)
    job = Job("small", RunSettings("sample", "arrn", TINY, Recipe(epochs=1)), root / "none", root / "none")
    shutil.move(write_job(job), root / "documents" / "job.json")
    times = {"subject": "step", "case": "a", "way": "eager", "seconds": 1e-3, "lower": 1e-3, "upper": 2e-3}
    document = {"format": "arrn-benchmark", "format_version": 1, "settings": {"device": "cpu"}, "provenance": {}}
    document |= {"ceilings": {"bandwidth": 1e10, "rates": {"float32": 1e11}}, "measurements": [times | {"facts": {}}]}
    (root / "documents" / "benchmark.json").write_text(json.dumps(document))
