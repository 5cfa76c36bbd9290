"""What the documentation site does to a page: equations, links out of docs/, and the examples of docstrings.

MathML is drawn by the browser itself, so the site needs no scripts and no fonts for its equations. The same pages are
read in the repository, where links such as ../README.md lead somewhere; on the site they would lead nowhere.
"""

from __future__ import annotations

import html
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_LINK_OUT = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+([^)#]+)(#[^)]*)?\)")
_EXAMPLE = re.compile(r"(?:^|\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Names files outside docs/ instead of linking to them; code blocks stay as they are."""
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK_OUT.sub(_named, part) for part in parts)


def _named(link: re.Match[str]) -> str:
    text, target = link[1], link[2].rstrip("/")
    return text if target in text else f"{text} (`{target}` in the repository)"


def on_page_content(content: str, **_: Any) -> str:
    """Turns each equation into MathML."""
    return _EQUATION.sub(
        lambda found: convert(html.unescape(found[3]).strip(), display="block" if found[2] == "[" else "inline"),
        content,
    )


class Examples(griffe.Extension):
    """Shows the examples of docstrings as code; as plain text their output would be read as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fences the examples of an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\n\n```pycon\n\1\n```", obj.docstring.value)
