"""The studio in a real browser: one server and one Chromium for all tests.

Without a Chromium the tests are left out with a printed reason, or fail where PML_REQUIRE_BROWSER=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SERVE = """
import sys
from pathlib import Path
from app.studio import launch
folder = Path(sys.argv[1])
documents = folder / "documents"
studio = launch(
    port=0, open_browser=False, block=False, cache_dir=folder / "cache", data_dir=folder / "data",
    schemas_dir=documents if documents.is_dir() else None,
)
print(studio.url, flush=True)
sys.stdin.read()
studio.close()
"""


expect.set_options(timeout=20_000)  # other tests run beside these


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


@dataclass
class Server:
    """A studio in a process of its own, and where it keeps everything."""

    url: str
    process: subprocess.Popen[str]
    folder: Path

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def serve(folder: Path) -> Server:
    """Starts a studio that keeps everything under `folder`; its documents are those of `documents` in it."""
    command = [sys.executable, "-c", SERVE, str(folder)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), f"the studio did not start: {url!r}"
    return Server(url, process, folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    assert path is not None, (
        "browser tests are required, and no chromium was found (apt-get install chromium)"
    )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = serve(tmp_path_factory.mktemp("studio"))
    yield server
    server.stop()


class Watched:
    """A page, with what it asked for and complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda line: self.complaints.append(line.text) if line.type == "error" else None,
        )

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


@pytest.fixture
def watched(browser: Browser, studio: Server) -> Iterator[Watched]:
    """A fresh page of 1280 pixels' width. Afterwards: nothing left the machine, and no error was logged."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    watch = Watched(context.new_page(), studio.url)
    yield watch
    context.close()
    foreign = [url for url in watch.requests if not url.startswith((studio.url, "data:", "blob:"))]
    assert foreign == []
    assert watch.complaints == []


@pytest.fixture
def author(watched: Watched) -> Page:
    """The Author page with the travel sample and its first prompt."""
    page = watched.page
    page.goto(watched.url)
    page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    page.evaluate("location.hash = '#/gallery'")
    page.locator("#page-gallery article").first.get_by_role("button").first.click()
    page.wait_for_function("document.documentElement.dataset.page === 'author'")
    page.wait_for_function("document.querySelector('.workspace-name').textContent.startsWith('Travel')")
    watched.measured()
    return page
