"""What was found, in the form of the protocol, as far as a client can take it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from lsprotocol import types

from app.lsp.completion import Completion, Item
from app.lsp.positions import Positions
from engine.pml import Diagnostic, Edit
from engine.pml.diagnostics.diagnostic import NOTHING, TAGS

SOURCE: Final = "pml"

_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_KINDS: Final = {
    "element": types.CompletionItemKind.Keyword,
    "module": types.CompletionItemKind.Module,
    "attribute": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.Value,
    "file": types.CompletionItemKind.File,
}


def diagnostic(found: Diagnostic, positions: Positions) -> types.Diagnostic:
    """A diagnostic; its hint follows its sentence where the sentence does not say it."""
    said = found.hint in ("", NOTHING, TAGS) or found.hint in found.message
    hint = "" if said else f"\nhint: {found.advice}"
    return types.Diagnostic(
        range=positions.range(found.span),
        message=found.message + hint,
        severity=_SEVERITIES[found.severity],
        code=found.code,
        source=SOURCE,
    )


def notice(text: str, span: types.Range) -> types.Diagnostic:
    """Something to know about a document that is no fault of it."""
    return types.Diagnostic(
        range=span, message=text, severity=types.DiagnosticSeverity.Information, source=SOURCE
    )


def completion_list(
    found: Completion, positions: Positions, *, snippets: bool, markup: bool
) -> types.CompletionList:
    """What can be written, in its order.

    Args:
        found: the items.
        positions: of the document.
        snippets: whether the client goes on at places in what it has written.
        markup: whether it takes text that says of itself to be plain.
    """
    span = positions.range(found.span)
    items = [_item(item, number, span, snippets, markup) for number, item in enumerate(found.items)]
    return types.CompletionList(is_incomplete=False, items=items)


def workspace_edit(
    edits: Mapping[Path, Iterable[Edit]],
    positions: Mapping[Path, Positions],
    uris: Mapping[Path, str],
    versions: Mapping[Path, int | None] | None,
) -> types.WorkspaceEdit:
    """Edits of several documents.

    Args:
        edits: by document.
        positions: of each of them.
        uris: of each of them.
        versions: which state of each open one is meant; None for a client that cannot tell.
    """
    ordered = {path: positions[path].edits(given) for path, given in edits.items()}
    if versions is None:
        return types.WorkspaceEdit(changes={uris[path]: given for path, given in ordered.items()})
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uris[path], versions.get(path)), given
            )
            for path, given in ordered.items()
        ]
    )


def _item(item: Item, number: int, span: types.Range, snippets: bool, markup: bool) -> types.CompletionItem:
    snippet = snippets and bool(item.snippet)
    info: str | types.MarkupContent = item.info
    if markup and item.info:
        info = types.MarkupContent(types.MarkupKind.PlainText, item.info)
    return types.CompletionItem(
        label=item.label,
        kind=_KINDS[item.kind],
        detail=item.detail or None,
        documentation=info or None,
        sort_text=f"{number:05}",
        insert_text_format=types.InsertTextFormat.Snippet if snippet else types.InsertTextFormat.PlainText,
        text_edit=types.TextEdit(span, item.snippet if snippet else item.plain),
    )
