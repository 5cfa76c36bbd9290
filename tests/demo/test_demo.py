"""The demonstration, with networks and data small enough for a test; and what its contenders cost."""

import base64
import contextlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

import arrn
from arrn.cli import main
from arrn.demo import CONTENDERS, RESOLUTIONS, Contender
from arrn.nn import ARRN, multiply_adds
from small_runs import COLOURS, write_easy_set

SMALL = {"sizes": [32, 16, 8], "features": [4, 4, 6], "depth": 1, "expansion": 1}
FEW = (
    Contender("With & without", "first", "first", "arrn", SMALL | {"dropout": 0.5}),
    Contender("Without", "second", "second", "arrn", SMALL),
    Contender("Fixed", "third", "third", "resnet18_small_stem", {"width": 2}),
)


class Page(HTMLParser):
    """What a browser would fetch, show as pictures, and put into cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.pictures: list[bytes] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")
        if tag == "br":
            self.cells[-1] += "\n"
        for name, value in attributes:
            if name in ("src", "href", "data", "action", "srcset") and value:
                kind, _, content = value.partition(";base64,")
                if kind == "data:image/png":
                    self.pictures.append(base64.b64decode(content))
                else:
                    self.fetched.append(value)

    def handle_data(self, text: str) -> None:
        if self.cells:
            self.cells[-1] += text


def run_demo(folder: Path) -> str:
    """What the demonstration prints."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(text):
        patched.setattr("arrn.data.catalog.SAMPLE_FOLDER", folder / "data")
        patched.setattr("arrn.demo.CONTENDERS", FEW)
        patched.setattr("sys.argv", ["arrn", "demo", "--out", str(folder / "out"), "--epochs", "1", "--device", "cpu"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return text.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_easy_set(folder / "data", train=30, test=12, size=32)
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    return run_demo(folder)


def test_it_prints_the_accuracies_of_every_network_at_every_resolution(said: str) -> None:
    table = said[said.index("Trained at 32x32") : said.index("What the ARRN needs")]
    rows = [line for line in table.splitlines() if line.startswith("│")]
    assert [int(row.split("│")[1]) for row in rows] == list(RESOLUTIONS)
    assert all(len(re.findall(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", row)) == len(FEW) for row in rows)


def test_it_prints_what_each_resolution_costs_and_that_skipping_is_exact(said: str) -> None:
    rows = [line.split("│") for line in said[said.index("What the ARRN needs") :].splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == [f"{n}x{n}" for n in RESOLUTIONS]
    assert [row[3].strip() for row in rows] == ["3 of 3", "3 of 3", "2 of 3", "2 of 3", "1 of 3"]
    assert max(float(row[-2]) for row in rows) < 1e-4


def test_the_report_fetches_nothing(said: str, folder: Path) -> None:
    text = (folder / "out" / "report.html").read_text()
    page = Page(text)
    assert page.fetched == []
    assert "http" not in text
    assert not re.search(r"url\(|@import", text)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)


def test_the_report_shows_the_plot_and_each_image_at_each_resolution(said: str, folder: Path) -> None:
    plot, *images = Page((folder / "out" / "report.html").read_text()).pictures
    assert plot == (folder / "out" / "accuracy.png").read_bytes()
    sizes = [Image.open(io.BytesIO(image)).size for image in images]
    assert sizes == [(n, n) for _ in COLOURS for n in RESOLUTIONS]


def test_the_report_tells_each_networks_answer_and_the_level_used(said: str, folder: Path) -> None:
    cells = Page((folder / "out" / "report.html").read_text()).cells
    answers = [cell for cell in cells if all(contender.short in cell for contender in FEW)]
    assert len(answers) == len(COLOURS) * len(RESOLUTIONS)
    for cell in answers:
        assert len(re.findall("red|green|blue", cell)) == len(FEW)
    # For each image, from 32 down to 8: the two ARRNs start lower and lower, the fixed network at 32.
    levels = [re.findall(r"\b(32|16|8)\b", cell) for cell in answers]
    assert levels[: len(RESOLUTIONS)] == [[grid, grid, "32"] for grid in ("32", "32", "16", "16", "8")]


def test_the_report_escapes_names(said: str, folder: Path) -> None:
    assert "With &amp; without" in (folder / "out" / "report.html").read_text()


def test_run_again_it_goes_on_where_it_was(said: str, folder: Path) -> None:
    networks = [folder / "out" / contender.folder / "model.safetensors" for contender in FEW]
    before = [path.stat().st_mtime_ns for path in networks]
    assert run_demo(folder).count("is finished") == len(FEW)
    assert [path.stat().st_mtime_ns for path in networks] == before


def test_the_contenders_cost_the_same_to_within_a_fifth() -> None:
    costs = [
        multiply_adds(arrn.create_model(contender.model, **contender.options), (1, 3, 32, 32))
        for contender in CONTENDERS
    ]
    assert max(costs) <= 1.2 * min(costs)


def test_the_contenders_are_those_of_the_issue() -> None:
    networks = [arrn.create_model(contender.model, **contender.options) for contender in CONTENDERS]
    assert [isinstance(network, ARRN) for network in networks] == [True, True, False]
    rates = [network.config["options"]["dropout"] for network in networks[:2]]
    assert rates[0] > 0
    assert rates[1] == 0
    assert [contender.model for contender in CONTENDERS[:2]] == ["arrn_small"] * 2
    assert RESOLUTIONS == (32, 24, 16, 12, 8)
