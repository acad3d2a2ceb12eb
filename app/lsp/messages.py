"""Converts results to protocol types, as far as the client supports them."""

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
    """Converts a diagnostic; its hint follows the message unless the message contains it."""
    has_hint = found.hint in ("", NOTHING, TAGS) or found.hint in found.message
    hint = "" if has_hint else f"\nhint: {found.advice}"
    return types.Diagnostic(
        range=positions.range(found.span),
        message=found.message + hint,
        severity=_SEVERITIES[found.severity],
        code=found.code,
        source=SOURCE,
    )


def notice(text: str, span: types.Range) -> types.Diagnostic:
    """Returns an information about a document."""
    return types.Diagnostic(
        range=span, message=text, severity=types.DiagnosticSeverity.Information, source=SOURCE
    )


def completion_list(
    found: Completion, positions: Positions, *, snippets: bool, markup: bool
) -> types.CompletionList:
    """Converts completion items, in their order.

    Args:
        found: the items.
        positions: positions of the document.
        snippets: whether the client supports snippets.
        markup: whether it supports a plain text content kind.
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
    """Converts edits of several documents.

    Args:
        edits: edits by document.
        positions: positions of each document.
        uris: URI of each document.
        versions: version of each open document; None if the client does not support versions.
    """
    ordered = {path: positions[path].edits(text_edits) for path, text_edits in edits.items()}
    if versions is None:
        return types.WorkspaceEdit(changes={uris[path]: text_edits for path, text_edits in ordered.items()})
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uris[path], versions.get(path)), text_edits
            )
            for path, text_edits in ordered.items()
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
