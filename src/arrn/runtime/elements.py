"""HTML elements whose text is escaped, and tables for notebooks, which have their own colours, light or dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..errors import plain


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


_CELL = "padding: .25em .8em; vertical-align: middle; background: none; border: none; white-space: nowrap; text-align: "
_RULE = "; border-bottom: 1px solid rgba(128, 128, 128, .4)"


def notebook_table(
    header: Sequence[Content], rows: Iterable[Sequence[Content]], title: Content = None, right: Iterable[int] = ()
) -> Markup:
    """A table for the cell of a notebook: it needs no style sheet, and has the colours of the text around it.

    Args:
        header: what each column is called.
        rows: the cells.
        title: stands above.
        right: the columns, counted from 0, whose numbers stand under one another.
    """
    sides = ["right" if n in set(right) else "left" for n in range(len(header))]

    def line(tag: str, cells: Sequence[Content], rule: str = "") -> Markup:
        style = [f"{_CELL}{side}{rule}" for side in sides]
        return element("tr", *(element(tag, cell, style=each) for cell, each in zip(cells, style, strict=True)))

    table = element(
        "table",
        element("thead", line("th", header, _RULE)),
        element("tbody", *(line("td", cells) for cells in rows)),
        style="border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .3em 0",
    )
    heading = None if title is None else element("div", title, style="font-weight: 600; margin: .3em .8em")
    return element("div", heading, table, style="overflow-x: auto; max-width: 100%")


def share_bar(share: float) -> Markup:
    """A bar whose length is a share of the whole, from 0 to 1."""
    inner = f"width: {max(0.0, min(1.0, share)):.1%}; height: 100%; background: currentColor; border-radius: .2em"
    frame = (
        "display: inline-block; width: 6em; height: .55em; border-radius: .2em; background: rgba(128, 128, 128, .25)"
    )
    return element("div", element("div", style=Markup(inner)), style=frame, aria_hidden="true")
