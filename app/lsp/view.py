"""One document laid open for a request: its elements, and the schema that it is or goes by."""

from __future__ import annotations

from collections.abc import Iterator

from app.base.document_index import Basis, Document, Library
from engine.pml import PromptEditError, Schema
from engine.pml.edit.prompt_source import Page, walk
from engine.pml.xml.elements import Element
from engine.pml.xml.reader import read


class View:
    """A document as it stands, however broken.

    Args:
        library: what is open, and what lies beside it.
        document: the document.

    Attributes:
        root: the root element, if there is one.
        basis: of a prompt, the schema that it goes by.
        schema: what the document says as a schema, or the tree that it goes by.
        page: of a prompt with a schema, which elements mean which modules.
    """

    def __init__(self, library: Library, document: Document) -> None:
        self.library, self.document = library, document
        self.basis: Basis | None = None
        self.schema: Schema | None = None
        self.page: Page | None = None
        if document.kind == "prompt":
            self.basis = library.basis(document)
            self.schema = self.basis.tree if self.basis else None
            self.page = opened(document.text, self.schema)
        elif document.kind == "schema":
            self.schema = library.schema(document).tree
        self.root = self.page.root if self.page else read(document.text).root

    @property
    def home(self) -> Document | None:
        """The schema's document: this one, or the one that it goes by."""
        if self.document.kind == "schema":
            return self.document
        return self.basis.document if self.basis else None

    def elements(self) -> Iterator[Element]:
        """All elements, in the order of the text."""
        return walk(self.root) if self.root is not None else iter(())

    def path_of(self, element: Element) -> str | None:
        """The module that an element defines or imports; None where it does neither."""
        if self.document.kind == "schema":
            return defined_path(element) if element.tag == "module" else None
        return self.page.path_of(element) or None if self.page else None


def opened(text: str, schema: Schema | None) -> Page | None:
    """A prompt's text against a schema; None where it has no root or there is no schema."""
    if schema is None:
        return None
    try:
        return Page(text, schema)
    except PromptEditError:
        return None


def defined_path(element: Element | None) -> str:
    """The path of the innermost module round a place of a schema, itself included; empty outside of all."""
    names: list[str] = []
    while element is not None:
        if element.tag == "module":
            name = element.get("name")
            names.append(name.value if name is not None and name.value else "?")
        element = element.parent
    return "/".join(reversed(names))
