"""A real browser for tests: Chromium under Playwright. Without one, tests are skipped; in CI they fail."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from arrn.errors import ArrnError
from arrn.web.browser_runtime import NpmPackage, fetch_package, read_member

REQUIRED = "ARRN_BROWSER_TESTS"
"""The variable that `.ci/run` sets to "required"."""

AXE = NpmPackage(
    "axe-core",
    "4.14.0",
    "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)

Given = TypeVar("Given")


def miss(what: str) -> NoReturn:
    """Skips the test, or lets it fail where a browser is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"the browser's tests need {what}")
    pytest.skip(f"needs {what}")


def obtained(get: Callable[[], Given]) -> Given:
    """What `get` gives; without npm, or where npm reaches nothing, the test misses it."""
    try:
        return get()
    except ArrnError as error:
        miss(f"a package of npm ({error})")


def read_axe() -> str:
    """The script of axe-core, which finds what keeps people from using a page."""
    return read_member(obtained(lambda: fetch_package(AXE)), "axe.min.js").decode()


@contextmanager
def open_browser() -> Iterator[Any]:
    """A headless Chromium, whose camera shows a test pattern."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        miss("playwright: pip install playwright")
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    path = next(found, None)
    if path is None:
        miss("chromium: apt-get install chromium")
    flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", "--mute-audio"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[str]:
    """Runs a server in a thread; gives its address."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Plain(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def plain_server(folder: Path) -> ThreadingHTTPServer:
    """What `python -m http.server` runs, which sends no headers of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Plain, directory=str(folder)))
    server.daemon_threads = True
    return server


class Visit:
    """A page that is open in a browser, with everything that it asked for, and that went wrong in it.

    Attributes:
        page: Playwright's.
        requests: the addresses that it asked for.
        wrong: errors of the console, of scripts, and requests that failed.
    """

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(30_000)
        self.requests: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda said: said.type == "error" and self.wrong.append(said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", lambda request: self.wrong.append(f"{request.url} {request.failure}"))
        # Playwright catches dialogs for files only once someone listens, which must be before one opens.
        self.page.on("filechooser", lambda chooser: None)
        self.page.goto(address)

    def settle(self) -> None:
        """Waits until all resolutions of the picture are measured."""
        self.page.wait_for_selector("#chart[data-whole=true]")

    def choose(self, name: str, content: bytes, kind: str = "image/png") -> None:
        """Gives the page a file, as a visitor chooses one."""
        self.page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": content})

    def move_to(self, resolution: int) -> None:
        """Moves the slider, and waits for the answer at that resolution."""
        self.page.evaluate(
            "value => { const slider = document.getElementById('resolution'); slider.value = value;"
            " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            resolution,
        )
        self.await_text("#caption", rf" {resolution} \u00d7 {resolution}$")

    def await_text(self, selector: str, pattern: str) -> None:
        """Waits until the text of an element has that pattern somewhere; by no eval, which the page forbids."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_text(re.compile(pattern), timeout=30_000)
