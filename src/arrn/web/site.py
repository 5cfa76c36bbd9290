"""`build_site`: from the folder of a saved network to one that any web server can hand out, and that needs no other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from arrn import __version__
from arrn.deploy.export import Exported, export_network
from arrn.errors import ArrnError, RunError
from arrn.nn.network import Policy
from arrn.reading import read_document
from arrn.runtime.manifest import Manifest
from arrn.runtime.onnx_engine import read_checked
from arrn.signal.grid import format_grid
from arrn.web.browser_runtime import BACKENDS, CopiedRuntime, copy_runtime
from arrn.web.site_samples import read_samples, shipped_samples
from arrn.writing import new_folder, write_atomically

SITE, FORMAT, FORMAT_VERSION = "site.json", "arrn-site", 1
"""The file that tells the page of its network."""

MOST_PIXELS = 50_000_000
"""Of a picture that a visitor chooses. The page reads all of them at once, four bytes each."""

_PALETTE = "palette.css"
_NETWORK, _RESAMPLING = "network.onnx", "resample.onnx"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Site:
    """The result of building a site.

    Attributes:
        folder: the site's folder.
        manifest: the description of the network in the folder.
        difference: the largest measured difference between the answers of this network and PyTorch's.
        bytes: the size of all files without the runtime.
        runtime: the runtime in the folder.
    """

    folder: Path
    manifest: Manifest
    difference: float
    bytes: int
    runtime: CopiedRuntime


def build_site(
    source: Path,
    out: Path,
    *,
    runtime: Path | None = None,
    samples: Path | None = None,
    policy: Policy | None = None,
    webgpu: bool = True,
    say: Say = lambda text: None,
) -> Site:
    """Writes a folder with a page that runs a network in the browser, on pictures of any size.

    Args:
        source: the folder of a finished run, or any folder that `arrn.save` wrote.
        out: the new folder. A folder that holds an earlier site is replaced.
        runtime: a folder with onnxruntime-web; None downloads the package by npm.
        samples: a folder of pictures to choose from; None is one picture of each class of the shipped CIFAR-10 sample.
        policy: the level for sizes between two grids: "exact" or "cheap". None is the network's own policy.
        webgpu: whether visitors may run the network on their graphics card.
        say: told each step, in a line.

    Raises:
        ArrnError: for a network that the page cannot run, a folder with other files, or a missing runtime.
    """
    _check_place(out)
    shown = shipped_samples() if samples is None else read_samples(samples)
    with new_folder(out) as staging:
        copied = copy_runtime(runtime, staging / "runtime", [*BACKENDS] if webgpu else ["wasm"], say)
        with tempfile.TemporaryDirectory() as exports:
            exported = export_network(source, Path(exports) / "export", "onnx", policy=policy)
            difference = _copy_network(exported, staging)
        manifest = exported.manifest
        _copy_page(staging)
        described = [sample.write(staging, number) for number, sample in enumerate(shown)]
        size = sum(path.stat().st_size for path in _all_files(staging) if path.parent.name != "runtime")
        document = _describe(manifest, staging, described, copied)
        content = [*(str(path.relative_to(staging).as_posix()) for path in _all_files(staging)), SITE]
        written = json.dumps({**document, "content": sorted(content)}, indent=1).encode()
        write_atomically(staging / SITE, written)
    return Site(out, manifest, difference, size + len(written), copied)


def _check_place(out: Path) -> None:
    """Refuses a place that holds anything but an earlier site."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ArrnError(f"{out} is a file: --out takes the name of a new folder")
    there = {path.relative_to(out).as_posix() for path in _all_files(out)}
    known: set[object] = set()
    if SITE in there:
        content = read_document(out / SITE, FORMAT, FORMAT_VERSION).get("content")
        known = set(map(str, content)) if isinstance(content, list) else set()
    if others := there - known:
        raise ArrnError(
            f"{out} holds other files, such as {min(others)!r}: --out takes a new folder, or an earlier site"
        )


def _all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _copy_network(exported: Exported, staging: Path) -> float:
    """The one file that answers at any size, and the one that resamples; its largest difference from PyTorch."""
    manifest = exported.manifest
    if exported.refused:
        raise RunError(f"the exported network does not agree with PyTorch: {'; '.join(exported.refused)}")
    if manifest.ndim != 2 or manifest.channels not in (1, 3):
        axes = "axis" if manifest.ndim == 1 else "axes"
        channels = "channel" if manifest.channels == 1 else "channels"
        raise ArrnError(
            f"the page shows grey or RGB pictures, and this network takes signals of {manifest.ndim} {axes} and "
            f"{manifest.channels} {channels}: take a network for such pictures"
        )
    if manifest.output != "probabilities":
        raise ArrnError("the page shows classes, and this network returns features: train a network with classes")
    if not manifest.any_size or manifest.resampling is None:
        raise ArrnError(
            "the page can resample with the perfect kernel only, and this network has another kernel: take a network "
            "with the perfect kernel"
        )
    network = manifest.all_levels or manifest.levels[0].exported
    write_atomically(staging / _NETWORK, read_checked(exported.folder, network))
    write_atomically(staging / _RESAMPLING, read_checked(exported.folder, manifest.resampling))
    return network.difference or 0.0


def _copy_page(staging: Path) -> None:
    page = files("arrn.web").joinpath("page")
    for part in page.iterdir():
        write_atomically(staging / part.name, part.read_bytes())
    write_atomically(staging / _PALETTE, files("arrn.pages").joinpath(_PALETTE).read_bytes())


def _describe(
    manifest: Manifest, staging: Path, samples: list[dict[str, Any]], runtime: CopiedRuntime
) -> dict[str, Any]:
    """What the page needs to know."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "arrn_version": __version__,
        "model": manifest.model,
        "files": {"network": _NETWORK, "resampling": _RESAMPLING},
        "bytes": sum((staging / name).stat().st_size for name in (_NETWORK, _RESAMPLING)),
        "parameters": manifest.facts["network"]["parameters"],
        "channels": manifest.channels,
        "classes": None if manifest.class_names is None else list(manifest.class_names),
        "grids": [list(grid) for grid in manifest.grids],
        "costs": [level.multiply_adds for level in manifest.levels],
        "most_costs": [manifest.facts["most_multiply_adds"][format_grid(level.grid)] for level in manifest.levels],
        "policy": manifest.policy,
        "aspect": manifest.aspect,
        "accuracy": _accuracies(manifest),
        "samples": samples,
        "most_pixels": MOST_PIXELS,
        "runtime": {"version": runtime.version, "bytes": runtime.bytes},
    }


def _accuracies(manifest: Manifest) -> dict[str, Any] | None:
    """What was measured of the network at each resolution, by its policy."""
    known = manifest.facts.get("accuracy")
    if known is None:
        return None
    results = [
        {name: result[name] for name in ("resolution", "accuracy", "total")}
        for result in known["results"]
        if result["policy"] in (None, manifest.policy)
    ]
    return {"dataset": known["dataset"], "results": results}
