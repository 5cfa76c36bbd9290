"""The folder that `arrn web` writes: what is in it, what is refused, where the runtime comes from, how it is served."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import arrn
from arrn.deploy.export import Exported
from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.runtime import read_manifest
from arrn.testing import awaken_norms
from browsers import running
from commands import Command
from pictures import encoded, picture

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

import torch

from arrn.deploy.export import export_network
from arrn.web import browser_runtime, build_site, site
from arrn.web.browser_runtime import BACKENDS, NpmPackage, fetch_package
from arrn.web.site_server import open_server

PAGE = Path(arrn.__file__).parent / "web" / "page"


def saved(folder: Path, **options: Any) -> Path:
    """A small ARRN that behaves like a trained one."""
    torch.manual_seed(0)
    defaults = {"sizes": (9, 4), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 3}
    model = arrn.create_model("arrn", **defaults | options)
    awaken_norms(model, torch.randn(4, model.in_channels, *model.grids[0]))
    arrn.save(model, folder, Metadata(mean=(0.5,) * model.in_channels, std=(0.2,) * model.in_channels))
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("network") / "saved")


@pytest.fixture(scope="module")
def exported(network: Path) -> Path:
    return export_network(network, network.with_name("export")).folder


@pytest.fixture
def quick(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network's export is that of the module's own: exports take seconds."""
    found = Exported(exported, read_manifest(exported), ())
    monkeypatch.setattr(site, "export_network", lambda *arguments, **options: found)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of the runtime's names."""
    folder = tmp_path_factory.mktemp("runtime")
    for names in BACKENDS.values():
        for name in names:
            (folder / name).write_bytes(b"/*!\n * ONNX Runtime Web v9.8.7\n */")
    return folder


@pytest.mark.usefixtures("quick")
def test_a_site_holds_the_page_the_network_and_the_runtime(network: Path, runtime: Path, tmp_path: Path) -> None:
    built = build_site(network, tmp_path / "site", runtime=runtime)
    there = {path.relative_to(built.folder).as_posix() for path in built.folder.rglob("*") if path.is_file()}
    document = json.loads((built.folder / "site.json").read_text())
    assert there == set(document["content"])
    assert {path.name for path in PAGE.iterdir()} <= there
    assert (built.folder / "network.onnx").read_bytes() == (network.with_name("export") / "any-size.onnx").read_bytes()
    assert document["grids"] == [[9, 9], [4, 4]]
    assert document["costs"] == sorted(document["costs"], reverse=True)
    assert document["classes"] is None
    assert [sample["name"] for sample in document["samples"]][:3] == ["airplane", "automobile", "bird"]
    assert document["runtime"] == {"version": "9.8.7", "bytes": {"wasm": 68, "webgpu": 68}}
    assert built.bytes == sum((built.folder / name).stat().st_size for name in there if "runtime/" not in name)
    assert built.difference < 1e-4
    # An earlier site is replaced, without the graphics card this time.
    again = build_site(network, tmp_path / "site", runtime=runtime, webgpu=False)
    assert {path.name for path in (again.folder / "runtime").iterdir()} == {*BACKENDS["wasm"].values(), "LICENSE.txt"}


def test_strangers_text_is_never_markup() -> None:
    scripts = {path.name: path.read_text() for path in PAGE.glob("*.js")}
    assert scripts
    for name, text in scripts.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", text), name
        assert "//" not in re.sub(r"(^|\s)//\s.*|http://www\.w3\.org/2000/svg", "", text), f"{name} names an address"
    page = (PAGE / "index.html").read_text()
    assert "default-src 'none'; script-src 'self' 'wasm-unsafe-eval';" in page
    assert not re.search(r"\bstyle=|\bon\w+=|<script(?! type=\"module\" src=)", page)


@pytest.mark.usefixtures("quick")
def test_samples_may_be_ones_own(network: Path, runtime: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "B small.png").write_bytes(encoded(picture(20, 30)))
    (pictures / "a large.JPG").write_bytes(encoded(picture(700, 900), "JPEG"))
    (pictures / "notes.txt").write_text("no picture")
    built = build_site(network, tmp_path / "site", runtime=runtime, samples=pictures)
    shown = json.loads((built.folder / "site.json").read_text())["samples"]
    assert shown == [{"file": "samples/00.png", "name": "B small"}, {"file": "samples/01.jpg", "name": "a large"}]
    with Image.open(built.folder / "samples/01.jpg") as large:
        assert max(large.size) == 512


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--samples", "nowhere"], "--samples nowhere is not a folder"),
        (["--samples", "empty"], "takes a folder with 1 to 24 pictures, and empty holds 0"),
        (["--samples", "broken"], "broken/a.png: not an image of a known format"),
        (
            ["--runtime", "empty"],
            "--runtime empty holds no ort.wasm.bundle.min.mjs: give a folder",
        ),
        (["--policy", "best"], "unknown policy 'best'"),
        (
            ["--out", "mine"],
            "mine holds other files, such as 'diary.txt': --out takes a new folder",
        ),
        (["--out", "mine/diary.txt"], "is a file: --out takes the name of a new folder"),
        (["--serve", "--port", "99999"], "--port must be a whole number from 0 to 65,535, got 99999"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_line(
    network: Path,
    runtime: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in (("mine", "diary.txt"), ("broken", "a.png"), ("empty", "b.txt")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("dear diary")
    given = {"--out": "site", "--runtime": str(runtime)}
    names = [option for option in options if option.startswith("--")]
    rest = [part for name, value in given.items() if name not in names for part in (name, value)]
    assert words in Command(capsys, monkeypatch)("web", network, *rest, *options, code=2).err
    assert (tmp_path / "mine/diary.txt").read_text() == "dear diary"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".site")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ndim": 1, "sizes": (60, 30), "in_channels": 1}, "this network takes signals of 1 axis and 1 channel:"),
        ({"in_channels": 2}, "this network takes signals of 2 axes and 2 channels"),
        ({"num_classes": 0}, "this network gives features: train one with classes"),
        ({"kernel": "fair"}, "this network has another kernel"),
    ],
)
@pytest.mark.slow
def test_networks_that_the_page_cannot_run_are_refused(
    runtime: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ArrnError, match=words):
        build_site(saved(tmp_path / "saved", **options), tmp_path / "site", runtime=runtime)
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
def test_a_network_of_one_resolution_has_one_level(runtime: Path, tmp_path: Path) -> None:
    model = arrn.create_model("mobilenet_v3_small", num_classes=4)
    arrn.save(model, tmp_path / "saved", Metadata(mean=(0.5,) * 3, std=(0.2,) * 3))
    built = build_site(tmp_path / "saved", tmp_path / "site", runtime=runtime)
    document = json.loads((built.folder / "site.json").read_text())
    assert len(document["grids"]) == len(document["costs"]) == 1


def archive(package: NpmPackage, contents: Mapping[str, bytes]) -> tuple[NpmPackage, bytes]:
    """A package of npm with these files, and its name with the checksum that it has."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as file:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    digest = base64.b64encode(hashlib.sha512(written.getvalue()).digest()).decode()
    return NpmPackage(package.name, package.version, f"sha512-{digest}"), written.getvalue()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named npm that copies `archive.tgz`, notes how it was called, and fails where there is none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n'
        f"[ -f {folder}/archive.tgz ] || {{ echo 'npm error code E404' >&2; echo 'npm error 404 none' >&2; exit 1; }}\n"
        f'cp {folder}/archive.tgz "$4/$(echo "$2" | tr @ -).tgz"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_npm_is_asked_once_and_its_archive_is_compared(npm: Path) -> None:
    package, content = archive(NpmPackage("small", "1.2.3", ""), {"dist/a.js": b"one"})
    (npm / "archive.tgz").write_bytes(content)
    path = fetch_package(package)
    assert fetch_package(package) == path
    (call,) = (npm / "calls").read_text().splitlines()
    assert call.startswith("pack small@1.2.3 --pack-destination ")
    assert "--ignore-scripts" in call
    assert browser_runtime.read_member(path, "dist/a.js") == b"one"
    # An archive that was changed since is not used.
    path.write_bytes(content + b"more")
    with pytest.raises(ArrnError, match=r"is not small 1\.2\.3: its checksum is sha512-.{16}\.\.\., and should be"):
        fetch_package(package)


def test_an_archive_of_another_checksum_is_not_kept(npm: Path, tmp_path: Path) -> None:
    _, content = archive(NpmPackage("small", "1.2.3", ""), {"dist/a.js": b"one"})
    (npm / "archive.tgz").write_bytes(content)
    with pytest.raises(ArrnError, match="is not small"):
        fetch_package(NpmPackage("small", "1.2.3", "sha512-AAAA"))
    assert not list((tmp_path / "cache/arrn").iterdir())


def test_without_npm_or_its_package_one_sentence_says_what_to_do(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = NpmPackage("small", "1.2.3", "sha512-AAAA")
    with pytest.raises(ArrnError, match=r"npm cannot download small@1\.2\.3: 404 none; try again, or give a folder"):
        fetch_package(package)
    monkeypatch.setenv("PATH", str(npm / "nothing"))
    with pytest.raises(
        ArrnError, match=r"is downloaded by npm, which is not installed: install Node\.js, or give a folder"
    ):
        fetch_package(package)


@pytest.mark.usefixtures("quick")
def test_the_server_sends_headers_that_keep_the_page_to_itself(network: Path, runtime: Path, tmp_path: Path) -> None:
    built = build_site(network, tmp_path / "site", runtime=runtime)
    with running(open_server(built.folder)) as address:
        kinds = {"": "text/html", "app.js": "text/javascript", "network.onnx": "application/octet-stream"}
        kinds |= {"site.json": "application/json", "runtime/ort-wasm-simd-threaded.wasm": "application/wasm"}
        for path, kind in kinds.items():
            with urllib.request.urlopen(address + path) as answer:
                assert answer.headers["Content-Type"].startswith(kind)
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
                assert answer.headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("samples/", "../saved/config.json", "%2e%2e/saved/config.json"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address + path)
