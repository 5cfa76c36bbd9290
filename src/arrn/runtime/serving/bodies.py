"""The body of a request, read within bounds: of bytes, of time, of files, and of the memory of all requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message, Receive, Scope

from .problems import Problem, busy, sentence
from .server_settings import ServerSettings

_MOST_FIELDS = 16  # of a form, which are no files; their content is not used
_FIELD_BYTES = 4096

ANY_BYTES = "application/octet-stream"
_IMAGES = ("png", "jpeg", "webp", "gif", "bmp", "tiff", "x-portable-pixmap")
CONTENT_TYPES: Mapping[int, tuple[str, tuple[str, ...]]] = {
    1: ("audio/", ("audio/wav", "audio/x-wav")),
    2: ("image/", tuple(f"image/{name}" for name in _IMAGES)),
    3: ("application/x-npy", ("application/x-npy",)),
}
"""By the number of axes of a signal: how the content type of a raw body begins, and those of the files that are read.

What follows the slash decides nothing: a file's own first bytes tell its format.
"""


class HeldBytes:
    """How many bytes all requests hold; one that would take more than the limit is refused.

    >>> held = HeldBytes(10)
    >>> held.take(8)
    True
    >>> held.take(8)
    False
    >>> held.give_back(8); held.now
    0
    """

    def __init__(self, most: int) -> None:
        self.most, self.now = most, 0

    def take(self, count: int) -> bool:
        """Counts `count` more bytes, or returns False where those are too many."""
        if self.now + count > self.most:
            return False
        self.now += count
        return True

    def give_back(self, count: int) -> None:
        """Counts `count` bytes less."""
        self.now -= count


@dataclass(frozen=True)
class Upload:
    """A file of a request.

    Attributes:
        content: its bytes.
        name: as the client calls it; empty for a raw body.
    """

    content: bytes
    name: str = ""


class Body:
    """The body of one request. What it holds is counted until `release`.

    Args:
        scope, receive: of the request, as ASGI has them.
        settings: the limits.
        held: of all requests.
    """

    def __init__(self, scope: Scope, receive: Receive, settings: ServerSettings, held: HeldBytes) -> None:
        self.headers = Headers(scope=scope)
        self.finished = self.gone = False
        self._receive, self._settings, self._held = receive, settings, held
        self._kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._count = 0

    @property
    def is_form(self) -> bool:
        """Whether the body is a form, which may hold several files."""
        return self._kind == "multipart/form-data"

    async def uploads(self, axes: int) -> list[Upload]:
        """The files of a request to a network whose signals have `axes` axes: one of a raw body, those of a form.

        Raises:
            Problem: 408, 413, 415, 422 or 503, each with its sentence.
        """
        self._check_claims()
        kind = self._kind
        if self.is_form:
            return await self._form()
        start, kinds = CONTENT_TYPES[axes]
        if not (kind.startswith(start) or kind == ANY_BYTES):
            got = f"{kind!r:.80} is not taken" if kind else "The content type is missing"
            raise Problem(
                415,
                f"{got}: send one file with the content type {kinds[0]} or {ANY_BYTES}, or several as "
                "multipart/form-data.",
                {"Accept": ", ".join([*kinds, ANY_BYTES, "multipart/form-data"])},
            )
        content = b"".join([chunk async for chunk in self._chunks()])
        if not content:
            raise Problem(422, "The body is empty: it should be the content of a file.")
        return [Upload(content)]

    async def left(self) -> None:
        """Waits until the client closes the connection. The body has been read."""
        while not self.gone:
            await self._message()

    def release(self) -> None:
        """Counts what was read no more."""
        self._held.give_back(self._count)
        self._count = 0

    def _check_claims(self) -> None:
        most = self._settings.max_body
        length = self.headers.get("content-length")
        if length is not None and (len(length) > 18 or not length.isascii() or not length.isdigit()):
            raise Problem(422, f"The content length {length!r:.40} is not a number of bytes.")
        if length is not None and int(length) > most:
            raise Problem(413, f"The body has {int(length):,} bytes; the server takes {most:,} at most.")
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise Problem(415, f"The content encoding {coding!r:.40} is not taken: send the body as it is.")

    async def _form(self) -> list[Upload]:
        most = self._settings.max_files
        parser = _InMemory(
            self.headers, self._chunks(), max_files=most, max_fields=_MOST_FIELDS, max_part_size=_FIELD_BYTES
        )
        try:
            form = await parser.parse()
        except MultiPartException as error:
            if parser.too_many_files:
                raise Problem(413, f"The form has more than {most:,} files, which is the limit.") from None
            raise Problem(422, f"The form cannot be read: {sentence(error.message)}") from None
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        if not files:
            raise Problem(422, "The form holds no file: send files, such as curl's -F file=@cat.png.")
        uploads = []
        for file in files:
            uploads.append(Upload(file.file.read(), file.filename or ""))
            file.file.close()
        return uploads

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        settings, total = self._settings, 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + settings.receive_seconds
        while not self.finished:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await self._message()
            except TimeoutError:
                raise Problem(
                    408,
                    f"After {settings.receive_seconds:g} seconds, only {total:,} bytes of the body had arrived: send "
                    "the body faster, or a smaller body.",
                ) from None
            if self.gone:
                raise ConnectionAbortedError
            chunk: bytes = message.get("body", b"")
            total += len(chunk)
            if total > settings.max_body:
                raise Problem(413, f"The body has more than {settings.max_body:,} bytes, which is the limit.")
            if not self._held.take(len(chunk)):
                raise busy(503, "The server's memory for requests is full: try again in a second.")
            self._count += len(chunk)
            yield chunk

    async def _message(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
        elif not message.get("more_body", False):
            self.finished = True
        return message


class _InMemory(MultiPartParser):
    """Starlette's parser, which never writes to the disk: what it is given is bounded already."""

    spool_max_size = 0  # of `SpooledTemporaryFile`: no limit

    @property
    def too_many_files(self) -> bool:
        return self._current_files > self.max_files
