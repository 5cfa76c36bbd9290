"""Refusals and failures as HTTP answers: a status and a sentence, in the form of RFC 9457 (problem JSON)."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818 - it is what clients are told
    """What a client is told instead of an answer.

    Attributes:
        status: of HTTP.
        detail: one sentence: what was wrong, with the value, and what would be right.
        headers: of the response.
        more: further members of the JSON.
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers, self.more = dict(headers or {}), dict(more or {})

    def document(self) -> dict[str, Any]:
        """The members of the JSON.

        >>> Problem(415, "The content type is missing.").document()
        {'status': 415, 'title': 'Unsupported Media Type', 'detail': 'The content type is missing.'}
        """
        return {"status": self.status, "title": title(self.status), "detail": self.detail, **self.more}

    def response(self) -> JSONResponse:
        """The problem as a response."""
        return JSONResponse(self.document(), self.status, self.headers, MEDIA_TYPE)


def title(status: int) -> str:
    """The name of a status, which older versions of Python and newer ones call differently for 413 and 422."""
    names = {413: "Content Too Large", 422: "Unprocessable Content"}
    return names.get(status) or http.HTTPStatus(status).phrase


def busy(status: int, detail: str) -> Problem:
    """A problem that passes: the client may try again after a second."""
    return Problem(status, detail, {"Retry-After": "1"})


def sentence(text: str) -> str:
    """A message of the library as a sentence: with a capital letter, unless it begins with a name, and a full stop.

    >>> sentence("it is empty")
    'It is empty.'
    """
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def writable(text: str) -> str:
    r"""Text as UTF-8 can hold it: halves of characters, which names in files may have, become their escapes.

    >>> writable("cat \ud800")
    'cat \\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
