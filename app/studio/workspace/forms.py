"""The endpoints of the form view."""

from __future__ import annotations

from app.studio.documents.form import EditedForm, FormOfBoth, edited_form, read_form
from app.studio.documents.requests import EditForm, Texts
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.workspace.page_state import Parts


class Forms(Endpoints):
    """The endpoints of the form view."""

    def __init__(self, parts: Parts) -> None:
        self._documents, self._library = parts.documents, parts.library

    @endpoint
    def read_form(self, request: Texts) -> FormOfBoth:
        """Returns both documents as cards."""
        base = self._library.base_of(request.origin)
        return read_form(self._documents, request.schema, request.prompt, base)

    @endpoint
    def edit_form(self, request: EditForm) -> EditedForm:
        """Returns both documents after an edit in the form view."""
        return edited_form(self._documents, request, self._library.base_of(request.origin))
