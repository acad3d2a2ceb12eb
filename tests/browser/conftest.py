"""The studio in a real browser: one server and one Chromium for all tests.

Playwright leaves its event loop running in this thread between two tests, where no other could run one. So
its fixtures are of the package: they end before a test of another folder begins.

Without a Chromium the tests are left out with a printed reason, or fail where PML_REQUIRE_BROWSER=1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Route, expect, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SERVE = """
import os, signal, sys
from pathlib import Path
import gradio, torch, transformers
from app.studio import launch

def serve(port, folder, parent):
    documents = folder / "documents"
    studio = launch(
        port=port, open_browser=False, block=False, cache_dir=folder / "cache", data_dir=folder / "data",
        schemas_dir=documents if documents.is_dir() else None,
    )
    print(studio.url, os.getpid(), flush=True)
    while signal.sigtimedwait([signal.SIGTERM], 1) is None and os.getppid() == parent:
        pass
    studio.close()

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
running = set()
for line in sys.stdin:
    what, _, given = line.strip().partition(" ")
    if what == "start":
        parent, child = os.getpid(), os.fork()
        if child == 0:
            try:
                port, _, folder = given.partition(" ")
                serve(int(port), Path(folder), parent)
            finally:
                os._exit(0)
        running.add(child)
    else:
        os.kill(int(given), signal.SIGKILL if what == "kill" else signal.SIGTERM)
        os.waitpid(int(given), 0)
        running.remove(int(given))
        print("stopped", flush=True)
for child in running:
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
"""


expect.set_options(timeout=20_000)  # other tests run beside these

COLOURS = """
    const rgb = c => { const x = document.createElement("canvas").getContext("2d")
        x.fillStyle = c; x.fillRect(0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data] }
    const light = c => rgb(c).slice(0, 3).map(v => v / 255)
        .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0)
    const ground = n => { for (; n; n = n.parentElement) {
        const c = getComputedStyle(n).backgroundColor
        if (rgb(c)[3] > 200) return c } return "white" }
"""
"""For scripts: `light` is the luminance of a colour, `ground` the colour behind an element."""


def chromium() -> str | None:
    """The browser to drive: PML_CHROMIUM, else the first Chromium on the path."""
    names = (os.environ.get("PML_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the browser tests out where there is no browser and none is required."""
    if chromium() is not None or os.environ.get("PML_REQUIRE_BROWSER") == "1":
        return
    ours = [item for item in items if HERE in item.path.parents]
    if ours:
        items[:] = [item for item in items if item not in ours]
        config.hook.pytest_deselected(items=ours)
        print(f"\n{len(ours)} browser tests left out: no chromium found (set PML_CHROMIUM to its path)")


CONFIG = "window.gradio_config = "


class Studios:
    """Studios, each in a process of its own, out of one that has loaded the libraries."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def start(self, folder: Path, port: int = 0) -> Server:
        """Starts a studio that keeps all under `folder`; its documents are those of `documents` in it."""
        url, _, process = self._said(f"start {port} {folder}").partition(" ")
        assert url.startswith("http://127.0.0.1:"), f"the studio did not start: {url!r}"
        return Server(
            url, folder, lambda: self._said(f"stop {process}"), lambda: self._said(f"kill {process}")
        )

    def close(self) -> None:
        """Ends all that still run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _said(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@dataclass(frozen=True)
class Server:
    """A running studio, where it keeps everything, and what ends its process, orderly or at once."""

    url: str
    folder: Path
    stop: Callable[[], object]
    kill: Callable[[], object]

    @cached_property
    def _shell(self) -> int:
        """The component that answers the questions of the page."""
        page = httpx.get(self.url).text
        config, _ = json.JSONDecoder().raw_decode(page, page.index(CONFIG) + len(CONFIG))
        return next(one["id"] for one in config["components"] if one["props"].get("elem_id") == "shell")

    def open_sample(self, name: str) -> None:
        """Opens a sample with its first prompt, as the Gallery page does."""
        asked = {"component_id": self._shell, "fn_name": "open_sample", "session_hash": "test"}
        asked["data"] = {"name": name, "page": {"name": "", "schema": "", "prompt": "", "base": 0}}
        answer = httpx.post(f"{self.url}/gradio_api/component_server/", json=asked, timeout=60)
        assert answer.json()["workspace"]["schema"], answer.text


@pytest.fixture(scope="package")
def studios() -> Iterator[Studios]:
    made = Studios()
    yield made
    made.close()


def still(started: Browser) -> Browser:
    """Lets a browser prefer pages without animations."""
    new_context, new_page = started.new_context, started.new_page

    def context(**options: Any) -> BrowserContext:
        return new_context(**{"reduced_motion": "reduce", **options})

    def page(**options: Any) -> Page:
        return new_page(**{"reduced_motion": "reduce", **options})

    started.new_context, started.new_page = context, page  # type: ignore[method-assign]
    return started


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    assert path is not None, (
        "browser tests are required, and no chromium was found (apt-get install chromium)"
    )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield still(started)
        started.close()


@pytest.fixture(scope="package")
def studio(studios: Studios, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = studios.start(tmp_path_factory.mktemp("studio"))
    yield server
    server.stop()


QUESTIONS = "**/component_server/"
"""The address of everything that the page asks its server."""


def unrouted(page: Page) -> None:
    """Ends the routes of a page; what a handler still fetches or holds goes on to the server.

    After `Page.unroute` such a handler raises "Route is already handled!" in whatever the test does then.
    """
    page.unroute_all(behavior="ignoreErrors")


def reloaded(page: Page) -> None:
    """Loads a page again and waits until it can be used."""
    page.reload()
    page.wait_for_selector("html[data-studio=ready]", timeout=60_000)


def becomes(page: Page, script: str, wanted: Any, arg: Any = None) -> None:
    """Waits until a script returns a value; the failure shows the last one."""
    ends = time.monotonic() + 20
    while (found := page.evaluate(script, arg)) != wanted:
        assert time.monotonic() < ends, f"{found} is not {wanted}"
        page.wait_for_timeout(50)


def settled(page: Page, script: str) -> Any:
    """What a script returns once it returns the same for a while."""
    found = None
    while (after := page.evaluate(script)) != found:
        found = after
        page.wait_for_timeout(300)
    return found


def came(page: Page, held: list[Route]) -> Route:
    """The first request that a handler holds, once it is there."""
    ends = time.monotonic() + 20
    while not held:
        assert time.monotonic() < ends, "no such request came"
        page.wait_for_timeout(50)
    return held[0]


KEEP_NOTHING = "() => { Storage.prototype.setItem = () => {}; localStorage.clear(); sessionStorage.clear() }"


class Tab:
    """One tab for many tests: where the scripts were compiled once the page loads four times as fast."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None

    def empty(self, url: str) -> Page:
        """The tab with nothing of the last test in it, and nothing that a browser keeps for the studio."""
        if self._page is None or not self._left(self._page, url):
            self.close()
            context = self._browser.new_context(accept_downloads=True)
            self._page = context.new_page()
        self._page.set_viewport_size({"width": 1280, "height": 900})
        return self._page

    def _left(self, page: Page, url: str) -> bool:
        """Whether the page of the last test could be left, for one of the same studio: it has the scripts."""
        unrouted(page)
        page.context.clear_permissions()
        if page.context.pages != [page] or not page.url.startswith(url):
            return False
        try:
            page.evaluate(KEEP_NOTHING)
            page.goto(f"{url}/theme.css", timeout=5000)
        except Error:
            return False
        return True

    def close(self) -> None:
        """Closes the tab."""
        if self._page is not None:
            self._page.context.close()
        self._page = None


class Watched:
    """A page, with what it asked for and complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._listeners: dict[Any, Callable[[Any], object]] = {
            "request": lambda request: self.requests.append(request.url),
            "pageerror": lambda error: self.complaints.append(str(error)),
            "console": lambda line: self.complaints.append(line.text) if line.type == "error" else None,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def over(self) -> None:
        """Nothing left the machine, and no error was logged."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        foreign = [one for one in self.requests if not one.startswith((self.url, "data:", "blob:"))]
        assert foreign == []
        assert self.complaints == []

    def open(self, path: str = "") -> Page:
        """Loads the page and waits until it can be used."""
        self.page.goto(self.url + path)
        self.ready()
        return self.page

    def ready(self) -> None:
        """Waits until the studio has filled the page with a sound schema."""
        self.page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
        self.measured()

    def measured(self) -> None:
        """Waits until the modules have their sizes."""
        self.page.wait_for_function("document.querySelectorAll('.picker .badge[data-tier]').length > 0")


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Tab]:
    made = Tab(browser)
    yield made
    made.close()


@pytest.fixture
def watched(tab: Tab, studio: Server) -> Iterator[Watched]:
    """A page of 1280 pixels' width that nothing was done with. Afterwards it is `over`.

    The studio has the travel sample open; an earlier test may have left an invalid schema.
    """
    studio.open_sample("travel")
    watch = Watched(tab.empty(studio.url), studio.url)
    yield watch
    watch.over()


@pytest.fixture
def author(watched: Watched) -> Page:
    """The Author page with the travel sample and its first prompt."""
    page = watched.open("/#/author")
    expect(page.locator(".workspace-name")).to_contain_text("Travel")
    return page
