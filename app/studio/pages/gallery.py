"""The Gallery: samples that are ready to run."""

from __future__ import annotations

from typing_extensions import TypedDict

from app.studio.documents.requests import Nothing
from app.studio.documents.samples import Sample
from app.studio.pages.page import Page
from app.studio.web.endpoints import endpoint
from app.studio.workspace.page_state import Parts


class Gallery(TypedDict):
    """The samples."""

    samples: list[Sample]


class GalleryPage(Page):
    """The server side of the Gallery."""

    name, title = "gallery", "Gallery"

    def __init__(self, parts: Parts) -> None:
        self._library = parts.library

    @endpoint
    def list_samples(self, _request: Nothing) -> Gallery:
        """Returns the samples with summaries of their prompts."""
        return {"samples": self._library.gallery()}
