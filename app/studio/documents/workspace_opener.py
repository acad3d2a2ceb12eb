"""What is open: texts are laid on the desk, what lay there before goes to the shelf."""

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
    """A schema that could be opened next: one of the samples, or a file of the user's folder."""

    words: str
    sample: NotRequired[str]
    file: NotRequired[str]


class Opened(TypedDict):
    """The workspace that is open now; or what to ask about a file in another encoding.

    `told` is a sentence on what became of the other document, `offers` what could be opened with it.
    """

    workspace: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    kind: NotRequired[Literal["schema", "prompt"]]
    encoding: NotRequired[Encoding]
    message: NotRequired[str]
    told: NotRequired[str]
    offers: NotRequired[list[Offer]]


class Desk:
    """Opens workspaces and documents in place of what a page has.

    Args:
        drafts: the open workspace, and the shelf.
        library: the samples and the user's folder.
        recent: the list of what was opened.
    """

    def __init__(self, drafts: Drafts, library: Library, recent: Recent) -> None:
        self._drafts, self._library, self._recent = drafts, library, recent
        self.catalogue = Catalogue(library.folder)

    def keep(self, page: Page) -> Workspace:
        """Keeps what stands in a page's editors as the open workspace."""
        kept = page.workspace()
        self._drafts.save(kept, base=page.base, force=True)
        return kept

    def open(self, workspace: Workspace, page: Page) -> Opened:
        """Opens a workspace; the page's goes to the shelf."""
        self.keep(page)
        return {"workspace": workspace_json(self._drafts.replace(workspace))}

    def open_document(
        self, text: str, name: str, origin: str, stamp: Stamp, page: Page, *, edited: bool = False
    ) -> Opened:
        """Opens a schema or a prompt beside the page's other document.

        A prompt that is for another schema than the one that is opened makes room for a fresh one. For a
        prompt of another schema than the open one, those of its name are offered. `edited` says that the file
        will hold other bytes when the text is written.

        Raises:
            PromptCacheError: the text is neither.
        """
        kind = document_kind(text)
        if kind is None:
            raise PromptCacheError(
                f"{name!r} is no PML document. Open a file whose root is <schema> or <prompt>, or import it: "
                "File, Import."
            )
        kept = self.keep(page)
        files = {**kept.files, kind: {**asdict(stamp), "edited": edited}}
        opened: Opened = {"kind": kind}
        if kind == "prompt":
            workspace = replace(kept, prompt=text, prompt_origin=origin, files=files)
            opened.update(self._offered(text, kept.schema, name if origin.startswith("file:") else ""))
        else:
            workspace = replace(kept, name=name, schema=text, origin=origin, files=files)
            schema = parse_schema(text, base=self._library.base_of(origin)).tree
            if schema is not None and not fits(schema, kept.prompt):
                files.pop("prompt", None)
                workspace = replace(workspace, prompt=fresh_prompt(schema), prompt_origin="", files=files)
                if kept.prompt.strip():
                    opened["told"] = (
                        "The prompt was for another schema, so a new one is begun. Ctrl-Z in the prompt "
                        "brings it back, and it is among the versions (File menu)."
                    )
        opened["workspace"] = workspace_json(self._drafts.replace(workspace))
        if not origin.startswith("browser:"):
            self._recent.note(origin, name, kind)
        return opened

    def _offered(self, prompt: str, schema: str, file: str) -> Opened:
        """Where the schema of a prompt is, if it is not the open one."""
        tree = parse_prompt(prompt).tree
        wanted = tree.schema if tree is not None else None
        present = parse_schema(schema).tree
        if not wanted or (present is not None and present.name == wanted):
            return {}
        files = self.catalogue.schemas(wanted, beside=file)[:MOST_OFFERS]
        samples = [one for one in sample_schemas.samples() if one.name == wanted]
        offers: list[Offer] = [{"words": f"Open {found}", "file": found} for found in files]
        offers += [Offer(words=f"Open the sample {one.title}", sample=one.name) for one in samples]
        told = f"This prompt is for the schema “{wanted}”, which is not the one that is open."
        if not offers:
            told += " There is none of that name in your folder or among the samples."
        return {"told": told, "offers": offers}


def workspace_json(workspace: Workspace) -> Json:
    """A workspace for the page."""
    return {**asdict(workspace), "settings": as_today(workspace.settings)}
