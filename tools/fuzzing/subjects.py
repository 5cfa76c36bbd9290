"""What is damaged, and what a user would then do with it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from fuzzing import archives, formats, places, requests
from fuzzing.formats import Mutate, repair_manifest, repair_weights
from fuzzing.mutations import PICKLED, damage, hostile_text, make_special
from fuzzing.requests import converse
from fuzzing.samples import COLOURS, TINY, arrays, encoded, fit_weights, pictures, sound, table


def damaged(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a file of which only its bytes are known."""
    return damage(data, rng, other)


def _evaluation() -> bytes:
    """What `arrn evaluate` leaves, as far as an export reads it."""
    result = {"resolution": 8, "policy": "exact", "adapt": True, "accuracy": 0.9, "total": 9}
    return json.dumps({"dataset": "easy", "results": [result], "provenance": {"commit": "x"}}).encode()


_CPU = ("--device", "cpu", "--in-memory")


@dataclass(frozen=True)
class Subject:
    """A file that is damaged, and the ways to use it.

    Attributes:
        kind: its row in the table.
        template: the folder that a case starts from.
        path: of the file in it; "" for names, which are damaged by renaming.
        mutate: what damages it.
        uses: names of `USES`.
        seeds: files to start from; none is the template's own.
        repair: makes what other files say of this one right again, given its folder.
    """

    kind: str
    template: str
    path: str
    mutate: Mutate
    uses: tuple[str, ...]
    seeds: tuple[bytes, ...] = field(default=(), repr=False)
    repair: Callable[[Path], None] | None = None

    def break_it(self, work: Path, rng: random.Random, repair: bool, pool: Sequence[bytes]) -> str:
        """Damages the file in a copy of the template; returns how."""
        if not self.path:
            return _rename(work, rng)
        path = work / self.path
        if self.kind == "checkpoint" and rng.random() < 0.5:  # with no other one to go back to
            for other_one in path.parent.iterdir():
                other_one.unlink() if other_one != path else None
        if rng.random() < 0.1:
            return f"{self.path}: {make_special(path, rng)}"
        data = rng.choice(self.seeds) if self.seeds else path.read_bytes()
        other = PICKLED if rng.random() < 0.2 else rng.choice(pool)
        content, done = self.mutate(data, rng, repair, other)
        path.write_bytes(content)
        if repair and self.repair is not None:
            self.repair(path.parent)
        return done

    def restore(self, work: Path) -> None:
        """The file as it should be: the first seed."""
        if self.seeds:
            (work / self.path).write_bytes(self.seeds[0])


def _rename(work: Path, rng: random.Random) -> str:
    """Gives files and folders of a data set hostile names, and adds links that go round."""
    places = sorted((work / "data").rglob("*"), key=lambda path: -len(path.parts))
    done = []
    for path in rng.sample(places, rng.choice((1, 2, 5))):
        if not path.parent.is_dir():  # it was below one that has another name by now
            continue
        ending = path.suffix if path.is_file() else ""
        raw = hostile_text(rng).replace("/", "_").replace("\0", "")
        name = raw.encode("utf-8", "surrogatepass")[: 200 - len(ending)] + ending.encode()
        if rng.random() < 0.1:
            name = b"\xff\xfe" + name  # no text at all
        if rng.random() < 0.15:
            link = path.parent / rng.choice(("round", "self", "x.png"))
            if not link.is_symlink() and not link.exists():
                link.symlink_to(rng.choice((".", "..", "../..", "self", "/")))
                done.append(f"{link.name} -> {link.readlink()}")
        elif path.exists() and name.strip(b"."):
            new = path.parent / name.decode("utf-8", "surrogateescape")
            if not new.exists():
                path.rename(new)
                done.append(f"{path.name} is {new.name!r:.40}")
    return "; ".join(done)


def arrn(*arguments: object) -> None:
    """Runs the command line in this process."""
    from arrn.cli import main

    sys.argv = ["arrn", *map(str, arguments)]
    main()


def _load() -> None:
    """What a program does: load, look at the weights, run at two sizes."""
    import arrn as library
    from arrn.nn.network import as_network

    model = library.load("net")
    if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
        sys.stdout.write("UNNOTICED: weights that are not finite\n")
    network = as_network(model)
    with torch.no_grad():
        for size in (8, 3):
            model(torch.rand(1, network.in_channels, *[size] * network.ndim))


def _open_set(root: str, stream: bool = False) -> None:
    """What a program does: open a set, look it over, read all of it in batches."""
    from arrn.data import Placement, examine, open_batches, open_dataset

    dataset = open_dataset(root)
    for source in (dataset.train, dataset.test, dataset.validation):
        if source is None:
            continue
        found = examine(source, skip_bad=True)
        placement = Placement.unchanged(found.sizes)
        with open_batches(
            found, placement, batch_size=4, device=torch.device("cpu"), stream=stream, workers=0
        ) as batches:
            for batch in batches.epoch(0):
                assert len(batch.labels)


def _read_recipe() -> None:
    from arrn.training import read_recipe

    read_recipe(Path("recipe.toml")).to_toml()


def _read_results() -> None:
    from arrn.experiments import read_results
    from arrn.figures import draw_figures

    for drawing in draw_figures(["tables", "tree"], read_results(Path("results")), lambda: None):  # type: ignore[arg-type, return-value]
        assert drawing.stem


def _read_job() -> None:
    from arrn.experiments.jobs import read_job

    job = read_job(Path("job.json"))
    assert job.state() in ("finished", "to evaluate", "interrupted", "to do")


def _read_benchmark() -> None:
    from arrn.benchmarks.report import compare, read_benchmark

    report = read_benchmark(Path("benchmark.json"))
    compare(report, report)


def _resume() -> None:
    dataset = Path("dataset.txt").read_text()
    arrn("train", dataset, "--out", "run", "--resume", *_CPU)


def _train(data: str) -> None:
    options = [word for name, value in TINY.items() for word in ("--option", f"{name}={json.dumps(value)}")]
    recipe = ("--recipe", "recipe.toml") if Path("recipe.toml").exists() else ()
    flags = Path("flags.txt").read_text().split() if Path("flags.txt").exists() else ()
    short = ("--epochs", 1, "--batch-size", 6, *flags)
    arrn("train", data, "--model", "arrn", *options, *recipe, *short, "--out", "run", *_CPU)


def _evaluate(folder: str, *options: str) -> None:
    narrow = ("--resolutions", "8,5", "--policy", "exact", "--batch-size", "4")
    arrn("evaluate", folder, *narrow, *options, *_CPU)


def _evaluate_net() -> None:
    _evaluate("net", "--dataset", Path("dataset.txt").read_text())


def _predict_all() -> None:
    arrn("predict", "net", *sorted(path for path in Path("data").rglob("*") if path.is_file())[:12], "--device", "cpu")


def _predict_exported() -> None:
    """What a program without torch does."""
    from arrn.runtime import OnnxPredictor

    predictor = OnnxPredictor("exported", threads=1)
    for size in (8, 3):
        assert predictor(np.zeros((size, size, 3), np.uint8)).probability <= 1


def _predict_without_torch() -> None:
    from arrn.runtime.program import main

    main(["predict", "exported", "cat.png", "--threads", "1", "--json"])


def _with_the_hub(*arguments: object) -> Callable[[], None]:
    def run() -> None:
        places.use_hub()
        arrn(*arguments)

    return run


def _serve(exported: bool = False) -> None:
    """What a server does with a request; what it refuses is told as the command line would."""
    from arrn.deploy import Predictor
    from arrn.runtime import OnnxPredictor

    predictor = OnnxPredictor("exported", threads=1) if exported else Predictor("net", device="cpu")
    file, content = Path("request.bin"), requests.seeds()[0]
    if file.is_file():
        with file.open("rb") as opened:
            content = opened.read(1 << 21)
    statuses = converse(predictor, content)
    if not statuses or max(statuses) >= 400:
        sys.stderr.write(f"arrn: answered with {statuses}\n")
        sys.exit(2)


def _export(folder: str) -> None:
    arrn("export", folder, "--out", "exported-again")


USES: dict[str, Callable[[], None]] = {
    "load": _load,
    "predict": lambda: arrn("predict", "net", Path("input.txt").read_text(), "--device", "cpu"),
    "predict all": _predict_all,
    "evaluate network": _evaluate_net,
    "evaluate run": lambda: _evaluate("run"),
    "resume": _resume,
    "open set": lambda: _open_set("data"),
    "stream set": lambda: _open_set("data", stream=True),
    "train on set": lambda: _train("data"),
    "train": lambda: _train(Path("dataset.txt").read_text()),
    "read recipe": _read_recipe,
    "read results": _read_results,
    "figures": lambda: arrn("figures", "robustness", "tables", "--results", "results", "--out", "figures"),
    "read job": _read_job,
    "read benchmark": _read_benchmark,
    "predict within a budget": lambda: arrn("predict", "net", "cat.png", "--budget", 0.03, "--device", "cpu"),
    "predict exported": _predict_exported,
    "arrn-runtime predict": _predict_without_torch,
    "load from the hub": places.load_from_hub,
    "predict from the hub": _with_the_hub("predict", places.ADDRESS, "cat.png", "--device", "cpu"),
    "publish": _with_the_hub("publish", "published", places.REPOSITORY, "--license", "mit"),
    "write card": lambda: arrn("publish", "published", places.REPOSITORY, "--license", "mit", "--out", "card.md"),
    "open stored set": places.in_the_store(_open_set),
    "stream stored set": places.in_the_store(lambda root: _open_set(root, stream=True)),
    "train on stored set": places.in_the_store(lambda root: _train(root)),
    "serve": _serve,
    "serve exported": lambda: _serve(exported=True),
    "export network": lambda: _export("net"),
    "export run": lambda: _export("run"),
}
"""What users do, by name. Run in the folder of a case."""

TRAINING = ("resume", "train", "train on set", "train on stored set")
"""Those that may take as long as they like, so long as they stop when asked to."""


def list_subjects(root: Path) -> list[Subject]:
    """Everything that is damaged, given the templates."""
    from arrn.training import Recipe

    network, run = ("load", "predict", "evaluate network", "export network"), ("resume",)
    deployed = ("predict exported", "serve exported", "arrn-runtime predict")
    stored = ("open stored set", "stream stored set", "train on stored set")
    hub = ("load from the hub", "load from the hub", "predict from the hub", "publish")
    config, design = formats.json_file(formats.LADDER), formats.json_file(formats.DESIGNS + formats.LADDER)
    latest = str(max((root / "begun" / "run" / "checkpoints").iterdir()).relative_to(root / "begun"))
    options = {name: value for name, value in vars(Recipe()).items() if name not in ("epochs", "batch_size")}
    options |= {"resolutions": [8, 4], "betas": [0.9, 0.999]}
    tables = (
        table(pictures(12, 0), "img", {"_type": "Image"}, COLOURS),
        table([sound(seed=n) for n in range(12)], "audio", {"_type": "Audio", "sampling_rate": 64}, ("low", "high")),
    )
    sounds = (sound(), sound(bits=8), sound(bits=24, channels=2), sound(bits=32), sound(rate=8000))
    pngs = tuple(encoded(mode=mode) for mode in ("RGB", "P", "RGBA", "L", "LA", "1", "I;16"))
    jpegs = (encoded("JPEG", size=32), encoded("JPEG", size=32, progressive=True), encoded("JPEG", "L", size=32))
    webps = (encoded("WEBP", size=16), encoded("WEBP", "RGBA", size=16, lossless=True))
    others = tuple(encoded(kind) for kind in ("GIF", "TIFF", "BMP", "PPM"))
    held = ("open set", "stream set", "train on set")

    def images(kind: str, mutate: Mutate, seeds: tuple[bytes, ...]) -> list[Subject]:
        return [
            Subject(kind, "net", "cat.png", mutate, ("predict",), seeds),
            Subject(kind, "net", "cat.png", mutate, ("predict",), seeds),
            Subject(kind, "folder", "data/train/red/1.png", mutate, held, seeds),
        ]

    return [
        *(
            Subject("safetensors", name, "net/model.safetensors", formats.tensors, network, repair=repair_weights)
            for name in ("net", "fair", "gated", "tied")
        ),
        *(
            Subject("config", name, "net/config.json", config, uses, repair=fit_weights)
            for uses, names in ((network, ("net", "fair")), (network[:2], ("grey", "sound", "volume")))
            for name in names
        ),
        *(
            Subject("config", name, "net/config.json", design, network, repair=fit_weights)
            for name in ("gated", "tied")
        ),
        Subject(
            "transplant",
            "transplant",
            "net/config.json",
            formats.json_file(formats.TRANSPLANTS + formats.LADDER[:3]),
            network[:3],
        ),
        Subject("cascade", "cascade", "net/cascade.json", formats.json_file(), ("predict within a budget",)),
        Subject("cascade", "cascade", "net/cascade.json", formats.json_file(), ("predict", "export network")),
        Subject("manifest", "exported", "exported/manifest.json", formats.json_file(), deployed),
        *(
            Subject("onnx", "exported", f"exported/{name}.onnx", damaged, deployed, repair=repair_manifest)
            for name in ("level-8", "level-4", "resample")
        ),
        Subject("request", "server", "request.bin", requests.mutate, ("serve",), requests.seeds()),
        Subject("checkpoint", "begun", latest, formats.checkpoint, run),
        Subject("run", "begun", "run/run.json", formats.json_file(), run),
        Subject("run", "done", "run/run.json", formats.json_file(), ("evaluate run",)),
        Subject("log", "begun", "run/log.jsonl", formats.json_lines, run),
        Subject("recipe", "recipe", "recipe.toml", formats.recipe(options), ("read recipe", "train")),
        Subject(
            "evaluation", "done", "run/evaluation.json", formats.json_file(), ("evaluate run",), (b'{"results": []}',)
        ),
        Subject("evaluation", "done", "run/evaluation.json", formats.json_file(), ("export run",), (_evaluation(),)),
        Subject("evaluation", "done", "run/evaluation.png", formats.picture, ("evaluate run",), pngs),
        Subject(
            "result",
            "documents",
            "results/cifar10/resnet18-seed0.json",
            formats.json_file(),
            ("read results", "figures"),
        ),
        Subject("job", "documents", "job.json", formats.json_file(), ("read job",)),
        Subject("benchmark", "documents", "benchmark.json", formats.json_file(), ("read benchmark",)),
        Subject(
            "parquet",
            "parquet",
            "data/train-00000-of-00001.parquet",
            formats.parquet,
            (*held, "evaluate network"),
            tables[:1],
        ),
        Subject("parquet", "sounds", "data/train-00000-of-00001.parquet", formats.parquet, held, tables[1:]),
        Subject(
            "npz", "npz", "data/set.npz", formats.npz, held, (arrays((8, 8)), arrays((8, 8, 8)), arrays((8, 8, 3)))
        ),
        Subject("archive", "archive", "data/tiny-imagenet-200.zip", archives.published_zip, held),
        Subject("tar", "tar", "data/train-0000.tar", archives.tar, held),
        Subject("npy", "volume", "volume.npy", formats.npy, ("predict",)),
        Subject("wav", "sound", "clip.wav", formats.wav, ("predict",), sounds),
        Subject("wav", "sounds", "data/train/red/1.wav", formats.wav, held, sounds),
        *images("png", formats.png, pngs),
        *images("jpeg", formats.picture, jpegs),
        *images("webp", formats.picture, webps),
        *images("other images", formats.picture, others),
        Subject("hub", "hub", "answers.json", formats.json_file(places.HEADERS), hub),
        *(
            Subject("hub", "hub", f"repo/{name}", mutate, hub[:3], repair=places.repair_repository)
            for name, mutate in (("config.json", config), ("model.safetensors", formats.tensors))
        ),
        Subject("hub", "hub", "repo/cascade.json", formats.json_file(), hub[:3], repair=places.repair_repository),
        *(
            Subject("card", "published", f"published/{name}", formats.json_file(), ("write card", "publish"))
            for name in ("config.json", "evaluation.json", "evaluation.json", "run.json", "cascade.json")
        ),
        Subject("card", "published", "published/recipe.toml", formats.recipe(options), ("write card", "publish")),
        Subject("card", "published", "published/evaluation.png", formats.png, ("write card",), pngs),
        *(
            Subject("store", template, "listing.json", formats.json_file(places.FAILURES), stored)
            for template in ("stored", "stored tars")
        ),
        Subject(
            "store",
            "stored",
            "bucket/train-00000-of-00001.parquet",
            formats.parquet,
            stored,
            repair=places.write_listing,
        ),
        Subject("store", "stored tars", "bucket/train-0000.tar", archives.tar, stored, repair=places.write_listing),
        Subject("names", "folder", "", formats.picture, (*held, "predict all", "evaluate network")),
        Subject("names", "sounds", "", formats.picture, (*held, "predict all")),
    ]
