"""Parts of a page for a browser, of elements whose text is escaped: tables, choices, whole pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from arrn.runtime.elements import Content as Content
from arrn.runtime.elements import Markup as Markup
from arrn.runtime.elements import element as element
from arrn.runtime.elements import join as join
from arrn.writing import write_atomically, writing_to


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
    style = "".join(files("arrn.pages").joinpath(name).read_text("utf-8") for name in ("palette.css", "style.css"))
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
