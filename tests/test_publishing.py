"""Publishing on the hub: what is uploaded, the card, what comes back from there, and each thing that can go wrong."""

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("huggingface_hub")

from huggingface_hub import ModelCard

import arrn
from arrn.deploy.model_card import markdown
from arrn.deploy.publishing import collect
from arrn.evaluation import report_from, write_report
from arrn.hub import HubAddress
from arrn.metadata import Metadata
from arrn.model_folder import WEIGHTS
from commands import Command
from hub_server import Hub, Repository, hub_server, use_hub
from saved_networks import small

# That is how huggingface_hub calls the HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAMES = ("cat", "<b>dog</b> | [x](http://y)", "bird\n---\nlicense: evil")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def write_evaluation(folder: Path, dataset: str = "/home/secret/My: birds") -> None:
    results = [
        {"resolution": size, "adapt": adapt, "policy": policy, "accuracy": size / 10, "total": 50}
        for size in (8, 5)
        for adapt in (True, False)
        for policy in ("exact", "cheap")
    ]
    facts = {"skipped_samples": ["/home/secret/a.png: bad"], "provenance": {"processor": "CPU", "torch": "2"}}
    document = {"model": "arrn", "dataset": dataset, "results": results, **facts}
    write_report(report_from(document), folder / "evaluation.json")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a run leaves it, and files in it that are nobody's business."""
    folder = tmp_path_factory.mktemp("saved") / "network"
    torch.manual_seed(0)
    arrn.save(small(), folder, Metadata((0.5,) * 3, (0.25,) * 3, class_names=NAMES))
    write_evaluation(folder)
    (folder / "recipe.toml").write_text('epochs = 3\noptimizer = "adam|w"\n')
    (folder / "evaluation.png").write_bytes(PNG)
    for name in ("notes.py", "other.pt", "log.jsonl", ".env"):
        (folder / name).write_text("secret")
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as running:
        use_hub(running, tmp_path / "home", monkeypatch)
        yield running


def test_what_is_published_comes_back_with_the_same_answers(hub: Hub, saved: Path) -> None:
    pinned = arrn.push_to_hub(saved, "me/birds", license="mit")
    repository = hub.repositories["me/birds"]
    assert pinned == f"hf://me/birds@{repository.refs['main']}"
    assert not repository.private
    uploaded = {"README.md", "config.json", "evaluation.json", "evaluation.png", WEIGHTS, "recipe.toml"}
    assert set(repository.files) - {".gitattributes"} == uploaded
    assert not [name for name, content in repository.files.items() if b"secret" in content]
    assert repository.files[WEIGHTS] == (saved / WEIGHTS).read_bytes()
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(arrn.load(pinned)(x), arrn.load(saved)(x))
    pictures = [np.zeros((5, 7, 3), np.uint8), np.full((20, 9, 3), 200, np.uint8)]
    found, expected = (arrn.Predictor(place, device="cpu")(pictures) for place in ("hf://me/birds", saved))
    assert [answer.top for answer in found] == [answer.top for answer in expected]


def test_a_network_in_memory_is_published_too(hub: Hub) -> None:
    model = small()
    pinned = arrn.push_to_hub(model, "hf://me/new", private=True, metadata=Metadata((0.5,) * 3, (0.25,) * 3))
    assert hub.repositories["me/new"].private
    x = torch.rand(1, 3, 5, 5)
    assert torch.equal(arrn.load(pinned)(x), model.eval()(x))
    assert "No accuracy was measured." in card_of(hub.repositories["me/new"])


def test_an_evaluation_without_a_result_is_none(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "network")
    evaluation = tmp_path / "network" / "evaluation.json"
    evaluation.write_text(json.dumps(json.loads(evaluation.read_text()) | {"results": []}))
    card = collect(tmp_path / "network", HubAddress.parse("me/new"))["README.md"]
    assert b"No accuracy was measured." in card


DAMAGED = {
    "cut short": ('{"results": [', "is not valid JSON"),
    "no object": ("[1]", "does not hold accuracies as `arrn evaluate` writes them"),
    "no results": ("{}", "has no 'results'"),
    "two hundred percent": ('{"dataset": "birds", "results": [RESULT]}', "from 0 to 1 of at least 1 sample, got 2.0"),
    "samples without end": ('{"dataset": "birds", "results": [ENDLESS]}', "does not hold accuracies"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_evaluation_is_left_out_with_a_warning(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    text, complaint = DAMAGED[what]
    result = {"resolution": 5, "adapt": True, "policy": "exact", "accuracy": 2, "total": 9}
    text = text.replace("RESULT", json.dumps(result))
    text = text.replace("ENDLESS", json.dumps(result | {"accuracy": 1, "total": float("inf")}))
    shutil.copytree(saved, tmp_path / "network")
    (tmp_path / "network" / "evaluation.json").write_text(text)
    files = collect(tmp_path / "network", HubAddress.parse("me/new"))
    assert b"No accuracy was measured." in files["README.md"]
    assert "evaluation.json" not in files
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path / 'network' / 'evaluation.json'}")
    assert complaint in line
    assert "\n" not in line
    caplog.clear()
    (tmp_path / "network" / "evaluation.json").unlink()
    collect(tmp_path / "network", HubAddress.parse("me/new"))
    assert not caplog.messages


def test_a_second_network_takes_the_place_of_the_first_with_all_its_numbers(
    hub: Hub, saved: Path, tmp_path: Path
) -> None:
    arrn.push_to_hub(saved, "me/birds")
    arrn.save(arrn.load(saved), tmp_path / "later")
    pinned = arrn.push_to_hub(tmp_path / "later", "me/birds", message="later")
    repository = hub.repositories["me/birds"]
    assert {"evaluation.json", "evaluation.png", "recipe.toml"}.isdisjoint(repository.files)
    assert repository.messages[-1] == "later"
    assert arrn.push_to_hub(tmp_path / "later", "me/birds") == pinned  # nothing is new


def card_of(repository: Repository) -> str:
    return repository.files["README.md"].decode()


def test_the_card_tells_what_the_hub_reads(saved: Path) -> None:
    files = collect(saved, HubAddress.parse("me/birds"), "apache-2.0")
    assert isinstance(files["README.md"], bytes)
    card = ModelCard(files["README.md"].decode())
    assert (card.data.license, card.data.library_name, card.data.metrics) == ("apache-2.0", "arrn", ["accuracy"])
    assert "safetensors" in card.data.tags
    assert card.data.pipeline_tag == "image-classification"
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("accuracy", 0.8, "My: birds")
    assert "| 5 | 50.00 |" in card.text
    assert "![Accuracy over resolution](evaluation.png)" in card.text
    assert "| optimizer | adam\\|w |" in card.text


def test_a_known_data_set_is_named_as_the_hub_names_it(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "network")
    write_evaluation(folder, "cifar10")
    content = collect(folder, HubAddress.parse("me/birds"))["README.md"]
    assert isinstance(content, bytes)
    metadata = yaml.safe_load(content.decode().split("---\n")[1])
    assert metadata["datasets"] == ["cifar10"]
    assert metadata["model-index"][0]["results"][0]["dataset"] == {"type": "cifar10", "name": "cifar10"}


def test_names_of_strangers_are_text_in_the_card(saved: Path) -> None:
    content = collect(saved, HubAddress.parse("me/birds"))["README.md"]
    assert isinstance(content, bytes)
    _, metadata, text = content.decode().split("---\n", 2)
    assert yaml.safe_load(metadata)["license"] == "unknown"
    assert "<b>" not in text
    assert "[x](" not in text
    assert "\nlicense: evil" not in text
    assert "/home" not in text
    assert markdown("a `b` *c* <i> www.x.y\n\x1b[0m") == r"a \`b\` \*c\* \<i\> www\.x.y\\n\\x1b\[0m"


def told(folder: object, address: str = "me/birds", **options: object) -> str:
    """The one sentence that says why nothing was published."""
    with pytest.raises(arrn.ArrnError) as error:
        arrn.push_to_hub(folder, address, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_no_token_or_a_wrong_one_is_told(hub: Hub, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the hub does not take the token" in told(saved, token="hf_wrong")
    monkeypatch.setenv("HF_TOKEN", "")
    assert "publishing needs a token of the hub: log in with `hf auth login`, or set HF_TOKEN" in told(saved)
    assert not hub.repositories


def test_the_folder_is_looked_at_before_a_token_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    assert f"{tmp_path / 'none'}" in told(tmp_path / "none")
    assert "token" not in told(tmp_path / "none")


def test_no_permission_is_told(hub: Hub, saved: Path) -> None:
    assert "the token may not write hf://others/birds" in told(saved, "others/birds")


def test_a_hub_out_of_reach_is_told(hub: Hub, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "cannot reach the hub at http://127.0.0.1:9" in told(saved)


def test_what_cannot_be_published_is_told_before_anything_is_asked(hub: Hub, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text("{}")
    (tmp_path / "figure.png").write_text("GIF")
    damaged = shutil.copytree(saved, tmp_path / "damaged")
    listed = shutil.copytree(saved, tmp_path / "listed")
    (listed / "cascade.json").write_text("[1]")
    content = bytearray((damaged / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (damaged / WEIGHTS).write_bytes(content)
    assert "is not a directory" in told(tmp_path / "none")
    assert "config.json" in told(tmp_path / "empty")
    assert "is not finished" in told(tmp_path / "unfinished")
    assert "is damaged" in told(damaged)
    assert "cascade.json should hold a JSON object" in told(listed)
    assert "is not a PNG file" in told(saved, figure=tmp_path / "figure.png")
    assert "is no address" in told(saved, "birds")
    assert "names a revision" in told(saved, "me/birds@v1")
    assert "is not the hub's name of a license" in told(saved, license="my own: license")
    assert not hub.asked


@pytest.fixture
def arrn_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def test_the_commands_publish_and_export(hub: Hub, saved: Path, tmp_path: Path, arrn_command: Command) -> None:
    arrn_command("publish", saved, "me/birds", "--out", tmp_path / "card.md")
    assert not hub.asked
    assert (tmp_path / "card.md").read_text().startswith("---\nlicense: unknown\n")
    out = arrn_command("publish", saved, "me/birds", "--license", "mit").out
    pinned = f"hf://me/birds@{hub.repositories['me/birds'].refs['main']}"
    assert f"published: {pinned}" in out
    arrn_command("publish", tmp_path, "me/birds", code=2)
    out = arrn_command("export", "hf://me/birds", "--to", "pt2", "--levels", "5", "--out", tmp_path / "pt2").out
    assert f"hf://me/birds is {pinned}" in out
    assert json.loads((tmp_path / "pt2" / "manifest.json").read_text())["class_names"] == list(NAMES)


def test_a_network_of_the_hub_is_evaluated(
    hub: Hub, tmp_path: Path, arrn_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the picture and the report go to the working folder
    arrn.push_to_hub(small(num_classes=10), "me/ten", metadata=Metadata((0.5,) * 3, (0.25,) * 3))
    written = tmp_path / "evaluation.json"
    arrn_command("evaluate", "hf://me/ten", "--dataset", "sample", "--resolutions", "5", "--json", written)
    assert {result["resolution"] for result in json.loads(written.read_text())["results"]} == {5}
    assert {path.name for path in tmp_path.glob("evaluation-sample.*")} == {
        "evaluation-sample.html",
        "evaluation-sample.png",
    }


@pytest.mark.slow
def test_a_network_of_the_hub_is_served(hub: Hub, saved: Path) -> None:
    pytest.importorskip("fastapi")
    from arrn.benchmarks.serving import serving_program

    arrn.push_to_hub(saved, "me/birds")
    with serving_program("hf://me/birds") as (host, port):  # type: ignore[arg-type]
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
