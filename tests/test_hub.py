"""Networks on the hub: what is downloaded and what never is, commits, checksums, and each thing that can go wrong."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("huggingface_hub")

import arrn
from arrn.deploy.calibration import CASCADE
from arrn.deploy.evaluated import FILES as EVALUATIONS
from arrn.hub import FILES, OPTIONAL, HubAddress, hub_address, hub_errors, locate
from arrn.metadata import Metadata
from arrn.model_folder import CONFIG, WEIGHTS
from hub_server import Hub, Repository, hub_server, use_hub
from saved_networks import small


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a saved network."""
    folder = tmp_path_factory.mktemp("saved") / "network"
    torch.manual_seed(0)
    model = small()
    model.metadata = Metadata((0.5,) * 3, (0.25,) * 3, class_names=("cat", "dog", "bird"))
    arrn.save(model, folder)
    return {name: (folder / name).read_bytes() for name in (CONFIG, WEIGHTS)}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as running:
        use_hub(running, tmp_path / "home", monkeypatch, token=None)
        yield running


@pytest.fixture
def repository(hub: Hub, files: dict[str, bytes]) -> Repository:
    return hub.add("me/birds", dict(files))


def test_a_network_is_loaded_and_names_its_commit(hub: Hub, repository: Repository, tmp_path: Path) -> None:
    model = arrn.load("hf://me/birds")
    assert model.hub_address == f"hf://me/birds@{repository.refs['main']}"
    for name, content in repository.files.items():
        (tmp_path / name).write_bytes(content)
    beside = arrn.load(tmp_path)
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(model(x), beside(x))
    assert not hasattr(beside, "hub_address")
    assert arrn.create_model("arrn", pretrained="hf://me/birds").metadata.class_names == ("cat", "dog", "bird")
    pictures = [np.zeros((5, 7, 3), np.uint8), np.full((20, 9, 3), 200, np.uint8)]
    found, expected = (arrn.Predictor(place, device="cpu")(pictures, top=3) for place in ("hf://me/birds", tmp_path))
    assert [answer.top for answer in found] == [answer.top for answer in expected]


def test_a_commit_that_is_here_needs_no_network(hub: Hub, repository: Repository) -> None:
    pinned = arrn.load("hf://me/birds").hub_address
    asked = len(hub.asked)
    assert arrn.load(pinned).hub_address == pinned
    assert len(hub.asked) == asked


def test_revisions_are_branches_tags_and_commits(hub: Hub, repository: Repository, files: dict[str, bytes]) -> None:
    old = repository.refs["main"]
    repository.refs["v1"] = old
    config = json.loads(files[CONFIG])
    config["inputs"]["class_names"] = ["x", "y", "z"]
    new = repository.commit(files | {CONFIG: json.dumps(config).encode()})
    for revision, commit in (("", new), ("@main", new), ("@v1", old), (f"@{old}", old), (f"@{old[:9]}", old)):
        model = arrn.load(f"hf://me/birds{revision}")
        assert model.hub_address == f"hf://me/birds@{commit}"
        assert model.metadata.class_names == (("x", "y", "z") if commit == new else ("cat", "dog", "bird"))


def test_nothing_but_known_files_is_downloaded(hub: Hub, files: dict[str, bytes]) -> None:
    others = {"model.py": b"boom", "pytorch_model.bin": b"\x80\x02", "README.md": b"x", "run.json": b"{}"}
    hub.add("me/birds", files | others | {"evaluation.json": b"{}", "more/config.json": b"{}"})
    folder = locate("hf://me/birds")
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, "evaluation.json", WEIGHTS]
    sent = [path for path in hub.asked if "/resolve/" in path]
    assert not [path for path in sent if path.endswith((".py", ".bin", ".md", "run.json", "more/config.json"))]


def test_what_is_read_beside_a_network_is_downloaded_too() -> None:
    assert set(OPTIONAL) == {*EVALUATIONS, CASCADE}
    assert (CONFIG, WEIGHTS, *OPTIONAL) == FILES


def told(address: str = "hf://me/birds") -> str:
    """The one sentence that says why there is no network."""
    with pytest.raises(arrn.ArrnError) as error:
        arrn.load(address)
    words = str(error.value)
    assert "\n" not in words
    assert len(words) < 500
    return words


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://me", "hf://me/a/b", "hf://me/birds@", "hf://../birds", "hf://me/..", "hf://me/bi rds", "hf://-a/b",
     "hf://me/birds@../x", "hf://me/birds@-x", "hf://me/a--b", "hf://me/birds@a\n"],
)  # fmt: skip
def test_what_is_no_address_is_told(text: str) -> None:
    assert re.search("is no address: it should be hf://OWNER/NAME or hf://OWNER/NAME@REVISION", told(text))
    assert HubAddress.parse("me/birds@refs/pr/1") == HubAddress("me/birds", "refs/pr/1")


def test_what_is_not_there_is_told(hub: Hub, repository: Repository) -> None:
    assert told("hf://me/none").startswith(
        "there is no repository hf://me/none, or it is private and no token was sent"
    )
    assert told("hf://me/birds@v9") == "hf://me/birds has no revision 'v9'"


def test_a_private_repository_opens_to_its_token_alone(
    hub: Hub, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("me/secret", files, private=True)
    assert "or it is private and no token was sent: check the name, or log in" in told("hf://me/secret")
    use_hub(hub, tmp_path / "home", monkeypatch)
    assert arrn.load("hf://me/secret").hub_address.startswith("hf://me/secret@")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the hub does not take the token" in told("hf://me/secret")


def test_without_a_network_it_says_which_commit_is_here(
    hub: Hub, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert re.fullmatch(r"cannot reach the hub at http://127.0.0.1:9 for hf://me/birds \(.*\)", told())
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    pinned = hub_address(locate("hf://me/birds"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert told().endswith(f"; {pinned} was downloaded before and needs no network")
    assert arrn.load(pinned).hub_address == pinned


def test_a_hub_that_is_ill_is_told(hub: Hub, repository: Repository) -> None:
    hub.refuses = 500
    assert "the hub refused to read hf://me/birds with status 500: come back later" in told()
    hub.refuses = 403
    assert "the token may not read hf://me/birds (come back later)" in told()


@pytest.mark.parametrize(
    ("missing", "instead", "words"),
    [
        (WEIGHTS, {}, "holds no model.safetensors: it is not a network that arrn.save wrote"),
        (WEIGHTS, {"pytorch_model.bin": b"\x80\x02"}, "'pytorch_model.bin', which may be a pickle that runs any code"),
        (CONFIG, {}, "holds no config.json"),
        (CONFIG, {CONFIG: b" " * 2**24 + b"{}"}, "config.json has 16,777,218 bytes, and should have 16,777,216"),
    ],
)
def test_repositories_without_a_network_are_told_before_anything_is_downloaded(
    hub: Hub, files: dict[str, bytes], missing: str, instead: dict[str, bytes], words: str
) -> None:
    hub.add("me/birds", {name: content for name, content in files.items() if name != missing} | instead)
    assert words in told()
    assert not [path for path in hub.asked if "/resolve/" in path]


def test_other_kinds_of_repositories_are_told(hub: Hub, files: dict[str, bytes]) -> None:
    hub.add("me/birds", files | {CONFIG: b'{"model_type": "bert"}'})
    assert 'it should say "format": "arrn"' in told()
    config = json.loads(files[CONFIG])
    del config["weights_sha256"]
    hub.add("me/birds", files | {CONFIG: json.dumps(config).encode()})
    assert "has no weights_sha256" in told()


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_file_that_changed_on_its_way_is_refused_and_does_not_stay(
    hub: Hub, repository: Repository, name: str
) -> None:
    repository.served[name] = flipped(repository.files[name])
    assert f"{name} of hf://me/birds@{repository.refs['main']} is not what the hub lists" in told()
    assert name in told(f"hf://me/birds@{repository.refs['main']}")  # it is not taken from the cache
    repository.served.clear()
    assert arrn.load("hf://me/birds")


def test_weights_of_another_network_than_the_config_are_refused(hub: Hub, files: dict[str, bytes]) -> None:
    hub.add("me/birds", files | {WEIGHTS: flipped(files[WEIGHTS])})
    assert "is not that of its config.json" in told()


def test_weights_that_changed_in_the_cache_are_refused(hub: Hub, repository: Repository) -> None:
    folder = locate("hf://me/birds")
    path = (folder / WEIGHTS).resolve()
    os.chmod(path, 0o644)
    path.write_bytes(flipped(path.read_bytes()))
    assert "is damaged" in told(f"hf://me/birds@{repository.refs['main']}")


@pytest.mark.parametrize("error", [KeyError("files"), TypeError("no list\nat all"), AttributeError("x"), IndexError()])
def test_odd_answers_that_break_the_library_are_told_in_a_sentence(error: Exception) -> None:
    said = "cannot write hf://me/birds: the hub answers what huggingface_hub does not know"
    with pytest.raises(arrn.ArrnError, match=said) as caught, hub_errors(HubAddress.parse("me/birds"), "write"):
        raise error
    assert "\n" not in str(caught.value)
