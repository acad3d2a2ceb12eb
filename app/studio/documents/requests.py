"""What the page sends with each question. Nothing is brought into a range: what does not fit is refused.

Texts are taken as they are: half of a surrogate pair is the editor's to show, and no reason to refuse.
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
    """Makes a class of fields what the page sends."""
    return dataclass(frozen=True, kw_only=True)(fields)


@request
class Nothing:
    """A question that needs no more than its name."""


@request
class OneDocument:
    """A document of the help.

    Attributes:
        name: its file's name without the ending.
    """

    name: str


@request
class Texts:
    """Both documents.

    Attributes:
        origin: the schema's source, as `Workspace` spells it.
    """

    schema: Words = ""
    prompt: Words = ""
    origin: Words = ""


@request
class Check(Texts):
    """Both documents, to be checked.

    Attributes:
        fallback: the last schema without errors.
        known: digest of the schema whose module tree the page has.
    """

    fallback: Words | None = None
    known: Words | None = None


@request
class Measure(Texts):
    """Both documents, to be measured.

    Attributes:
        settings: settings of a run; only those that say where segments stand and what they see are read.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class OfNow:
    """What is open, by the digests of both texts, and its settings."""

    schema: Words
    prompt: Words
    settings: Mapping[str, Any]


@request
class Read(Measure):
    """Both documents, to be shown as a model reads them.

    Attributes:
        borders: also where tokens begin.
    """

    borders: Flag = False


@request
class Pick:
    """A module that is taken into the prompt, or out of it."""

    path: Words
    on: Flag


@request
class Argument:
    """An argument of a picked module; an empty value leaves it out."""

    path: Words
    argument: Words
    value: Words


@request
class Find(Texts):
    """Words that modules are looked for by."""

    words: Words


@request
class EditPrompt(Texts):
    """One change in the picker."""

    edit: Argument | Pick


@request
class FixDocument(Texts):
    """One of a document's faults.

    Attributes:
        kind: the document's kind.
        code: the fault's code.
        at: the offset at which the fault begins, in UTF-16.
        fix: which of its fixes, by what it is called.
    """

    kind: Kind
    code: Words
    at: Count
    fix: Words


@request
class OneText:
    """A text."""

    text: Words


@request
class Export(Texts):
    """The form that is wanted: one of `engine.exchange.export`."""

    form: Words


@request
class AddScaffold:
    """Modules to encode together.

    Attributes:
        modules: paths of the modules.
        origin: where the schema came from, for the files that it reads.
    """

    schema: Words
    modules: tuple[Words, ...]
    origin: Words = ""


@request
class Page:
    """What stands in the editors.

    Attributes:
        settings: settings of a run.
        files: the stamps of the documents' files.
        base: the revision that the texts started from.
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
        """Returns it as drafts are kept."""
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
    """What stands in the editors, to be kept.

    Attributes:
        force: whether a newer revision is replaced all the same.
    """

    force: Flag = False


@request
class Shelve:
    """What stands in the editors, to be put among the earlier workspaces."""

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
    """A document that the browser has read."""

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@request
class OpenShelved(Shelve):
    """An earlier workspace."""

    key: Words


@request
class SaveFile:
    """A document for the file that it came from.

    Attributes:
        stamp: stamp of the file when the text was opened.
        force: whether to write it although the file was changed or removed since.
        here: whether a document of an unknown folder is taken for one of this folder.
    """

    origin: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)
    force: Flag = False
    here: Flag = False


@request
class SaveAs:
    """A document for a new file.

    Attributes:
        stamp: stamp of the file whose line ends the new one gets.
    """

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@request
class Work(Texts):
    """Both documents, and how they are run.

    Attributes:
        key: key of the work that begins.
        settings: settings, as `PageSettings` declares them.
        mode: which sides of a run are computed.
    """

    key: Words
    mode: Mode = "both"
    settings: Mapping[str, Any] = field(default_factory=dict)


@request
class OneJob:
    """A piece of long work."""

    key: Words


@request
class OneRun:
    """A run of this session."""

    number: Count
