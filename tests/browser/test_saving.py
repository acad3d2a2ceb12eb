"""Ctrl-S: each document goes to the file that it came from, or the page says that it did not, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import QUESTIONS, Server, Studios, Tab, Watched, came, reloaded, unrouted
from tests.browser.test_author import document, rewrite, text_of, wait_for_text

SCHEMA = '<schema name="mine"><module name="a">café</module></schema>\n'
WORKSPACE = "window.promptCacheStudio.workspace"
PROMPT = '<prompt schema="mine"><a/> And then?</prompt>\n'


@pytest.fixture(scope="module")
def home(studios: Studios, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("saving")
    (folder / "documents").mkdir()
    server = studios.start(folder)
    yield server, folder / "documents"
    server.stop()


@pytest.fixture
def documents(home: tuple[Server, Path]) -> Path:
    """A folder with one schema and one prompt."""
    folder = home[1]
    for path in folder.rglob("*.pml"):
        path.unlink()
    (folder / "mine.pml").write_bytes(SCHEMA.replace("\n", "\r\n").encode())
    (folder / "ask.pml").write_text(PROMPT, encoding="utf-8")
    return folder


@pytest.fixture
def page(tab: Tab, home: tuple[Server, Path], documents: Path) -> Iterator[Page]:
    """The page with both documents open."""
    watch = Watched(tab.empty(home[0].url), home[0].url)
    watch.page.goto(home[0].url)
    watch.page.wait_for_selector("html[data-studio=ready]", timeout=60_000)
    for name in ("mine.pml", "ask.pml"):
        open_document(watch.page, name)
    yield watch.page
    watch.over()


def choose(page: Page, item: str) -> None:
    page.get_by_role("button", name="File", exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


def open_document(page: Page, name: str) -> None:
    with page.expect_response(lambda answer: "open_file" in (answer.request.post_data or "")):
        choose(page, name)
    kind, text = ("schema", SCHEMA) if name == "mine.pml" else ("prompt", PROMPT)
    page.wait_for_function(
        f"([kind, name, text]) => {WORKSPACE}.fileOf(kind) === name && {WORKSPACE}.texts()[kind] === text",
        arg=[kind, name, text],
    )


def save(page: Page) -> None:
    page.keyboard.press("Control+s")


def head(page: Page):
    return page.locator(".workspace-name .saved")


def notice(page: Page):
    return page.locator(".notices")


def test_both_documents_are_written_to_their_files(page: Page, documents: Path) -> None:
    schema, prompt = SCHEMA.replace("café", "thé"), PROMPT.replace("then", "now")
    rewrite(page, "schema", schema)
    expect(head(page)).to_contain_text("mine.pml not saved")
    rewrite(page, "prompt", prompt)
    save(page)
    expect(head(page)).to_contain_text("saved to mine.pml, ask.pml")
    assert (documents / "mine.pml").read_bytes() == schema.replace("\n", "\r\n").encode()
    assert (documents / "ask.pml").read_text(encoding="utf-8") == prompt
    reloaded(page)
    rewrite(page, "prompt", PROMPT)
    expect(head(page)).to_contain_text("ask.pml not saved")
    save(page)
    expect(head(page)).to_contain_text("saved to mine.pml, ask.pml")
    assert (documents / "ask.pml").read_text(encoding="utf-8") == PROMPT


def dialog(page: Page):
    return page.locator("dialog[open]")


def focus(page: Page) -> None:
    """The window has the focus again, some time later."""
    page.evaluate("const now = Date.now; Date.now = () => now() + 5000; dispatchEvent(new Event('focus'))")


def test_theirs_mine_or_another_file(page: Page, documents: Path) -> None:
    file, theirs = documents / "ask.pml", PROMPT.replace("then", "theirs")
    mine = PROMPT.replace("then", "ours")
    rewrite(page, "prompt", mine)
    file.write_text(theirs, encoding="utf-8")
    focus(page)
    expect(notice(page)).to_contain_text("'ask.pml' was changed by another program")
    save(page)
    expect(dialog(page).locator("del")).to_have_text("theirs")
    expect(dialog(page).locator("ins")).to_have_text("ours")
    expect(head(page)).to_contain_text("ask.pml not saved")
    assert file.read_text(encoding="utf-8") == theirs
    dialog(page).get_by_role("button", name="Save mine as…").click()
    page.get_by_label("File name in your folder").fill("ours.pml")
    page.keyboard.press("Enter")
    expect(head(page)).to_contain_text("saved to mine.pml, ours.pml")
    assert (documents / "ours.pml").read_text(encoding="utf-8") == mine
    assert file.read_text(encoding="utf-8") == theirs
    (documents / "ours.pml").write_text(theirs, encoding="utf-8")
    focus(page)
    notice(page).get_by_role("button", name="Compare…").click()
    dialog(page).get_by_role("button", name="Load theirs").click()
    wait_for_text(page, "prompt", "theirs")
    expect(notice(page)).to_be_empty()
    choose(page, "Versions…")
    dialog(page).locator(".versions button").first.click()
    expect(dialog(page).locator("del")).to_have_text("ours")
    dialog(page).get_by_role("button", name="Restore").click()
    wait_for_text(page, "prompt", "ours")
    save(page)
    dialog(page).get_by_role("button", name="Keep mine: overwrite").click()
    expect(head(page)).to_contain_text("saved to mine.pml, ours.pml")
    assert (documents / "ours.pml").read_text(encoding="utf-8") == mine


@pytest.mark.long
def test_a_deleted_file_is_not_called_saved(page: Page, documents: Path) -> None:
    (documents / "mine.pml").unlink()
    save(page)
    expect(notice(page)).to_contain_text("no longer exists")
    expect(head(page)).to_contain_text("mine.pml not saved")
    notice(page).get_by_role("button", name="Create it again").click()
    expect(head(page)).to_contain_text("saved to mine.pml")
    assert (documents / "mine.pml").read_bytes() == SCHEMA.replace("\n", "\r\n").encode()


@pytest.mark.long
def test_undoing_the_opening_of_a_file_does_not_write_into_it(page: Page, documents: Path) -> None:
    (documents / "other.pml").write_text(PROMPT.replace("then", "other"), encoding="utf-8")
    reloaded(page)
    choose(page, "other.pml")
    wait_for_text(page, "prompt", "other")
    document(page, "prompt").press("Control+z")
    wait_for_text(page, "prompt", "then")
    with page.expect_response(lambda answer: "save_file" in (answer.request.post_data or "")):
        save(page)
    expect(head(page)).to_contain_text("saved to mine.pml, ask.pml")
    assert "other" in (documents / "other.pml").read_text(encoding="utf-8")
    assert (documents / "ask.pml").read_text(encoding="utf-8") == PROMPT


@pytest.mark.long
def test_another_encoding_is_asked_about(page: Page, documents: Path) -> None:
    schema = SCHEMA.replace("café", "naïve")
    (documents / "mine.pml").write_bytes(schema.encode("latin-1"))
    choose(page, "mine.pml")
    expect(notice(page)).to_contain_text("is not UTF-8 (byte 0xEF in line 1)")
    notice(page).get_by_role("button", name="Open as Windows-1252").click()
    wait_for_text(page, "schema", "naïve")
    expect(head(page)).to_contain_text("mine.pml not saved")
    save(page)
    expect(head(page)).to_contain_text("saved to mine.pml")
    assert (documents / "mine.pml").read_text(encoding="utf-8") == schema


def test_a_file_of_the_browser_is_read_whole_or_asked_about(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "latin.pml"
    file.write_bytes(SCHEMA.replace("\n", "\r\n").encode("latin-1"))
    page.get_by_label("Open a document from this computer").set_input_files(file)
    expect(notice(page)).to_contain_text("latin.pml is not UTF-8")
    assert "\ufffd" not in text_of(page, "schema")
    notice(page).get_by_role("button", name="Open as Windows-1252").click()
    expect(page.locator(".workspace-name .document")).to_have_text("latin.pml")
    assert text_of(page, "schema") == SCHEMA
    schema = SCHEMA.replace("café", "thé")
    rewrite(page, "schema", schema)
    save(page)
    expect(notice(page)).to_contain_text("the schema (latin.pml) was opened through the browser")
    expect(head(page)).not_to_contain_text("latin.pml")
    page.get_by_role("button", name="File", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Download the schema").click()
    assert (
        Path(download.value.path()).read_bytes()
        == SCHEMA.replace("café", "thé").replace("\n", "\r\n").encode()
    )


def test_new_rename_recent_and_the_folder(page: Page, documents: Path) -> None:
    (documents / "far").mkdir(exist_ok=True)
    (documents / "far" / "city.pml").write_text(SCHEMA.replace("mine", "city"), encoding="utf-8")
    choose(page, "Rename…")
    page.get_by_label("The file of the prompt").fill("mine.pml")
    page.get_by_role("button", name="Rename").click()
    expect(dialog(page)).to_contain_text("A file 'mine.pml' already exists")
    page.get_by_label("The file of the prompt").fill("far/question.pml")
    page.get_by_role("button", name="Rename").click()
    expect(head(page)).to_contain_text("mine.pml, question.pml have the same text")
    file = page.get_by_role("button", name="File", exact=True)
    expect(file).to_be_focused()
    choose(page, "Versions…")
    expect(dialog(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(file).to_be_focused()
    assert (documents / "far" / "question.pml").read_text(encoding="utf-8") == PROMPT

    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route) if "browse" in (route.request.post_data or "") else route.continue_()

    page.route(QUESTIONS, hold)
    choose(page, "Browse the folder…")
    page.get_by_label("Filter by name or schema").fill("city")
    page.keyboard.press("Enter")  # before the list is there
    expect(dialog(page)).to_contain_text("Reading the folder…")
    came(page, held).continue_()
    unrouted(page)
    expect(dialog(page).get_by_role("button", name="far/city.pml")).to_be_focused()
    page.keyboard.press("Enter")
    wait_for_text(page, "prompt", '<prompt schema="city">')
    expect(notice(page)).to_contain_text("The prompt was for another schema")
    page.get_by_role("tab", name="Prompt").click()
    page.get_by_role("textbox", name="Prompt document").press("Control+z")
    wait_for_text(page, "prompt", "And then?")
    expect(head(page)).to_contain_text("question.pml")
    choose(page, "New…")
    begin = page.get_by_role("button", name="Start from this text")
    expect(begin).to_be_disabled()
    page.get_by_label("Your text").fill("shared")
    expect(begin).to_be_enabled()
    page.get_by_label("Your text").fill(" ")
    expect(begin).to_be_disabled()
    dialog(page).get_by_role("button", name="Agent with tools").click()
    wait_for_text(page, "prompt", '<prompt schema="agent">')
    expect(page.locator(".workspace-name .document")).to_have_text("agent")
    rewrite(page, "schema", SCHEMA.replace("mine", "pasted"))
    wait_for_text(page, "prompt", '<prompt schema="pasted">')
    expect(page.locator(".workspace-name .document")).to_have_text("pasted")
    assert "search" not in text_of(page, "prompt"), "the starting point's imports are gone"
    rewrite(page, "prompt", "")
    page.get_by_role("button", name="Make it a prompt").click()
    wait_for_text(page, "prompt", '<prompt schema="pasted">\n</prompt>')
    rewrite(page, "prompt", "Is 1 < 2?")
    page.get_by_role("button", name="Make it a prompt").click()
    wait_for_text(page, "prompt", r"  Is 1 &lt; 2\?\n</prompt>")
    (documents / "mine.pml").unlink()
    page.get_by_role("button", name="File", exact=True).click()
    expect(page.get_by_role("menuitem", name="ask.pml")).to_have_count(0)
    expect(page.get_by_role("menuitem", name="mine.pml")).to_have_count(0)
    expect(page.get_by_role("menuitem").first).to_be_focused()
    page.keyboard.press("Escape")
    choose(page, "Recent…")
    expect(dialog(page).get_by_role("row", name="mine.pml")).to_contain_text("No longer exists.")
    expect(dialog(page).get_by_role("columnheader")).to_have_text(["Name", "Kind", "Opened", ""])
    expect(dialog(page).get_by_role("row", name="far/ Folder, 2 documents")).to_be_visible()
    dialog(page).get_by_role("button", name="far/", exact=True).click()
    expect(dialog(page).get_by_role("button", name="far/city.pml", exact=True)).to_be_visible()
    expect(dialog(page).get_by_role("row")).to_have_count(3)
    dialog(page).get_by_role("button", name="far/question.pml", exact=True).click()
    wait_for_text(page, "prompt", "And then?")
    expect(notice(page)).to_contain_text("for the schema “mine”")


def test_save_asks_for_a_folder_if_there_is_none(browser: Browser, studios: Studios, tmp_path: Path) -> None:
    server = studios.start(tmp_path)
    watched = Watched(browser.new_page(), server.url)
    page = watched.open()
    rewrite(page, "prompt", '<prompt schema="travel">mine</prompt>')
    page.keyboard.press("Control+s")
    expect(page.locator(".workspace-name .saved")).to_contain_text("Draft saved")
    folder = page.get_by_label("Folder on this machine")
    folder.fill("prompts")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(dialog(page)).to_contain_text("Write the whole path")
    folder.fill(str(tmp_path / "new" / "prompts"))
    page.get_by_role("button", name="Save", exact=True).click()
    expect(head(page)).to_contain_text("saved to travel.pml, travel.prompt.pml")
    saved = (tmp_path / "new" / "prompts" / "travel.prompt.pml").read_text(encoding="utf-8")
    assert saved == '<prompt schema="travel">mine</prompt>'
    page.close()
    server.stop()


PICKER = """
    window.picked = 0
    const own = folder => folder.getFileHandle("own.pml", { create: true })
    const file = () => navigator.storage.getDirectory().then(own)
    window.showSaveFilePicker = async () => {
        window.picked++
        const handle = await file()
        await (await handle.createWritable()).close()  // as Chromium empties the file
        return handle
    }
    window.showOpenFilePicker = async () => [await file()]
"""
READ = "async () => (await (await window.showOpenFilePicker())[0].getFile()).text()"
WRITE = """async text => {
    const stream = await (await window.showOpenFilePicker())[0].createWritable()
    await stream.write(text)
    await stream.close()
}"""


def test_a_file_of_the_browser_is_saved_again_without_a_question(page: Page, documents: Path) -> None:
    page.evaluate(PICKER)
    mine, theirs = SCHEMA.replace("café", "thé"), SCHEMA.replace("café", "eau minérale")
    page.evaluate(WRITE, SCHEMA)
    choose(page, "Open from this computer…")
    expect(page.locator(".workspace-name .document")).to_have_text("own.pml")
    rewrite(page, "schema", mine)
    expect(head(page)).to_contain_text("own.pml not saved")
    save(page)
    expect(head(page)).to_contain_text("saved to own.pml")
    assert page.evaluate(READ) == mine
    page.evaluate(WRITE, theirs)
    save(page)
    expect(dialog(page).locator("del")).to_have_text("eau minérale")
    assert page.evaluate(READ) == theirs
    dialog(page).get_by_role("button", name="Load theirs").click()
    wait_for_text(page, "schema", "eau minérale")
    rewrite(page, "schema", mine)
    save(page)
    expect(head(page)).to_contain_text("saved to own.pml")
    assert page.evaluate(READ) == mine
    assert page.evaluate("window.picked") == 0
    choose(page, "Save the prompt as a file…")
    expect(notice(page)).to_contain_text("The schema is in that file. Choose another file for the prompt.")
    assert page.evaluate(READ) == mine
    page.evaluate("async () => (await navigator.storage.getDirectory()).removeEntry('own.pml')")
    save(page)
    expect(notice(page)).to_contain_text("'own.pml' no longer exists. Nothing was written.")
    notice(page).get_by_role("button", name="Create it again").click()
    expect(head(page)).to_contain_text("saved to own.pml")
    assert page.evaluate(READ) == mine


def test_a_file_of_the_browser_is_saved_after_a_reload_when_the_user_allows_it(page: Page) -> None:
    page.evaluate(PICKER)
    page.evaluate(WRITE, SCHEMA)
    choose(page, "Open from this computer…")
    expect(head(page)).to_contain_text("own.pml")
    page.reload()
    expect(head(page)).to_contain_text("own.pml")
    page.evaluate(PICKER)
    page.evaluate("""Object.assign(FileSystemFileHandle.prototype, {
        queryPermission: async () => "prompt",
        requestPermission: async ({ mode }) => mode === window.allowed ? "granted" : "denied",
    })""")
    mine = SCHEMA.replace("café", "thé")
    rewrite(page, "schema", mine)
    save(page)
    expect(notice(page)).to_contain_text(
        "'own.pml' was not saved: the browser has no permission to write it."
    )
    page.evaluate("window.allowed = 'readwrite'")
    notice(page).get_by_role("button", name="Try again").click()
    expect(head(page)).to_contain_text("saved to own.pml")
    assert page.evaluate(READ) == mine
