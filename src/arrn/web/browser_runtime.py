"""ONNX Runtime Web: npm brings the version named here; its checksum is compared, and the archive kept."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from arrn.data.published import default_root
from arrn.errors import ArrnError, first_line
from arrn.reading import read_bytes
from arrn.writing import rename, write_atomically, writing_to

_LARGEST = 2**28  # bytes of a package, or of a file in it: 256 MiB
_SECONDS = 600  # for npm


@dataclass(frozen=True)
class NpmPackage:
    """A package of npm in one version.

    Attributes:
        name, version: as npm names it.
        integrity: of its archive, as npm writes it: "sha512-" and the checksum in base64.
    """

    name: str
    version: str
    integrity: str

    @property
    def archive(self) -> str:
        """What npm calls the archive."""
        return f"{self.name}-{self.version}.tgz"


ONNX_RUNTIME_WEB = NpmPackage(
    "onnxruntime-web",
    "1.30.0",
    "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
)

BACKENDS = {
    "wasm": {
        "ort.wasm.bundle.min.mjs": "ort.wasm.js",
        "ort-wasm-simd-threaded.wasm": "ort-wasm-simd-threaded.wasm",
    },
    "webgpu": {
        "ort.webgpu.bundle.min.mjs": "ort.webgpu.js",
        "ort-wasm-simd-threaded.asyncify.wasm": "ort-wasm-simd-threaded.asyncify.wasm",
    },
}
"""The files that each backend needs, and their names in a site. Some servers do not know that `.mjs` is JavaScript."""


@dataclass(frozen=True)
class CopiedRuntime:
    """The runtime in a site.

    Attributes:
        version: of ONNX Runtime Web.
        bytes: what a visitor loads, by backend.
    """

    version: str
    bytes: dict[str, int]


def fetch_package(package: NpmPackage, say: Callable[[str], None] = lambda text: None) -> Path:
    """The archive of a package, from the cache or by npm; its checksum is compared either way.

    Raises:
        ArrnError: without npm, where npm fails, and for an archive with another checksum.
    """
    path = default_root() / package.archive
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise ArrnError(
                f"{package.name} is downloaded by npm, which is not installed: install Node.js, or give a folder that "
                f"holds {package.name} {package.version} with --runtime FOLDER"
            )
        say(f"npm downloads {package.name} {package.version} to {path.parent}")
        with writing_to(path), tempfile.TemporaryDirectory(dir=_made(path.parent)) as folder:
            _pack(npm, package, Path(folder))
            found = Path(folder) / package.archive
            _check(found, package)
            rename(found, path)
    _check(path, package)
    return path


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _pack(npm: str, package: NpmPackage, folder: Path) -> None:
    wanted = f"{package.name}@{package.version}"
    command = [npm, "pack", wanted, "--pack-destination", str(folder), "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ArrnError(f"npm did not download {wanted} within {_SECONDS // 60} minutes") from None
    if done.returncode or not (folder / package.archive).is_file():
        # npm's first line is a code; the next one tells what was wrong.
        lines = [line.removeprefix("npm error ") for line in done.stderr.splitlines() if line.startswith("npm error ")]
        told = next((line for line in lines if not line.startswith("code ")), first_line(ValueError(done.stderr)))
        raise ArrnError(
            f"npm cannot download {wanted}: {told:.200}; try again, or give a folder that holds {wanted} with "
            "--runtime FOLDER"
        )


def _check(path: Path, package: NpmPackage) -> None:
    """Refuses an archive that is not what it should be, byte for byte."""
    found = f"sha512-{base64.b64encode(hashlib.sha512(read_bytes(path, _LARGEST)).digest()).decode()}"
    if found != package.integrity:
        raise ArrnError(
            f"{path} is not {package.name} {package.version}: its checksum is {found:.23}..., and should be "
            f"{package.integrity:.23}...; delete the file and try again"
        )


def read_member(archive: Path, name: str) -> bytes:
    """One file of a package, by its path in there, such as "dist/index.js"."""
    with tarfile.open(archive) as opened:
        file = opened.extractfile(f"package/{name}")
        if file is None:
            raise ArrnError(f"{archive} holds no file {name}")
        return file.read(_LARGEST)


def copy_runtime(
    given: Path | None, out: Path, backends: Sequence[str], say: Callable[[str], None] = lambda text: None
) -> CopiedRuntime:
    """Copies what a site needs of ONNX Runtime Web into a new folder.

    Args:
        given: a folder to take it from in place of npm: the package, its `dist`, or where it is installed.
        out: the new folder.
        backends: of `BACKENDS`.
        say: told what is done, a line each.

    Raises:
        ArrnError: as `fetch_package` does, and for a folder that lacks a file.
    """
    wanted = [(backend, name, new) for backend in backends for name, new in BACKENDS[backend].items()]
    if given is None:
        archive = fetch_package(ONNX_RUNTIME_WEB, say)
        contents = {name: read_member(archive, f"dist/{name}") for _, name, _ in wanted}
    else:
        contents = _read_folder(given, [name for _, name, _ in wanted])
    out.mkdir()
    for _, name, new in wanted:
        write_atomically(out / new, contents[name])
    write_atomically(out / "LICENSE.txt", files("arrn.web").joinpath("runtime_license.txt").read_bytes())
    version = re.search(rb"ONNX Runtime Web v(\d[\w.-]{0,40})", contents[wanted[0][1]][:500])
    return CopiedRuntime(
        version[1].decode() if version else "of unknown version",
        {backend: sum(len(contents[name]) for name in BACKENDS[backend]) for backend in backends},
    )


def _read_folder(given: Path, names: Sequence[str]) -> dict[str, bytes]:
    places = [given, given / "dist", given / "node_modules" / ONNX_RUNTIME_WEB.name / "dist"]
    place = next((place for place in places if (place / names[0]).is_file()), None)
    if place is None:
        raise ArrnError(
            f"--runtime {given} holds no {names[0]}: give a folder with {ONNX_RUNTIME_WEB.name} "
            f"{ONNX_RUNTIME_WEB.version}, or leave out --runtime, and npm downloads the package"
        )
    missing = [name for name in names if not (place / name).is_file()]
    if missing:
        raise ArrnError(
            f"{place} lacks {', '.join(missing)}: take a folder with {ONNX_RUNTIME_WEB.name} "
            f"{ONNX_RUNTIME_WEB.version}, or leave out the graphics card with --no-webgpu"
        )
    return {name: read_bytes(place / name, _LARGEST) for name in names}
