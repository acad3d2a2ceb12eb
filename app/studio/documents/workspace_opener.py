"""Opens texts and saves the previous workspace as a version."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

import sample_schemas
from app.studio.documents.drafts import Drafts, Workspace
from app.studio.documents.fitting import fits, fresh_prompt
from app.studio.documents.folder import Encoding, Stamp
from app.studio.documents.folder_index import Catalogue
from app.studio.documents.recent import Recent
from app.studio.documents.requests import Page
from app.studio.documents.samples import Library
from app.studio.runs.settings import as_today
from app.studio.web.json_answers import Json, JsonOf
from engine.base.errors import PromptCacheError
from engine.pml import document_kind, parse_prompt, parse_schema

MOST_OFFERS = 3


class Offer(TypedDict):
    """A schema to suggest: a sample or a file of the user's folder."""

    words: str
    sample: NotRequired[str]
    file: NotRequired[str]


class Opened(TypedDict):
    """The open workspace, or a question about a file in another encoding.

    `told` reports what happened to the other document. `offers` are schemas to open with it.
    """

    workspace: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    kind: NotRequired[Literal["schema", "prompt"]]
    encoding: NotRequired[Encoding]
    message: NotRequired[str]
    told: NotRequired[str]
    offers: NotRequired[list[Offer]]


class Desk:
    """Opens workspaces and documents in place of the page's.

    Args:
        drafts: the open workspace, and the versions.
        library: the samples and the user's folder.
        recent: the list of recent documents.
    """

    def __init__(self, drafts: Drafts, library: Library, recent: Recent) -> None:
        self._drafts, self._library, self._recent = drafts, library, recent
        self.catalogue = Catalogue(library.folder)

    def keep(self, page: Page) -> Workspace:
        """Saves the page's editors as the open workspace."""
        workspace = page.workspace()
        self._drafts.save(workspace, base=page.base, force=True)
        return workspace

    def open(self, workspace: Workspace, page: Page) -> Opened:
        """Opens a workspace; the page's becomes a version."""
        self.keep(page)
        return {"workspace": workspace_json(self._drafts.replace(workspace))}

    def open_document(
        self, text: str, name: str, origin: str, stamp: Stamp, page: Page, *, edited: bool = False
    ) -> Opened:
        """Opens a schema or a prompt alongside the page's other document.

        A schema replaces a prompt of another schema by a fresh one. For a prompt of another schema, schemas
        of its name are offered. `edited` means that a save changes the file's bytes.

        Raises:
            PromptCacheError: the text is neither a schema nor a prompt.
        """
        kind = document_kind(text)
        if kind is None:
            raise PromptCacheError(
                f"{name!r} is not a PML document. Open a file whose root is <schema> or <prompt>, or "
                "import it: File, Import."
            )
        previous = self.keep(page)
        files = {**previous.files, kind: {**asdict(stamp), "edited": edited}}
        opened: Opened = {"kind": kind}
        if kind == "prompt":
            workspace = replace(previous, prompt=text, prompt_origin=origin, files=files)
            opened.update(self._offered(text, previous.schema, name if origin.startswith("file:") else ""))
        else:
            workspace = replace(previous, name=name, schema=text, origin=origin, files=files)
            schema = parse_schema(text, base=self._library.base_of(origin)).tree
            if schema is not None and not fits(schema, previous.prompt):
                files.pop("prompt", None)
                workspace = replace(workspace, prompt=fresh_prompt(schema), prompt_origin="", files=files)
                if previous.prompt.strip():
                    opened["told"] = (
                        "The prompt was for another schema, so a new one was started. Press Ctrl-Z "
                        "in the prompt to restore it, or open it under File, Versions."
                    )
        opened["workspace"] = workspace_json(self._drafts.replace(workspace))
        if not origin.startswith("browser:"):
            self._recent.note(origin, name, kind)
        return opened

    def _offered(self, prompt: str, schema: str, file: str) -> Opened:
        """Finds schemas for a prompt that does not belong to the open one."""
        tree = parse_prompt(prompt).tree
        name = tree.schema if tree is not None else None
        present = parse_schema(schema).tree
        if not name or (present is not None and present.name == name):
            return {}
        files = self.catalogue.schemas(name, beside=file)[:MOST_OFFERS]
        samples = [sample for sample in sample_schemas.samples() if sample.name == name]
        offers: list[Offer] = [{"words": f"Open {path}", "file": path} for path in files]
        offers += [Offer(words=f"Open the sample {sample.title}", sample=sample.name) for sample in samples]
        message = f"This prompt is for the schema “{name}”, but another schema is open."
        if not offers:
            message += " Your folder and the samples have no schema of that name."
        return {"told": message, "offers": offers}


def workspace_json(workspace: Workspace) -> Json:
    """Returns a workspace for the page."""
    return {**asdict(workspace), "settings": as_today(workspace.settings)}
