"""The language server: receives messages, stores open documents, and responds.

A failed request gets an error response, and the server continues. Each change transfers the whole text, so
editor and server never disagree about line ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from app.base.document_index import ENDINGS, Document, Library, folder_of
from app.lsp import messages
from app.lsp.completion import complete
from app.lsp.formatting import formatting
from app.lsp.hover import hover
from app.lsp.occurrences import definition, occurrences
from app.lsp.positions import Positions
from app.lsp.quick_fixes import quick_fixes
from app.lsp.rename import NO_NAME, RenameError, old_name, rename
from app.lsp.sizes import TokenCounter, token_counter
from app.lsp.targets import Target, target_at
from app.lsp.view import View
from engine.base.errors import ModelError, PromptCacheError
from engine.files.text_files import TextFileError
from engine.pml import Edit, folded
from engine.pml.parse.sources import SourceError, read_source

Params = TypeVar("Params")
Answer = TypeVar("Answer")

PAUSE: Final = 0.15  # delay in seconds between the last change and the check of a document

_NO_SCHEMA: Final = "no schema {name} is open or in this folder, so the prompt's imports are not checked"


class PmlServer(LanguageServer):
    """A language server for PML. With a model, hovers show token counts."""

    def __init__(self, model: str | None = None) -> None:
        super().__init__(
            "pml", version("prompt-cache-studio"), text_document_sync_kind=types.TextDocumentSyncKind.Full
        )
        self.library = Library()
        self.model = model
        self.counter: TokenCounter | None = None
        self.ended = False
        self._uris: dict[Path, str] = {}
        self._due: asyncio.TimerHandle | None = None
        self._waiting: set[Path] = set()

    def report_server_error(self, error: Exception, source: object) -> None:  # noqa: ARG002 - the library's
        """Logs an internal error to the client; a failed request also gets an error response."""
        if not isinstance(error, RefusedError):
            self.say(f"{type(error).__name__}: {error}", types.MessageType.Error)

    def say(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Logs a line to the client."""
        self.window_log_message(types.LogMessageParams(kind, text))

    def take(self, uri: str, text: str) -> None:
        """Stores the text of an open document, and checks it after a delay."""
        path = path_of(uri)
        self._uris[path] = uri
        self.library.hold(path, text)
        self.check_soon(path)

    def let_go(self, uri: str) -> None:
        """Closes a document; its file is read again."""
        path = path_of(uri)
        self.library.release(path)
        self._uris.pop(path, None)
        self._waiting.discard(path)
        self.publish(uri, [])
        self.check_soon()

    def document(self, uri: str) -> Document:
        """Returns an open document or a file; raises NoDocumentError if there is no such text."""
        try:
            return self.library.document(path_of(uri))
        except TextFileError as error:
            raise NoDocumentError(uri) from error

    def view(self, uri: str) -> View:
        """Returns the view of an open document or a file; raises NoDocumentError if there is no such text."""
        return View(self.library, self.document(uri))

    def positions(self, text: str) -> Positions:
        """Returns the positions of a text in the client's encoding."""
        return Positions(text, self.workspace.position_codec)

    def uri_of(self, path: Path) -> str:
        """Returns the URI of a document, in the client's spelling if it is open."""
        return self._uris.get(path) or str(from_fs_path(str(path)))

    def can(self, capability: str) -> bool:
        """Returns whether the client has a capability, given by its path."""
        return bool(get_capability(self.client_capabilities, capability, False))

    def check_soon(self, *paths: Path) -> None:
        """Checks open documents after a delay: all, or these and their dependents."""
        self._waiting.update(paths or (document.path for document in self.library.held))
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(PAUSE, self._check)

    def _check(self) -> None:
        waiting, self._waiting, self._due = self._waiting, set(), None
        changed = any(file.kind != "prompt" for file in self.library.held if file.path in waiting)
        with self.library.looking_once():
            for document in self.library.held:
                if document.path in waiting or (changed and document.kind == "prompt"):
                    self._check_one(document)

    def _check_one(self, document: Document) -> None:
        try:
            self.publish(self.uri_of(document.path), self._found(document))
        except Exception as error:  # continue with the other documents
            self.report_server_error(error, JsonRpcException)

    def _found(self, document: Document) -> list[types.Diagnostic]:
        positions = self.positions(document.text)
        faults = [fault.in_place(document.text) for fault in folded(self.library.diagnostics(document))]
        diagnostics = [messages.diagnostic(fault, positions) for fault in faults]
        prompt = self.library.prompt(document).tree if document.kind == "prompt" else None
        if prompt is not None and prompt.schema and self.library.basis(document) is None:
            words = _NO_SCHEMA.format(name=repr(prompt.schema))
            diagnostics.append(messages.notice(words, positions.range(prompt.schema_span)))
        return diagnostics

    def publish(self, uri: str, found: list[types.Diagnostic]) -> None:
        """Sends a document's diagnostics to the client."""
        state = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, state))

    def target(self, uri: str, position: types.Position) -> tuple[View, Target | None]:
        """Returns the view of a document and the target at a position."""
        view = self.view(uri)
        offset = self.positions(view.document.text).offset(position)
        return view, target_at(view, offset)

    def location(self, document: Document, span: types.Range) -> types.Location:
        """Returns a location in a document."""
        return types.Location(self.uri_of(document.path), span)

    def edited(self, edits: dict[Path, list[Edit]]) -> types.WorkspaceEdit:
        """Converts edits of several documents to the client's form."""
        documents = {path: self.library.document(path) for path in edits}
        uris = {path: self.uri_of(path) for path in edits}
        versions = {path: self.workspace.get_text_document(uri).version for path, uri in uris.items()}
        return messages.workspace_edit(
            edits,
            {path: self.positions(document.text) for path, document in documents.items()},
            uris,
            versions if self.can("workspace.workspace_edit.document_changes") else None,
        )


class RefusedError(JsonRpcException):
    """A request cannot be carried out; the text explains why."""

    CODE = types.LSPErrorCodes.RequestFailed.value


class NoDocumentError(Exception):
    """The requested document is neither open nor a file."""


def _if_there(
    answer: Callable[[PmlServer, Params], Answer],
) -> Callable[[PmlServer, Params], Answer | None]:
    """Makes a request about a missing document return None."""

    @functools.wraps(answer)
    def answered(ls: PmlServer, params: Params) -> Answer | None:
        try:
            return answer(ls, params)
        except NoDocumentError:
            return None

    return answered


def path_of(uri: str) -> Path:
    """Returns the path of a document; for an unsaved document, its URI."""
    return Path(to_fs_path(uri) or uri)


def serve(server: PmlServer, stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Serves one client until it disconnects.

    Returns:
        0 after a proper shutdown, else 1.
    """
    # The client gets the errors; pygls would also write them to standard error.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    server.start_io(stdin, stdout)
    return 0 if server.ended else 1


def pml_server(model: str | None = None) -> PmlServer:
    """Returns a server with all features. With a model, hovers show token counts."""
    server = PmlServer(model)
    _keep_documents(server)
    _explain(server)
    _change(server)
    return server


def _keep_documents(server: PmlServer) -> None:
    """Registers document synchronisation and lifecycle."""

    @server.feature(types.INITIALIZED)
    def initialized(ls: PmlServer, _: types.InitializedParams) -> None:
        if ls.model is not None:
            try:
                ls.counter = token_counter(ls.model)
            except ModelError as error:
                words = f"Tokens are not counted: {error}"
                ls.window_show_message(types.ShowMessageParams(types.MessageType.Warning, words))
        if ls.can("workspace.did_change_watched_files.dynamic_registration"):
            patterns = [types.FileSystemWatcher(glob_pattern=f"**/*{ending}") for ending in ENDINGS]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers=patterns)
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            ls.client_register_capability(
                types.RegistrationParams([types.Registration("documents", method, options)])
            )

    @server.feature(types.SHUTDOWN)
    def shutdown(ls: PmlServer, _: None) -> None:
        ls.ended = True

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: PmlServer, params: types.DidOpenTextDocumentParams) -> None:
        ls.take(params.text_document.uri, params.text_document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: PmlServer, params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        ls.take(uri, ls.workspace.get_text_document(uri).source)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: PmlServer, _: types.DidSaveTextDocumentParams) -> None:
        ls.check_soon()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: PmlServer, params: types.DidCloseTextDocumentParams) -> None:
        ls.let_go(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(ls: PmlServer, _: types.DidChangeWatchedFilesParams) -> None:
        ls.check_soon()


def _explain(server: PmlServer) -> None:
    """Registers requests that change nothing."""

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["<", "/", " ", '"'])
    )
    @_if_there
    def completion(ls: PmlServer, params: types.CompletionParams) -> types.CompletionList | None:
        document = ls.document(params.text_document.uri)
        positions = ls.positions(document.text)
        completions = complete(ls.library, document, positions.offset(params.position))
        if completions is None:
            return None
        able = "text_document.completion.completion_item"
        formats = get_capability(ls.client_capabilities, f"{able}.documentation_format", None) or ()
        return messages.completion_list(
            completions,
            positions,
            snippets=ls.can(f"{able}.snippet_support"),
            markup=types.MarkupKind.PlainText in formats,
        )

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    @_if_there
    def hovered(ls: PmlServer, params: types.HoverParams) -> types.Hover | None:
        view = ls.view(params.text_document.uri)
        positions = ls.positions(view.document.text)
        hovered = hover(view, positions.offset(params.position), ls.counter)
        if hovered is None:
            return None
        text, span = hovered
        return types.Hover(types.MarkupContent(types.MarkupKind.PlainText, text), positions.range(span))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    @_if_there
    def defined(ls: PmlServer, params: types.DefinitionParams) -> types.Location | None:
        view, target = ls.target(params.text_document.uri, params.position)
        if target is None:
            return None
        if target.kind == "file":
            return _file(ls, view, target.name)
        defined = definition(view, target)
        if defined is None:
            return None
        document, span = defined
        return ls.location(document, ls.positions(document.text).range(span))

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    @_if_there
    def references(ls: PmlServer, params: types.ReferenceParams) -> list[types.Location] | None:
        view, target = ls.target(params.text_document.uri, params.position)
        if target is None or old_name(target) is None:
            return None
        locations: list[types.Location] = []
        for path, spans in occurrences(view, target).items():
            document = ls.library.document(path)
            positions = ls.positions(document.text)
            locations += [ls.location(document, positions.range(span)) for span in spans]
        return locations


def _file(ls: PmlServer, view: View, name: str) -> types.Location | None:
    """The start of a file that a schema includes text from."""
    folder = folder_of(view.document.path)
    if folder is None or folder / name not in view.library.sources(view.document):
        return None
    try:
        read_source(name, folder)
    except SourceError:
        return None
    start = types.Position(0, 0)
    return types.Location(ls.uri_of(folder / name), types.Range(start, start))


def _change(server: PmlServer) -> None:
    """Registers requests for edits."""

    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    @_if_there
    def prepare(ls: PmlServer, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
        view, target = ls.target(params.text_document.uri, params.position)
        name = old_name(target) if target is not None and view.home is not None else None
        if target is None or name is None:
            return None
        span = ls.positions(view.document.text).range(target.span)
        return types.PrepareRenamePlaceholder(span, name)

    @server.feature(types.TEXT_DOCUMENT_RENAME)
    @_if_there
    def renamed(ls: PmlServer, params: types.RenameParams) -> types.WorkspaceEdit | None:
        view, target = ls.target(params.text_document.uri, params.position)
        try:
            if target is None:
                raise RenameError(NO_NAME)
            return ls.edited(rename(view, target, params.new_name))
        except RenameError as error:
            raise RefusedError(str(error)) from None

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
    )
    @_if_there
    def actions(ls: PmlServer, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        kind = types.CodeActionKind.QuickFix
        only = params.context.only
        if only is not None and kind.value not in {getattr(wanted, "value", wanted) for wanted in only}:
            return None
        document = ls.document(params.text_document.uri)
        positions = ls.positions(document.text)
        return [
            types.CodeAction(
                title=fix.title,
                kind=kind,
                diagnostics=[messages.diagnostic(fault, positions) for fault in fix.faults],
                is_preferred=fix.sure,
                edit=ls.edited({document.path: list(fix.edits)}),
            )
            for fix in quick_fixes(ls.library, document, positions.span(params.range))
        ]

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    @_if_there
    def formatted(ls: PmlServer, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        document = ls.document(params.text_document.uri)
        try:
            return ls.positions(document.text).edits(formatting(document.text))
        except PromptCacheError as error:
            ls.say(f"{document.path.name} is unchanged: {error}", types.MessageType.Warning)
            return None
