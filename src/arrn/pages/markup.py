"""HTML that cannot be broken by what strangers wrote: elements whose text is escaped, tables, choices, whole pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from arrn.errors import plain
from arrn.writing import write_atomically, writing_to


class Markup(str):
    """Text that is HTML already; every other text is escaped."""


Content: TypeAlias = str | Markup | None
"""A child of an element: HTML, text to be escaped, or nothing."""

_EMPTY = {"img", "input", "br", "meta"}


def element(tag: str, /, *children: Content, **attributes: str | float | bool | None) -> Markup:
    """An HTML element. Text among the children, and every attribute, is escaped.

    Args:
        tag: such as "p".
        children: `Markup` as it is, other text escaped, None left out.
        attributes: a trailing underscore is taken off (``class_``), others become hyphens. True is an attribute
            without a value, None or False none. Of plain text the middle of a very long one is left out, of `Markup`
            nothing.

    >>> element("p", "cats & ", element("b", "<dogs>"), class_="wide", title='"')
    '<p class="wide" title="&quot;">cats &amp; <b>&lt;dogs&gt;</b></p>'
    """
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = key.rstrip("_").replace("_", "-")
        parts.append(
            spelled
            if value is True
            else f'{spelled}="{html.escape(value if isinstance(value, Markup) else plain(value))}"'
        )
    opening = f"<{' '.join(parts)}>"
    return Markup(opening) if tag in _EMPTY else Markup(f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[Content]) -> Markup:
    """Elements and texts one after another, as one piece of HTML.

    >>> join(["1 < 2", element("br")])
    '1 &lt; 2<br>'
    """
    return Markup(
        "".join(child if isinstance(child, Markup) else html.escape(plain(child)) for child in children if child)
    )


def table(header: Sequence[Content], rows: Iterable[Sequence[Content]], kind: str | None = None) -> Markup:
    """A table that scrolls by itself where the screen is too narrow; the first column names the rows."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    whole = element("table", element("thead", head), element("tbody", *body), class_=kind)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label="table")


def choice(name: str, label: str, panels: Mapping[str, Markup]) -> Markup:
    """Panels of which one is shown, chosen with the mouse, a finger or the arrow keys; the first one at the start.

    Args:
        name: of the choice, its own on the page, of letters.
        label: what is chosen, for those who hear the page.
        panels: by what each is called.
    """
    if len(panels) == 1:
        return next(iter(panels.values()))
    inputs, labels, shown, rules = [], [], [], []
    for number, (title, panel) in enumerate(panels.items()):
        key = f"{name}-{number}"
        inputs.append(
            element("input", type="radio", name=name, id=key, checked=number == 0, class_="choice", aria_label=title)
        )
        labels.append(element("label", title, for_=key))
        shown.append(element("section", panel, class_=f"panel {key}"))
        rules.append(
            f"#{key}:checked~.panels>.{key}{{display:block}}"
            f"#{key}:checked~.tabs>label[for={key}]{{background:var(--accent);color:var(--page)}}"
            f"#{key}:focus-visible~.tabs>label[for={key}]{{outline:3px solid var(--focus);outline-offset:2px}}"
        )
    return element(
        "div",
        element("style", Markup("".join(rules))),
        *inputs,
        element("div", element("span", label), *labels, class_="tabs"),
        element("div", *shown, class_="panels"),
        class_="choices",
        role="group",
        aria_label=label,
    )


def document(title: str, *body: Content) -> Markup:
    """A whole page, which fetches nothing and runs no script."""
    style = files("arrn.pages").joinpath("style.css").read_text("utf-8")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style)),
    )
    return Markup(f"<!doctype html>\n{element('html', head, element('body', element('main', *body)), lang='en')}\n")


def write_page(path: Path, page: Markup) -> Path:
    """Writes a page, whole or not at all; makes its folder."""
    with writing_to(path):
        write_atomically(path, page.encode())
    return path
