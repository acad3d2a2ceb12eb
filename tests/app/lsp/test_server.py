"""`pml lsp` as an editor sees it: a real client over its standard streams, as able as three editors are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from engine.pml.edit.formatter import format_source
from tests.drawing import EVERY

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDITORS = ("visual-studio-code", "neovim@v0.11", "emacs") if EVERY else ("neovim@v0.11",)
SCHEMA = """<schema name="reise">
  <module name="plan">🗼 東京 für <param name="tage" len="5"/>.
    <union><module name="tokyo">🗼</module><module name="rome">Rom.</module></union>
  </module>
</schema>
"""
PROMPT = """<prompt schema="reise">
  <plan tage="3 🗼"><tokyo></tokyo></plan><!-- 東京 🗼 -->Wohin?
</prompt>
"""
UNITS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode("utf-8")),
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf-32": len,
}


class Editor(LanguageClient):
    """A client that knows how positions are counted, and what it has open."""

    encoding = "utf-16"


def editor() -> Editor:
    from pygls.protocol import default_converter
    from pytest_lsp.client import register_lsp_features

    made = Editor(converter_factory=default_converter)
    register_lsp_features(made)
    made.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: None)
    return made


@pytest_lsp.fixture(
    scope="module",
    params=EDITORS,
    config=ClientServerConfig(
        server_command=[sys.executable, "-m", "app", "lsp", "--model", "demo"], client_factory=editor
    ),
)
async def client(client: Editor, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    capabilities = client_capabilities(request.param)
    told = await client.initialize_session(types.InitializeParams(capabilities=capabilities))
    client.encoding = str(
        getattr(told.capabilities.position_encoding, "value", told.capabilities.position_encoding)
    )
    yield
    await client.shutdown_session()


def at(client: Editor, text: str, offset: int) -> types.Position:
    before = text[:offset].split("\n")
    return types.Position(len(before) - 1, UNITS[client.encoding](before[-1]))


def offset_of(client: Editor, text: str, position: types.Position) -> int:
    lines = text.split("\n")
    line = lines[position.line]
    start = sum(len(one) + 1 for one in lines[: position.line])
    return start + next(
        n for n in range(len(line) + 1) if UNITS[client.encoding](line[:n]) == position.character
    )


def applied(client: Editor, text: str, edits: Any) -> str:
    ordered = sorted(
        edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True
    )
    for edit in ordered:
        start, end = (offset_of(client, text, place) for place in (edit.range.start, edit.range.end))
        text = text[:start] + edit.new_text + text[end:]
    return text


class Desk:
    """Documents of a folder in an editor."""

    def __init__(self, client: Editor, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.texts: dict[str, str] = {}

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> None:
        self.texts[name] = text
        item = types.TextDocumentItem(self.uri(name), "pml", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type(self, name: str, text: str) -> None:
        self.texts[name] = text
        change = types.TextDocumentContentChangeWholeDocument(text)
        named = types.VersionedTextDocumentIdentifier(2, self.uri(name))
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(named, [change]))

    def close(self, name: str) -> None:
        named = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(named))

    def place(self, name: str, mark: str) -> dict[str, Any]:
        """The place behind a piece of a document."""
        text = self.texts[name]
        position = at(self.client, text, text.index(mark) + len(mark))
        return {"text_document": types.TextDocumentIdentifier(self.uri(name)), "position": position}

    def slice(self, name: str, span: types.Range) -> str:
        text = self.texts[name]
        return text[offset_of(self.client, text, span.start) : offset_of(self.client, text, span.end)]

    async def told(self, name: str, *codes: str | None) -> list[types.Diagnostic]:
        """The diagnostics of a document, once they are these."""
        for _ in range(3000):  # a minute, on a busy machine
            found = self.client.diagnostics.get(self.uri(name))
            if found is not None and [one.code for one in found] == list(codes):
                return list(found)
            await asyncio.sleep(0.02)
        raise AssertionError((name, codes, self.client.diagnostics.get(self.uri(name))))


@pytest.fixture
def desk(client: Editor, tmp_path: Path) -> Desk:
    (tmp_path / "reise 東京.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "zweite.pml").write_text(PROMPT, encoding="utf-8")
    return Desk(client, tmp_path)


async def test_faults_come_while_one_types_and_go(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT)
    await desk.told("eine.pml")
    desk.type("eine.pml", PROMPT.replace("Wohin?", "<toky/>"))
    (found,) = await desk.told("eine.pml", "E402")
    assert desk.slice("eine.pml", found.range) == "toky"
    assert (found.severity, found.source) == (types.DiagnosticSeverity.Error, "pml")
    assert "'toky'" in found.message
    desk.type("eine.pml", PROMPT)
    await desk.told("eine.pml")
    desk.close("eine.pml")


async def test_an_open_schema_counts_before_its_file(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT.replace("tokyo", "kyoto"))
    await desk.told("eine.pml", "E402")
    desk.open("reise 東京.pml", SCHEMA.replace("tokyo", "kyoto"))
    await desk.told("eine.pml")
    desk.close("reise 東京.pml")
    await desk.told("eine.pml", "E402")


async def test_a_file_that_another_program_changes_is_read_again(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT)
    await desk.told("eine.pml")
    (desk.folder / "reise 東京.pml").write_text(SCHEMA.replace("tokyo", "kyoto-bei-nacht"), encoding="utf-8")
    event = types.FileEvent(desk.uri("reise 東京.pml"), types.FileChangeType.Changed)
    desk.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await desk.told("eine.pml", "E402")


async def test_a_prompt_without_a_schema_says_so(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT.replace("reise", "andere"))
    (found,) = await desk.told("eine.pml", None)
    assert found.severity == types.DiagnosticSeverity.Information
    assert "no schema 'andere' is open or in this folder" in found.message
    assert desk.slice("eine.pml", found.range) == "andere"


async def test_what_can_be_written_is_offered_in_a_broken_document(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT.partition("<tokyo>")[0] + "<!-- 🗼 --><to")
    found = await desk.client.text_document_completion_async(
        types.CompletionParams(**desk.place("eine.pml", "--><to"))
    )
    assert isinstance(found, types.CompletionList)
    assert [item.label for item in found.items] == ["tokyo", "rome"]
    edit = found.items[0].text_edit
    assert isinstance(edit, types.TextEdit)
    assert applied(desk.client, desk.texts["eine.pml"], [edit]).endswith("<!-- 🗼 --><tokyo/>")


async def test_a_hover_tells_path_and_tokens(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT)
    found = await desk.client.text_document_hover_async(types.HoverParams(**desk.place("eine.pml", "<tok")))
    assert found is not None
    assert isinstance(found.contents, types.MarkupContent)
    path, text, sizes = found.contents.value.split("\n")
    assert (path, text) == ("plan/tokyo", "🗼")
    assert sizes.startswith("1 word, 1 character; ")
    assert "token" in sizes
    assert found.range is not None
    assert desk.slice("eine.pml", found.range) == "tokyo"


@pytest.mark.parametrize(
    ("mark", "named"),
    [("<tok", "tokyo"), ("</tok", "tokyo"), (" ta", "tage"), ('"rei', "reise"), ("<pl", "plan")],
)
async def test_a_definition_is_in_the_schema(desk: Desk, mark: str, named: str) -> None:
    desk.open("eine.pml", PROMPT)
    desk.texts["reise 東京.pml"] = SCHEMA
    found = await desk.client.text_document_definition_async(
        types.DefinitionParams(**desk.place("eine.pml", mark))
    )
    assert isinstance(found, types.Location)
    assert Path(desk.folder / "reise 東京.pml").as_uri() == found.uri
    assert desk.slice("reise 東京.pml", found.range) == named


@pytest.mark.parametrize(
    ("src", "found"), [("notes/a 東.txt", True), ("../outside.txt", False), ("none.txt", False)]
)
async def test_the_definition_of_a_src_is_its_file(desk: Desk, src: str, found: bool) -> None:
    (desk.folder / "notes").mkdir()
    (desk.folder / "notes" / "a 東.txt").write_text("Notes.", encoding="utf-8")
    (desk.folder.parent / "outside.txt").write_text("Notes.", encoding="utf-8")
    desk.open("mit.pml", f'<schema name="s"><module name="m" src="{src}"/></schema>')
    asked = types.DefinitionParams(**desk.place("mit.pml", 'src="'))
    place = await desk.client.text_document_definition_async(asked)
    assert isinstance(place, types.Location) == found
    if isinstance(place, types.Location):
        assert place.uri == (desk.folder / src).as_uri()


async def test_a_name_is_changed_in_the_schema_and_all_prompts(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT)
    place = desk.place("eine.pml", "<tok")
    able = await desk.client.text_document_prepare_rename_async(types.PrepareRenameParams(**place))
    assert isinstance(able, types.PrepareRenamePlaceholder)
    assert able.placeholder == "tokyo"
    edit = await desk.client.text_document_rename_async(types.RenameParams(**place, new_name="kyoto"))
    assert edit is not None
    changes = dict(edit.changes or {})
    for one in edit.document_changes or ():
        assert isinstance(one, types.TextDocumentEdit)
        assert one.text_document.version == (1 if one.text_document.uri == desk.uri("eine.pml") else None)
        changes[one.text_document.uri] = one.edits  # type: ignore[assignment]
    texts = {"eine.pml": PROMPT, "zweite.pml": PROMPT, "reise 東京.pml": SCHEMA}
    assert set(changes) == {desk.uri(name) for name in texts}
    for name, text in texts.items():
        assert applied(desk.client, text, changes[desk.uri(name)]) == text.replace("tokyo", "kyoto")


async def test_a_name_that_is_taken_is_refused_and_the_server_goes_on(desk: Desk) -> None:
    desk.open("eine.pml", PROMPT)
    place = desk.place("eine.pml", "<tok")
    with pytest.raises(JsonRpcException, match="'plan/rome' already exists") as refused:
        await desk.client.text_document_rename_async(types.RenameParams(**place, new_name="rome"))
    assert refused.value.code == types.LSPErrorCodes.RequestFailed.value
    found = await desk.client.text_document_references_async(
        types.ReferenceParams(**place, context=types.ReferenceContext(True))
    )
    assert found is not None
    assert len(found) == 5


async def test_a_quick_fix_mends_its_fault(desk: Desk) -> None:
    text = PROMPT.replace("<tokyo></tokyo>", "<!-- 🗼 --><toky></toky>")
    desk.open("eine.pml", text)
    (fault,) = await desk.told("eine.pml", "E402")
    found = await desk.client.text_document_code_action_async(
        types.CodeActionParams(
            types.TextDocumentIdentifier(desk.uri("eine.pml")), fault.range, types.CodeActionContext([fault])
        )
    )
    assert found is not None
    (action,) = found
    assert isinstance(action, types.CodeAction)
    assert (action.title, action.kind) == ("Write tokyo", types.CodeActionKind.QuickFix)
    assert action.edit is not None
    edits = [edit for one in action.edit.document_changes or () for edit in one.edits]
    edits += [edit for given in (action.edit.changes or {}).values() for edit in given]
    assert applied(desk.client, text, edits) == text.replace("toky", "tokyo")


async def test_a_document_is_formatted_and_a_broken_one_left_alone(desk: Desk) -> None:
    text = SCHEMA.replace("  <module", "<module").replace("name=", "name  =  ")
    desk.open("eine.pml", text)
    named = types.TextDocumentIdentifier(desk.uri("eine.pml"))
    asked = types.DocumentFormattingParams(named, types.FormattingOptions(2, True))
    found = await desk.client.text_document_formatting_async(asked)
    assert found
    assert applied(desk.client, text, found) == format_source(text)
    desk.type("eine.pml", text + "<")
    assert await desk.client.text_document_formatting_async(asked) is None


START = types.Position(0, 0)
ASKED: dict[str, Callable[[types.TextDocumentIdentifier], Any]] = {
    types.TEXT_DOCUMENT_HOVER: lambda named: types.HoverParams(named, START),
    types.TEXT_DOCUMENT_COMPLETION: lambda named: types.CompletionParams(named, START),
    types.TEXT_DOCUMENT_DEFINITION: lambda named: types.DefinitionParams(named, START),
    types.TEXT_DOCUMENT_REFERENCES: lambda named: types.ReferenceParams(
        types.ReferenceContext(True), named, START
    ),
    types.TEXT_DOCUMENT_PREPARE_RENAME: lambda named: types.PrepareRenameParams(named, START),
    types.TEXT_DOCUMENT_RENAME: lambda named: types.RenameParams(named, START, "kyoto"),
    types.TEXT_DOCUMENT_CODE_ACTION: lambda named: types.CodeActionParams(
        named, types.Range(START, START), types.CodeActionContext([])
    ),
    types.TEXT_DOCUMENT_FORMATTING: lambda named: types.DocumentFormattingParams(
        named, types.FormattingOptions(2, True)
    ),
}


@pytest.mark.parametrize("method", ASKED)
@pytest.mark.parametrize("closed", [True, False])
async def test_of_a_document_that_is_not_there_nothing_is_said(desk: Desk, method: str, closed: bool) -> None:
    if closed:
        desk.open("nowhere.pml", PROMPT)
        desk.close("nowhere.pml")
    desk.client.log_messages.clear()
    named = types.TextDocumentIdentifier(desk.uri("nowhere.pml"))
    assert await desk.client.protocol.send_request_async(method, ASKED[method](named)) is None
    assert desk.client.log_messages == []


async def test_of_a_text_that_was_never_saved_and_is_closed_nothing_is_said(desk: Desk) -> None:
    named = types.TextDocumentIdentifier("untitled:Untitled-7")
    for method, params in ASKED.items():
        assert await desk.client.protocol.send_request_async(method, params(named)) is None


async def test_a_text_that_was_never_saved_is_checked(desk: Desk) -> None:
    item = types.TextDocumentItem("untitled:Untitled-1", "pml", 1, '<schema name="s"><modul/></schema>')
    desk.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    desk.uri = lambda name: name  # type: ignore[method-assign]
    (found,) = [one for one in await desk.told("untitled:Untitled-1", "E205", "E202") if one.code == "E205"]
    assert "modul" in found.message
    desk.client.text_document_did_close(
        types.DidCloseTextDocumentParams(types.TextDocumentIdentifier("untitled:Untitled-1"))
    )


INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}'
GOODBYE = ('{"jsonrpc":"2.0","id":2,"method":"shutdown"}', '{"jsonrpc":"2.0","method":"exit"}')


def conversation(messages: list[str], *options: str) -> subprocess.CompletedProcess[bytes]:
    said = "".join(f"Content-Length: {len(message)}\r\n\r\n{message}" for message in messages)
    command = [sys.executable, "-m", "app", "lsp", *options]
    return subprocess.run(command, input=said.encode(), capture_output=True, check=False, timeout=60)


async def test_it_ends_with_an_editor_that_says_no_goodbye() -> None:
    done = conversation([INITIALIZE], "--stdio")
    assert done.returncode == 1
    assert b'"positionEncoding": "utf-16"' in done.stdout
    assert done.stderr == b""


async def test_without_a_tokenizer_and_after_what_is_no_message_it_serves(tmp_path: Path) -> None:
    schema = '<schema name=\\"s\\"><module name=\\"m\\">x</module></schema>'
    opened = (
        '{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":'
        f'{{"uri":"file:///nowhere/a.pml","languageId":"pml","version":1,"text":"{schema}"}}}}}}'
    )
    asked = (
        '{"jsonrpc":"2.0","id":9,"method":"textDocument/hover","params":{"textDocument":'
        '{"uri":"file:///nowhere/a.pml"},"position":{"line":0,"character":32}}}'
    )
    ready = '{"jsonrpc":"2.0","method":"initialized","params":{}}'
    unknown = '{"jsonrpc":"2.0","id":7,"method":"none/such","params":{}}'
    messages = ["{", unknown, INITIALIZE, ready, opened, asked, *GOODBYE]
    done = conversation(messages, "--model", str(tmp_path))
    assert done.returncode == 0
    assert b"Method Not Found" in done.stdout
    assert b"Tokens are not counted: model" in done.stdout
    assert b"1 word, 1 character" in done.stdout
