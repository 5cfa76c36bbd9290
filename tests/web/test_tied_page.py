"""The page of `arrn web` with a tied network, in a browser: its size, its answers, and what it says of its levels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arrn
from arrn.metadata import Metadata
from arrn.signal import kernel, resample
from arrn.testing import awaken_norms
from browsers import Visit, obtained, running
from pictures import encoded, picture

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

from arrn.web import Site, build_site
from arrn.web.site_server import open_server

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network") / "saved"
    torch.manual_seed(0)
    model = arrn.create_model("arrn_mini")
    awaken_norms(model, torch.randn(6, 3, 32, 32))
    model.half()  # as the networks in weights/ are
    names = tuple(f"class {n}" for n in range(10))
    arrn.save(model, folder, Metadata(mean=(0.45,) * 3, std=(0.2,) * 3, class_names=names))
    return folder


@pytest.fixture(scope="module")
def site(browser: Any, network: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return obtained(lambda: build_site(network, tmp_path_factory.mktemp("site") / "out", webgpu=False))


@pytest.fixture(scope="module")
def visit(browser: Any, site: Site) -> Iterator[Visit]:
    with running(open_server(site.folder)) as address:
        visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
        visit.settle()
        yield visit
        assert visit.wrong == []


def test_all_but_the_runtime_takes_less_than_two_megabytes(site: Site) -> None:
    assert site.bytes < 2e6
    assert site.difference < TOLERANCE


@pytest.mark.parametrize("kind", ["sharp", "blurred", "flat"])
def test_answers_are_those_of_pytorch(visit: Visit, network: Path, kind: str) -> None:
    model = arrn.load(network).eval()
    sharp = picture(32, 32, seed=3)
    stored = torch.from_numpy(sharp).permute(2, 0, 1)[None].double()
    blurred = resample(resample(stored, (16, 16)), (32, 32))[0].permute(1, 2, 0).round().clamp(0, 255)
    pixels = {"sharp": sharp, "blurred": blurred.numpy().astype(np.uint8), "flat": np.full_like(sharp, 90)}[kind]
    visit.choose(f"{kind}.png", encoded(pixels))
    visit.await_text("#caption", rf"^{kind}")
    visit.settle()
    for resolution in (32, 20, 16, 9, 8, 3):
        visit.move_to(resolution)
        seen = resample(torch.from_numpy(pixels).permute(2, 0, 1)[None].double(), (resolution,) * 2, kernel("perfect"))
        with torch.no_grad():
            answers = model(model.metadata.normalise(seen.float() / 255)).softmax(1)[0]
        found = float(visit.page.get_attribute("#winner-probability", "value"))
        assert found == pytest.approx(float(answers.max()), abs=TOLERANCE)
        assert visit.page.inner_text("#winner") == f"class {int(answers.argmax())}"


def test_the_page_says_which_levels_run_only_if_needed(visit: Visit) -> None:
    steps = {32: ["runs", "runs if needed", "runs if needed"], 16: ["skipped", "runs", "runs if needed"]}
    steps[8] = ["skipped", "skipped", "runs"]
    for resolution, expected in steps.items():
        visit.move_to(resolution)
        words = visit.page.eval_on_selector_all("#ladder .step span", "items => items.map((item) => item.innerText)")
        assert words == expected
        assert ("only if the picture has too few details" in visit.page.inner_text("#ladder-sentence")) == (
            "runs if needed" in expected
        )
    visit.move_to(32)
    facts = visit.page.inner_text("#facts")
    assert "44.7 million" in facts
    assert "68.6 million for a flat picture" in facts
    assert "the lower ones run if needed" in facts
