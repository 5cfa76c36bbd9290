"""Reading a page as a browser would: what it fetches, its pictures, its texts, what can have the focus."""

import base64
from html.parser import HTMLParser

_EMPTY = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """What a browser makes of a page.

    Attributes:
        fetched: addresses outside of the page.
        pictures: the bytes of those within.
        tags: of all elements.
        texts: what is shown, without styles.
        labels: what is said of elements to those who do not see them.
        focusable: how many elements the tab key reaches.
        open: elements that were not closed; none in a whole page.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.pictures: list[bytes] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.labels: list[str] = []
        self.classes: list[str] = []
        self.focusable = 0
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _EMPTY:
            self.open.append(tag)
        self.focusable += tag == "input" or dict(attrs).get("tabindex") == "0"
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} {name}"
            if name in ("aria-label", "alt", "title") and value:
                self.labels.append(value)
            if name == "class" and value:
                self.classes += value.split()
            if name in ("src", "href", "data", "action", "srcset", "poster") and value:
                kind, _, content = value.partition(";base64,")
                if kind.startswith("data:image/"):
                    self.pictures.append(base64.b64decode(content))
                else:
                    self.fetched.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All of the texts, a line each."""
        return "\n".join(self.texts)


def check_alone(text: str) -> Page:
    """A page that is whole, fetches nothing and runs nothing."""
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert "url(" not in text
    assert "@import" not in text
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)
    return page
