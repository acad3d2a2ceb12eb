"""What the page sends with each question. Nothing is brought into a range: what does not fit is refused.

Texts are taken as they are: half of a surrogate pair is the editor's to show, and no reason to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf, Strict

from app.studio.drafts import Workspace
from app.studio.folder import Encoding, Stamp

Words = InstanceOf[str]
Whole = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Size = Annotated[float, Strict(), Field(ge=0)]
Flag = Annotated[bool, Strict()]
Kind = Literal["schema", "prompt"]


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """A question that needs no more than its name."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Both documents.

    Attributes:
        origin: the schema's source, as `Workspace` spells it.
    """

    schema: Words = ""
    prompt: Words = ""
    origin: Words = ""


@dataclass(frozen=True, kw_only=True)
class Check(Texts):
    """Both documents, to be checked.

    Attributes:
        fallback: the last schema without errors.
        known: digest of the schema whose module tree the page has.
    """

    fallback: Words | None = None
    known: Words | None = None


@dataclass(frozen=True, kw_only=True)
class Measure(Texts):
    """Both documents, to be measured.

    Attributes:
        settings: settings of a run; only those that say where segments stand and what they see are read.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pick:
    """A module that is taken into the prompt, or out of it."""

    path: Words
    on: Flag


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a picked module; an empty value leaves it out."""

    path: Words
    argument: Words
    value: Words


@dataclass(frozen=True, kw_only=True)
class EditPrompt(Texts):
    """One change in the picker."""

    edit: Argument | Pick


@dataclass(frozen=True, kw_only=True)
class FixDocument(Texts):
    """One of a document's faults.

    Attributes:
        kind: the document's kind.
        code: the fault's code.
        at: the offset at which the fault begins, in UTF-16.
    """

    kind: Kind
    code: Words
    at: Count


@dataclass(frozen=True, kw_only=True)
class OneText:
    """A text."""

    text: Words


@dataclass(frozen=True, kw_only=True)
class Export(Texts):
    """The form that is wanted: one of `engine.exchange.export`."""

    form: Words


@dataclass(frozen=True, kw_only=True)
class AddScaffold:
    """Modules to encode together.

    Attributes:
        modules: paths of the modules.
    """

    schema: Words
    modules: tuple[Words, ...]


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class SaveDraft(Page):
    """What stands in the editors, to be kept.

    Attributes:
        force: whether a newer revision is replaced all the same.
    """

    force: Flag = False


@dataclass(frozen=True, kw_only=True)
class Shelve:
    """What stands in the editors, to be put among the earlier workspaces."""

    page: Page


@dataclass(frozen=True, kw_only=True)
class OpenSample(Shelve):
    """A sample with one of its prompts, by number from 0."""

    name: Words
    prompt: Count = 0


@dataclass(frozen=True, kw_only=True)
class OpenFile(Shelve):
    """A document of the user's folder."""

    name: Words
    encoding: Encoding = "utf-8"


@dataclass(frozen=True, kw_only=True)
class OpenText(Shelve):
    """A document that the browser has read."""

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, kw_only=True)
class OpenShelved(Shelve):
    """An earlier workspace."""

    key: Words


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class SaveAs:
    """A document for a new file.

    Attributes:
        stamp: stamp of the file whose line ends the new one gets.
    """

    name: Words
    text: Words
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, kw_only=True)
class Work(Texts):
    """Both documents, and how they are run.

    Attributes:
        key: key of the work that begins.
        settings: settings, as `PageSettings` declares them.
    """

    key: Words
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OneJob:
    """A piece of long work."""

    key: Words


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """A run of this session."""

    number: Count
