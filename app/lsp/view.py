"""A document with its elements and its schema, for one request."""

from __future__ import annotations

from collections.abc import Iterator

from app.base.document_index import Basis, Document, Library
from engine.pml import PromptEditError, Schema
from engine.pml.edit.prompt_source import Page, walk
from engine.pml.xml.elements import Element
from engine.pml.xml.reader import read


class View:
    """A document, even a broken one.

    Attributes:
        root: the root element, if any.
        basis: the schema of a prompt.
        schema: the tree of the document as a schema, or of its schema.
        page: for a prompt with a schema, the modules of its elements.
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
        """Returns the document of the schema."""
        if self.document.kind == "schema":
            return self.document
        return self.basis.document if self.basis else None

    def elements(self) -> Iterator[Element]:
        """Returns all elements in text order."""
        return walk(self.root) if self.root is not None else iter(())

    def path_of(self, element: Element) -> str | None:
        """Returns the path of the module that an element defines or imports; None for other elements."""
        if self.document.kind == "schema":
            return defined_path(element) if element.tag == "module" else None
        return self.page.path_of(element) or None if self.page else None


def opened(text: str, schema: Schema | None) -> Page | None:
    """Matches a prompt's text to a schema; None without root or schema."""
    if schema is None:
        return None
    try:
        return Page(text, schema)
    except PromptEditError:
        return None


def defined_path(element: Element | None) -> str:
    """Returns the path of the innermost module around a place of a schema; empty outside modules."""
    names: list[str] = []
    while element is not None:
        if element.tag == "module":
            name = element.get("name")
            names.append(name.value if name is not None and name.value else "?")
        element = element.parent
    return "/".join(reversed(names))
