"""What the documentation site does to a page: equations, links out of docs/, notebooks, and the examples of docstrings.

MathML is drawn by the browser itself, so the site needs no scripts and no fonts for its equations. The same pages are
read in the repository, where links such as ../README.md lead somewhere; on the site they would lead nowhere.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
TABLES = {path.parent.name: path for path in sorted(ROOT.glob("results/*/README.md"))}

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>(&#x02032;)</mi></msup>")
_LINK_OUT = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")
_EXAMPLE = re.compile(r"(?:^|\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the tables of each data set to the menu, below the results."""
    (results,) = (part["Results"] for part in config.nav or [] if "Results" in part)
    results += [{_heading(path): f"results/{name}.md"} for name, path in TABLES.items()]
    return config


def _heading(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the tables of each data set, and each notebook with the outputs that it stores, as pages."""
    for name, path in TABLES.items():
        page = path.read_text(encoding="utf-8").replace("](../../docs/", "](../")
        files.append(File.generated(config, f"results/{name}.md", content=page))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, pictures = notebook_page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def notebook_page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by their names.

    >>> cell = {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}
    >>> print(notebook_page({"cells": [cell]}, "sum")[0])
    ```python
    1 + 1
    ```
    <BLANKLINE>
    ```text
    2
    ```
    """
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # Pages of the repository and of the site lie alike, but that the site's are those of docs/.
            parts.append(source.replace("](../docs/", "](../").replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What the code above draws]({name})")
            else:
                parts.append("```text\n{}\n```".format("".join(data["text/plain"]).rstrip()))
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Names files outside docs/ instead of linking to them; code blocks stay as they are."""
    parts = _FENCE.split(markdown)
    depth = page.file.src_uri.count("/")
    return "".join(part if part.startswith("```") else _LINK_OUT.sub(_named(depth), part) for part in parts)


def _named(depth: int) -> Callable[[re.Match[str]], str]:
    """What becomes of a link of a page that lies so many folders below docs/."""

    def name(link: re.Match[str]) -> str:
        text, up, target = link[1], link[2], link[3].rstrip("/")
        if up.count("../") <= depth:
            return link[0]
        path = Path(target)  # of what may be a page of the site
        if path.suffix == ".ipynb":
            return f"[{text}]({'../' * depth}notebooks/{path.stem}.md)"
        if (name := path.parent.name) in TABLES:
            return f"[{text}]({'../' * depth}results/{name}.md)"
        return text if target in text else f"{text} (`{target}` in the repository)"

    return name


def on_page_content(content: str, **_: Any) -> str:
    """Turns each equation into MathML."""
    return _EQUATION.sub(
        lambda found: mathml(html.unescape(found[3]).strip(), "block" if found[2] == "[" else "inline"), content
    )


def mathml(equation: str, display: str = "inline") -> str:
    """An equation as MathML. A prime stands beside its letter: browsers raise it twice in a superscript.

    >>> mathml("r' = r").partition(">")[2]
    '<mrow><mi>r</mi><mo lspace="0" rspace="0">&#x02032;</mo><mo>&#x0003D;</mo><mi>r</mi></mrow></math>'
    """
    return _PRIME.sub(r'\1<mo lspace="0" rspace="0">\2</mo>', convert(equation, display=display))


class Examples(griffe.Extension):
    """Shows the examples of docstrings as code; as plain text their output would be read as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fences the examples of an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\n\n```pycon\n\1\n```", obj.docstring.value)
