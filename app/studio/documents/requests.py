"""Request bodies of the page. Values out of range are rejected, not clamped.

Texts may have lone surrogates: the editor can produce them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

from pydantic import Field, InstanceOf, Strict

from app.studio.documents.drafts import Workspace
from app.studio.documents.folder import Encoding, Stamp
from app.studio.runs.run_frame import Mode

Words = InstanceOf[str]
Whole = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Size = Annotated[float, Strict(), Field(ge=0, lt=2**63, allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]
Kind = Literal["schema", "prompt"]
Fields = TypeVar("Fields")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def request(fields: type[Fields]) -> type[Fields]:
    """Turns a class of fields into a request type."""
    return dataclass(frozen=True, kw_only=True)(fields)


@request
class Nothing:
    """A request without a body."""


@request
class OneDocument:
    """A help document.

    Attributes:
        name: its file name without suffix.
    """

    name: str


@request
class Texts:
    """Both documents.

    Attributes:
        origin: the schema's source in the form of `Workspace.origin`.
    """

    schema: Words = ""
    prompt: Words = ""
    origin: Words = ""


@request
class Check(Texts):
    """Both documents, to check.

    Attributes:
        fallback: the last schema without errors.
        known: the digest of the schema whose module tree the page has.
    """

    fallback: Words | None = None
    known: Words | None = None


@request
class Measure(Texts):
    """Both documents, to measure.

    Attributes:
        settings: run settings; only positions and attention settings are used.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class OfNow:
    """The digests of both texts on the page, and their settings."""

    schema: Words
    prompt: Words
    settings: Mapping[str, Any]


@request
class Read(Measure):
    """Both documents, to show as the model reads them.

    Attributes:
        borders: whether to include token boundaries.
    """

    borders: Flag = False


@request
class Pick:
    """A module to pick or unpick."""

    path: Words
    on: Flag


@request
class Move:
    """A picked module to move by one place."""

    path: Words
    later: Flag


@request
class Argument:
    """An argument of a picked module; an empty value removes it."""

    path: Words
    argument: Words
    value: Words


@request
class Find(Texts):
    """Words of a module search."""

    words: Words


@request
class EditPrompt(Texts):
    """One change of the picks."""

    edit: Argument | Pick | Move


@request
class EditForm(Texts):
    """One edit in the form view.

    Attributes:
        act: what to do; `write` and `ask` change the prompt, the others the schema.
        card: the index of a card of that document.
        text: the new text of a card or question, or the new name of a module, schema or parameter.
        what: the part to add, or the old name of a parameter.
        number: the new place of a card among its neighbours, or the length of a parameter.
        default: the default of a parameter; None removes it.
    """

    act: Literal["text", "rename", "parameter", "add", "remove", "move", "write", "ask"]
    card: Count = 0
    text: Words = ""
    what: Words = ""
    number: Count = 0
    default: Words | None = None


@request
class FixDocument(Texts):
    """A diagnostic to fix.

    Attributes:
        kind: the document's kind.
        code: the diagnostic's code.
        at: the diagnostic's start offset in UTF-16.
        fix: the title of the fix.
    """

    kind: Kind
    code: Words
    at: Count
    fix: Words


@request
class RenameName(Texts):
    """A name to change in both documents.

    Attributes:
        kind: the document with the caret.
        at: the caret's offset in UTF-16.
        name: the new name; empty to return only the present one.
    """

    kind: Kind
    at: Count
    name: Words = ""


@request
class OneText:
    """A text."""

    text: Words


@request
class Export(Texts):
    """An export form: one of `engine.exchange.export`."""

    form: Words


@request
class AddScaffold:
    """Modules to encode together.

    Attributes:
        modules: paths of the modules.
        origin: the schema's source, to resolve the files that it reads.
    """

    schema: Words
    modules: tuple[Words, ...]
    origin: Words = ""


@request
class Page:
    """The contents of the editors.

    Attributes:
        settings: run settings.
        files: the stamps of the documents' files.
        base: the revision that the edits started from.
    """

    name: Words = ""
    schema: Words
    prompt: Words
    origin: Words = ""
    prompt_origin: Words = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)
    base: Count = 0

    def workspace(self) -> Workspace:
        """Returns the page as a workspace."""
        return Workspace(
            name=self.name,
            schema=self.schema,
            prompt=self.prompt,
            origin=self.origin,
            settings=dict(self.settings),
            prompt_origin=self.prompt_origin,
            files=dict(self.files),
        )


@request
class SaveDraft(Page):
    """The editors' contents, to save as a draft.

    Attributes:
        force: whether to replace a newer revision.
    """

    force: Flag = False


@request
class Shelve:
    """The editors' contents, to save as a version."""

    page: Page


@request
class OpenSample(Shelve):
    """A sample with one of its prompts, by number from 0."""

    name: Words
    prompt: Count = 0


@request
class OpenFile(Shelve):
    """A document of the user's folder."""

    name: Words
    encoding: Encoding = "utf-8"


@request
class OpenText(Shelve):
    """A document that the browser read."""

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@request
class OpenShelved(Shelve):
    """A version to open."""

    key: Words


@request
class SaveFile:
    """A document to save to its file.

    Attributes:
        stamp: the file's stamp when the text was opened.
        force: whether to overwrite a file that was changed or removed meanwhile.
        here: whether to assume this folder for a document of an unknown folder.
    """

    origin: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)
    force: Flag = False
    here: Flag = False


@request
class SaveAs:
    """A document to save to a new file.

    Attributes:
        stamp: the stamp to copy line endings from.
    """

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@request
class Work(Texts):
    """Both documents, and the settings to run them.

    Attributes:
        key: the key of the new job.
        settings: settings in the form of `PageSettings`.
        mode: the sides to run.
    """

    key: Words
    mode: Mode = "both"
    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class OneJob:
    """A background job."""

    key: Words


@request
class OneRun:
    """A run of this session."""

    number: Count
