"""The page of `arrn web` in a real browser: answers, keyboard, screen readers, bad files, and what it asks for."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import arrn
from arrn.runtime.aspect import Aspect
from arrn.signal import LaplacianPyramid, kernel, resample
from browsers import Visit, obtained, plain_server, read_axe, running
from pictures import encoded, picture

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from arrn.web import Site, build_site
from arrn.web.site_server import open_server

WEIGHTS = Path(__file__).parents[2] / "weights" / "arrn_small"
HOSTILE = ("<img src=x onerror=alert(1)>", "\u202egnp.tac\x1b[2J", "a" * 300)
TOLERANCE = 1e-4
CUT_OFF = """[...document.querySelectorAll('#chart text')].filter((text) => {
    const box = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
    return box.width && (box.left < chart.left || box.right > chart.right);
}).map((text) => text.textContent)"""  # words of the chart that begin or end outside the chart


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped network, with names of classes that a stranger might choose."""
    model = arrn.load(WEIGHTS)
    names = (*HOSTILE, *model.metadata.class_names[3:])
    folder = tmp_path_factory.mktemp("network") / "saved"
    metadata = arrn.metadata.Metadata(mean=model.metadata.mean, std=model.metadata.std, class_names=names)
    arrn.save(model, folder, metadata)
    return folder


@pytest.fixture(scope="module")
def site(browser: Any, network: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return obtained(lambda: build_site(network, tmp_path_factory.mktemp("site") / "out", webgpu=False))


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    with running(open_server(site.folder)) as address:
        yield address


@pytest.fixture(scope="module")
def visit(browser: Any, address: str) -> Iterator[Visit]:
    """One visit for all tests: whatever they do, nothing may go wrong in it, and nothing be asked for elsewhere."""
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
    visit.settle()
    yield visit
    assert visit.wrong == []
    assert [asked for asked in visit.requests if not asked.startswith((address, f"blob:{address}"))] == []


@pytest.fixture(scope="module")
def model(network: Path) -> arrn.nn.ARRN:
    return arrn.load(network).eval()


def expected(model: arrn.nn.ARRN, stored: torch.Tensor) -> np.ndarray:
    """PyTorch's probabilities for stored numbers of shape (channels, height, width)."""
    with torch.no_grad():
        return model(model.metadata.normalise(stored[None] / 255)).softmax(1)[0].numpy()


# What the page's own modules say of a file: the network is asked as the page asks it.
ASK = """async ([content, sizes, grids]) => {
  const { openPicture } = await import("/pictures.js");
  const { Network } = await import("/network.js");
  const site = await (await fetch("/site.json")).json();
  const network = (window.asked ??= await (async () => {
    const made = new Network();
    await made.start(site, "wasm");
    return made;
  })());
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  await network.take(await openPicture(new File([bytes], "a.png"), site.most_pixels), "stretch");
  const plain = ({ samples, probabilities, level }) => [[...samples], [...probabilities], level];
  const answers = [];
  for (const size of sizes) answers.push(plain(await network.answer(size, 0)));
  const { levels, difference } = await network.pyramid(sizes[0], grids);
  return [answers, levels.map(({ held, detail }) => [[...held], detail && [...detail]]), difference];
}"""


def ask(visit: Visit, content: bytes, sizes: list[tuple[int, int]], grids: Any) -> Any:
    return visit.page.evaluate(ASK, [base64.b64encode(content).decode(), sizes, grids])


@pytest.mark.parametrize("size", [(32, 32), (7, 5), (300, 211)])
def test_answers_are_those_of_pytorch(visit: Visit, model: arrn.nn.ARRN, size: tuple[int, int]) -> None:
    pixels = picture(*size, seed=3)
    stored = torch.from_numpy(pixels).permute(2, 0, 1).float()
    top = tuple(min(32, length) for length in size)
    sizes = [tuple(min(length, most) for length in grid) for most in (32, 20, 16, 9, 5, 1) for grid in [top]]
    answers, _, _ = ask(visit, encoded(pixels), sizes, model.grids)
    for at, (samples, probabilities, level) in zip(sizes, answers, strict=True):
        seen = resample(stored[None].double(), at, kernel("perfect"))[0]
        np.testing.assert_allclose(np.reshape(samples, seen.shape), seen, atol=2e-2 / 255 * 10)
        np.testing.assert_allclose(probabilities, expected(model, seen.float()), atol=TOLERANCE)
        assert level == model.level(at)


def test_the_pyramid_is_that_of_the_library(visit: Visit, model: arrn.nn.ARRN) -> None:
    pixels = picture(32, 32, seed=4)
    _, levels, difference = ask(visit, encoded(pixels), [(16, 16)], model.grids)
    stored = torch.from_numpy(pixels).permute(2, 0, 1)[None].double()
    seen = resample(resample(stored, (16, 16), kernel("perfect")), (32, 32), kernel("perfect"))
    details, low = LaplacianPyramid(model.grids, kernel("perfect")).decompose(seen)
    for (_, found), detail in zip(levels[:-1], details, strict=True):
        np.testing.assert_allclose(np.reshape(found, detail.shape), detail, atol=1e-3)
    np.testing.assert_allclose(np.reshape(levels[-1][0], low.shape), low, atol=1e-3)
    assert np.abs(levels[0][1]).max() < 1e-3  # nothing above what 16x16 holds
    assert difference < 1e-3


def test_pictures_are_read_as_pillow_reads_them(visit: Visit, model: arrn.nn.ARRN) -> None:
    # Half transparent, on white; and a JPEG that lies on its side, turned upright.
    clear = np.dstack([picture(24, 24), np.tile(np.linspace(0, 255, 24), (24, 1)).astype(np.uint8)])
    file = io.BytesIO()
    Image.fromarray(clear).save(file, "PNG")
    white = Image.new("RGBA", (24, 24), "white")
    composed = Image.alpha_composite(white, Image.fromarray(clear)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(picture(24, 16), "JPEG", quality=95, subsampling=0, exif=exif)
    upright = Image.open(io.BytesIO(turned)).convert("RGB").transpose(Image.Transpose.ROTATE_270)
    for content, pixels in ((file.getvalue(), composed), (turned, upright)):
        width, height = pixels.size
        ((samples, *_),), _, _ = ask(visit, content, [(height, width)], model.grids)
        found = np.reshape(samples, (3, height, width)).transpose(1, 2, 0)
        assert np.abs(found - np.asarray(pixels, float)).max() < 2.01  # decoders round in their own ways


@pytest.mark.parametrize("mode", ["stretch", "pad", "crop"])
def test_proportions_are_those_of_the_library(visit: Visit, mode: str) -> None:
    rng = np.random.default_rng(0)
    grids = [(32, 32), (12, 9), (7, 20)]
    cases = [(grids[n % 3], tuple(map(int, rng.integers(1, 60, 2)))) for n in range(60)]
    found = visit.page.evaluate(
        """async ([mode, cases]) => {
          const { frameOf, placesOf } = await import("/framing.js");
          return cases.map(([grid, size]) => {
            const frame = frameOf(mode, size, grid);
            return [frame, frame.map((length, axis) => [...placesOf(size[axis], length)])];
          });
        }""",
        [mode, cases],
    )
    for (grid, size), (frame, places) in zip(cases, found, strict=True):
        aspect = Aspect(mode, grid)
        assert tuple(frame) == aspect.frame(size)
        assert places == [line.tolist() for line in aspect.places(size)]


def test_all_but_the_runtime_takes_less_than_three_megabytes(site: Site) -> None:
    assert site.bytes < 3e6
    assert site.difference < TOLERANCE


def test_the_page_shows_the_answer_and_what_it_took(visit: Visit, model: arrn.nn.ARRN, site: Site) -> None:
    page = visit.page
    page.click("#sample-list button >> nth=7")
    visit.await_text("#caption", r"^horse")
    visit.settle()
    visit.move_to(12)
    stored = torch.from_numpy(np.array(Image.open(site.folder / "samples/07.png"))).permute(2, 0, 1).double()
    answers = expected(model, resample(stored[None], (12, 12), kernel("perfect"))[0].float())
    assert float(page.get_attribute("#winner-probability", "value")) == pytest.approx(answers.max(), abs=TOLERANCE)
    assert page.inner_text("#winner") == "horse"
    assert page.eval_on_selector_all("#ladder li", "items => items.map((item) => item.className)") == [
        *("skipped", "runs", "runs")
    ]
    facts = page.inner_text("#facts")
    assert re.search(r"\d ms", facts)
    assert "8.83 million" in facts
    assert "77% of the whole network" in facts
    assert "1 of 3" in facts
    assert page.locator("#table tr").count() == 32
    assert page.text_content("#table th") == "32 × 32"
    assert "horse" in page.get_attribute("#chart svg", "aria-label")


def test_a_click_in_the_chart_moves_the_slider(visit: Visit) -> None:
    visit.settle()
    box = visit.page.locator("#chart svg").bounding_box()
    visit.page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 60)
    visit.await_text("#resolution-value", "^32 × 32$")


def test_the_keyboard_does_everything(visit: Visit) -> None:
    page = visit.page
    page.locator("#resolution").focus()
    page.keyboard.press("Home")
    visit.await_text("#caption", r" 1 × 1$")
    page.keyboard.press("ArrowRight")
    visit.await_text("#caption", r" 2 × 2$")
    assert page.get_attribute("#resolution", "aria-valuetext") == "2 by 2 pixels"
    visit.await_text("#said", r"^At 2 by 2: ")
    page.keyboard.press("Tab")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    assert not chooser.value.is_multiple()
    page.keyboard.press("Tab")  # the camera
    page.keyboard.press("Tab")  # the first sample
    page.keyboard.press("Enter")
    visit.await_text("#caption", r"^airplane")
    assert page.get_attribute("#sample-list button", "aria-pressed") == "true"
    page.locator("#tab-answer").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-pyramid"
    page.wait_for_selector("#pyramid figure >> nth=2")
    assert page.is_hidden("#panel-answer")
    page.keyboard.press("ArrowRight")  # around to the first
    assert page.is_visible("#panel-answer")


def bomb(side: int) -> bytes:
    """A small file that holds a huge picture of one bit for each pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    body = zlib.compress(bytes(side * (side // 8 + 1)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_bad_files_are_refused_in_a_sentence_and_change_nothing(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    visit.choose("before.png", encoded(picture(20, 20)))
    visit.await_text("#caption", r"^before.png")
    large = tmp_path / "large.png"
    with open(large, "wb") as file:
        file.truncate(65_000_000)
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script></svg>'
    refusals: list[tuple[Any, str]] = [
        (("notes.png", b"not a picture"), "notes.png is not a picture that this browser can read."),
        (("cut.png", encoded(picture(20, 20))[:60]), "cut.png is not a picture that this browser can read."),
        (("empty.png", b""), "empty.png is empty."),
        (("a.svg", drawing, "image/svg+xml"), "a.svg is not a picture that this browser can read."),
        (("huge.png", bomb(8000)), "huge.png has 8000 × 8000 pixels, which is 64 million; this page takes 50 million"),
        (large, "large.png has 65 MB; this page takes files of 64 MB at most."),
        ((f"<b>{'x' * 300}</b>\u202e.png", b"no"), "<b>xxx"),
    ]
    for given, words in refusals:
        page.set_input_files("#file", str(given)) if isinstance(given, Path) else visit.choose(*given)
        visit.await_text("#trouble", f"^{re.escape(words)}")
        told = page.inner_text("#trouble")
        assert told.count(".") <= 3
        assert len(told) < 150
        assert "\u202e" not in told
        assert page.get_attribute("#trouble", "role") == "alert"
        assert page.inner_text("#caption").startswith("before.png")
    visit.choose("after.png", encoded(picture(20, 20, seed=1)))
    visit.await_text("#caption", r"^after.png")
    assert page.is_hidden("#trouble")
    visit.settle()


def test_names_of_strangers_stay_text(visit: Visit) -> None:
    page = visit.page
    about = page.inner_text("#about")
    assert "<img src=x onerror=alert(1)>" in about
    assert "\ufffdgnp.tac\ufffd[2J" in about
    assert "a" * 41 not in about
    assert page.locator("img[src=x]").count() == 0


def test_files_can_be_dropped_and_pasted(visit: Visit) -> None:
    page = visit.page
    content = base64.b64encode(encoded(picture(40, 30))).decode()
    give = """([kind, content]) => {
      const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], `${kind}.png`, { type: "image/png" }));
      const Kind = { drop: DragEvent, paste: ClipboardEvent }[kind];
      const options = { bubbles: true, cancelable: true, dataTransfer: transfer, clipboardData: transfer };
      document.body.dispatchEvent(new Kind(kind, options));
    }"""
    page.locator("#resolution").focus()
    page.keyboard.press("End")
    for kind in ("drop", "paste"):
        page.evaluate(give, [kind, content])
        visit.await_text("#caption", f"^{kind}.png, 30 × 40")
    # The picture is no square, so its proportions can be chosen.
    page.select_option("#fit", "crop")
    visit.await_text("#caption", r"seen at 30 × 30$")
    page.select_option("#fit", "stretch")
    visit.await_text("#caption", r"seen at 30 × 32$")


def test_the_camera_is_seen_until_it_is_stopped(visit: Visit) -> None:
    page = visit.page
    page.click("#camera")
    visit.await_text("#caption", r"^Camera, 640 × 480")
    assert page.inner_text("#camera") == "Keep this picture"
    assert page.inner_text("#chart") == "Keep a camera picture to see all resolutions."
    assert page.locator("#table tr").count() == 0
    page.click("#camera")
    visit.settle()
    assert page.locator("#chart svg").count() == 1
    assert page.inner_text("#camera") == "Use the camera"
    assert page.evaluate("document.getElementById('video').srcObject") is None
    assert page.inner_text("#trouble") == ""


def test_axe_finds_nothing(visit: Visit) -> None:
    page = visit.page
    page.click("#sample-list button >> nth=7")
    visit.settle()
    visit.move_to(12)
    page.click("summary")  # so that the table is looked at too
    page.evaluate(read_axe())
    found: list[str] = []
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        for tab in ("answer", "pyramid"):
            page.click(f"#tab-{tab}")
            page.wait_for_selector("#pyramid figure" if tab == "pyramid" else "#chart svg")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                violations = page.evaluate("axe.run().then(({ violations }) => violations)")
                found += [f"{width} {tab} {scheme} {each['id']}: {each['nodes'][0]['html']}" for each in violations]
                assert page.evaluate(CUT_OFF) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 900})
    assert found == []


def test_any_server_will_do_and_a_file_tells_that_it_needs_one(browser: Any, site: Site) -> None:
    with running(plain_server(site.folder)) as address:
        plain = Visit(browser, address)
        plain.page.wait_for_selector("#answer:not([hidden])")
        assert plain.wrong == []
        plain.page.close()
    alone = Visit(browser, (site.folder / "index.html").as_uri())
    alone.page.wait_for_selector("#unstarted", state="visible")
    assert "python -m http.server" in alone.page.inner_text("#unstarted")
    alone.page.close()
