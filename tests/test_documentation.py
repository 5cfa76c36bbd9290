"""The documentation: the site builds without a warning and fetches nothing; links of other pages lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import arrn

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

ROOT = Path(__file__).parents[1]
# Read in the repository, not on the site, which checks its own links.
OTHER_PAGES = [*ROOT.glob("*.md"), *ROOT.glob("results/**/*.md"), *ROOT.glob("runtime/*.md")]
FETCHED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="https?:|<link[^>]*rel="stylesheet"[^>]*href="https?:')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link, an anchor or a reference that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        assert not FETCHED.search(page.read_text()), page


def test_equations_are_drawn_by_the_browser_itself(site: Path) -> None:
    text = (site / "method.html").read_text()
    assert text.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') >= 3
    assert "arithmatex" not in text


@pytest.mark.parametrize(
    ("page", "package"), [("reference", arrn), ("reference_layers", arrn.nn), ("reference_signals", arrn.signal)]
)
def test_the_reference_has_every_public_name(site: Path, page: str, package: ModuleType) -> None:
    text = (site / f"{page}.html").read_text()
    for name in package.__all__:
        value = getattr(package, name)
        if isinstance(value, (ModuleType, str)):
            continue
        places = {f"{package.__name__}.{name}", f"{value.__module__}.{name}"}  # the second where a module has that name
        assert any(f'id="{place}"' in text for place in places), name


@pytest.mark.parametrize("page", OTHER_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_links_of_the_site_into_the_repository_lead_somewhere() -> None:
    for page in ROOT.glob("docs/**/*.md"):
        for target in re.findall(r"\]\(((?:\.\./)+[^)\s]+)\)", page.read_text()):
            assert (page.parent / target.partition("#")[0]).exists(), (page, target)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    for notebook in ROOT.glob("notebooks/*.ipynb"):
        text = (site / "notebooks" / f"{notebook.stem}.html").read_text()
        pictures = re.findall(rf'src="({notebook.stem}_\d+\.png)"', text)
        assert len(pictures) >= 2
        assert all((site / "notebooks" / name).exists() for name in pictures)
