"""Renames a module, parameter or schema in both documents of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from typing_extensions import TypedDict

from app.base.document_index import Library
from app.lsp.rename import NO_NAME, old_name, rename
from app.lsp.targets import target_at
from app.lsp.view import View
from app.studio.documents.requests import RenameName
from app.studio.web.source_offsets import from_utf16
from engine.base.errors import PromptCacheError
from engine.pml import apply_edits

NOUNS: Final = {"module": "module", "param": "parameter", "schema": "schema"}


class Renamed(TypedDict):
    """A name at a place, and both documents after its change."""

    noun: str
    name: str
    schema: str
    prompt: str


def renamed(request: RenameName, base: Path | None) -> Renamed:
    """Returns the name at a place and both documents with the new name, unchanged without one.

    Raises:
        PromptCacheError: there is no name at the place, or the new name is invalid or taken.
    """
    library = Library(alone=True)
    paths = {kind: (base or Path()) / f"the {kind}" for kind in ("schema", "prompt")}
    for kind, text in (("schema", request.schema), ("prompt", request.prompt)):
        library.hold(paths[kind], text)
    document = library.document(paths[request.kind])
    view = View(library, document)
    target = target_at(view, from_utf16(document.text, request.at))
    name = old_name(target) if target else None
    if target is None or name is None:
        raise PromptCacheError(NO_NAME)
    if view.home is None:
        raise PromptCacheError("The prompt names another schema. Change its schema attribute first.")
    try:
        edits = rename(view, target, request.name) if request.name else {}
    except PromptCacheError as error:
        sentence = str(error)
        raise PromptCacheError(f"{sentence[0].upper()}{sentence[1:]}") from None
    schema, prompt = (
        apply_edits(text, edits.get(paths[kind], ()))
        for kind, text in (("schema", request.schema), ("prompt", request.prompt))
    )
    return {"noun": NOUNS[target.kind], "name": name, "schema": schema, "prompt": prompt}
