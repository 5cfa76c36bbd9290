"""Publishing a network on the Hugging Face hub: which files go there, what they tell, and one commit for all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from arrn.deploy.calibration import CASCADE
from arrn.deploy.evaluated import FILES as EVALUATIONS
from arrn.deploy.evaluated import find_evaluation
from arrn.deploy.model_card import MADE_BY, UNKNOWN, CardFacts, as_license, dataset_name, write_card
from arrn.errors import ArrnError, needs
from arrn.hub import HubAddress, hub_api, hub_errors, quietly
from arrn.metadata import Metadata
from arrn.model_folder import CONFIG, WEIGHTS, check_weights, checksum_in, find_weights, read_config
from arrn.models import registry
from arrn.nn import ARRN, count_parameters, multiply_adds_of_noise
from arrn.nn.network import as_network, channels_of
from arrn.reading import read_bytes, read_json, read_toml
from arrn.runs import load_network
from arrn.runs.run_folder import RECIPE_FILE
from arrn.runs.settings import read_settings
from arrn.saving import save

CARD = "README.md"
FIGURES = ("evaluation.png", "accuracy.png")
"""Where a folder's figure is looked for."""

_Content = TypeVar("_Content")
_PNG = b"\x89PNG\r\n\x1a\n"
_PRIVATE = ("skipped_samples", "remarks", "mistakes")
"""What evaluations tell of files on the owner's machine."""


def push_to_hub(
    model: nn.Module | str | os.PathLike[str],
    address: str,
    *,
    license: str = UNKNOWN,
    private: bool = False,
    token: str | None = None,
    message: str | None = None,
    metadata: Metadata | None = None,
    figure: str | os.PathLike[str] | None = None,
    imports: tuple[str, ...] = (),
) -> str:
    """Publishes a network on the Hugging Face hub, with a model card written from what its folder holds.

    One commit holds model.safetensors, config.json, README.md (the card), and if the folder has them recipe.toml,
    the accuracies, the cascade's thresholds and the figure. Nothing else is uploaded; names of files on this machine
    are left out. A card that the repository has already is replaced.

    Args:
        model: a network; or the folder of a finished run, or a folder that `arrn.save` wrote. The card says more about
            the network of a folder.
        address: the repository, OWNER/NAME or hf://OWNER/NAME. The repository is made if it does not exist.
        license: the license of the weights, by the hub's name for the license, such as ``"mit"``.
        private: whether a new repository is private.
        token: the token of the hub; by default the variable ``HF_TOKEN``, or the token that ``hf auth login`` stored.
        message: the message of the commit.
        metadata: the metadata of a network, as `arrn.save` takes them; a folder holds its own.
        figure: a PNG file for the card; by default evaluation.png or accuracy.png in the folder.
        imports: modules of your own that build networks, as `arrn.load` takes them.

    Returns:
        The address with the commit, which `arrn.load` takes.

    Raises:
        ArrnError: for a folder without a finished network, a malformed address or license name, a missing token, a
            token without permission, or a hub that cannot be reached.

    >>> import arrn
    >>> arrn.push_to_hub("runs/birds", "birds")
    Traceback (most recent call last):
    arrn.errors.ArrnError: 'birds' is no address: it should be hf://OWNER/NAME or hf://OWNER/NAME@REVISION
    """
    place = HubAddress.parse(address)
    if place.revision is not None:
        raise ArrnError(f"{address!r:.200} names a revision: networks are published to OWNER/NAME, on its branch main")
    as_license(license)
    with registry.importing(imports):
        if isinstance(model, nn.Module):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "network"
                save(model, folder, metadata)
                return _publish(folder, place, license, private, token, message, figure)
        if metadata is not None:
            raise ArrnError("metadata is for a network, and a folder holds its own metadata: leave out metadata")
        return _publish(Path(model), place, license, private, token, message, figure)


def collect(
    folder: Path, place: HubAddress, license: str = UNKNOWN, figure: str | os.PathLike[str] | None = None
) -> dict[str, bytes | Path]:
    """The files of a network's repository by name: their content, or where it lies.

    Args:
        folder: a finished run, or a folder that `arrn.save` wrote.
        place: where it goes.
        license: as `push_to_hub` takes it.
        figure: as `push_to_hub` takes it.

    Raises:
        ArrnError: for a folder without a finished network, and a figure that is no PNG file.
    """
    model, metadata, _ = load_network(folder, torch.device("cpu"))
    config = read_config(folder)
    checksum = checksum_in(config)
    if checksum is None:
        raise ArrnError(f"{folder}/{CONFIG} names no checksum of the weights: load the network and save it again")
    weights = find_weights(folder, checksum)
    check_weights(weights, checksum)
    files: dict[str, bytes | Path] = {CONFIG: _json(config), WEIGHTS: weights}
    recipe: Mapping[str, Any] = {}
    if (folder / RECIPE_FILE).exists():
        recipe = _read(folder / RECIPE_FILE, read_toml)
        files[RECIPE_FILE] = _read(folder / RECIPE_FILE, read_bytes)
    evaluated = find_evaluation(folder)
    if evaluated is not None:
        files[evaluated.file] = _public(folder / evaluated.file)
    if (folder / CASCADE).exists():
        files[CASCADE] = _public(folder / CASCADE)
    drawn = _figure(folder, figure)
    if drawn is not None:
        files[FIGURES[0]] = drawn
    settings = read_settings(folder)
    grids = as_network(model).grids
    told = evaluated.dataset if evaluated is not None and settings is None else None
    named = config.get("model")
    facts = CardFacts(
        address=place.repository,
        model=str(named.get("name", "network")) if isinstance(named, dict) else type(model).__name__,
        license=license,
        metadata=metadata,
        grids=grids,
        costs=_costs(model, channels_of(model)),
        parameters=count_parameters(model),
        adapts=as_network(model).adapts,
        dataset=told if settings is None else settings.dataset,
        seed=None if settings is None else settings.seed,
        recipe=recipe,
        evaluated=evaluated,
        figure=None if drawn is None else FIGURES[0],
    )
    files[CARD] = write_card(facts).encode()
    return files


def _publish(
    folder: Path,
    place: HubAddress,
    license: str,
    private: bool,
    token: str | None,
    message: str | None,
    figure: str | os.PathLike[str] | None,
) -> str:
    files = collect(folder, place, license, figure)
    _check_token(token)
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    api = hub_api(token)
    with hub_errors(place, "write"), quietly():
        api.create_repo(place.repository, private=private or None, exist_ok=True)
        there = set(api.list_repo_files(place.repository))
        # Numbers of another network must not stay beside this one.
        stale = sorted((there & {*EVALUATIONS, CASCADE, RECIPE_FILE, FIGURES[0]}) - set(files))
        commit = api.create_commit(
            place.repository,
            [
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *(CommitOperationDelete(name) for name in stale),
            ],
            commit_message=message or f"A network of {MADE_BY}",
        )
    return str(place.at(commit.oid))


def _check_token(token: str | None) -> None:
    with needs("huggingface_hub", "publishing on the hub", "hub"):
        from huggingface_hub import get_token

    if not (token or get_token()):
        raise ArrnError("publishing needs a token of the hub: log in with `hf auth login`, or set HF_TOKEN")


def _costs(model: nn.Module, channels: int | None) -> list[int | None]:
    """Multiply-adds of one input at each level, highest first."""
    found: list[int | None] = []
    for grid in as_network(model).grids:
        level = model.at_resolution(grid) if isinstance(model, ARRN) else model
        try:
            found.append(None if channels is None else multiply_adds_of_noise(level, (1, channels, *grid)))
        except RuntimeError:  # a network of the user's own whose course depends on the data
            found.append(None)
    return found


def _figure(folder: Path, given: str | os.PathLike[str] | None) -> bytes | None:
    there = (Path(given),) if given is not None else tuple(folder / name for name in FIGURES)
    path = next((path for path in there if given is not None or path.is_file()), None)
    if path is None:
        return None
    content = _read(path, read_bytes)
    if not content.startswith(_PNG):
        raise ArrnError(f"the figure {path} is not a PNG file")
    return content


def _public(path: Path) -> bytes:
    """A document of numbers without what it tells of the owner's files."""
    document = _read(path, read_json)
    if not isinstance(document, dict):
        raise ArrnError(f"{path} should hold a JSON object: remove the file, or write it again")
    kept = {name: value for name, value in document.items() if name not in _PRIVATE}
    if isinstance(kept.get("dataset"), str):
        kept["dataset"] = dataset_name(kept["dataset"])
    return _json(kept)


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _read(path: Path, read: Callable[[Path], _Content]) -> _Content:
    try:
        return read(path)
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from None
