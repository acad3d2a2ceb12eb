"""The form view: both documents as cards, and its edits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from typing_extensions import TypedDict

from app.studio.documents.documents import Documents, Parameter, first_error
from app.studio.documents.requests import EditForm
from app.studio.web.source_offsets import to_utf16
from engine.base.errors import PromptCacheError
from engine.pml import Diagnostic, Module
from engine.pml.edit.form import Card, Form, form_of
from engine.pml.edit.form_edits import Edited, New

_WORDS = 300  # characters of a locked card


class FormCard(TypedDict):
    """A card of a document, before the cards inside it.

    `why` says why only the source can edit it; `at` is its place there.
    """

    kind: Literal["schema", "prompt", "turn", "module", "union", "import", "text", "locked"]
    depth: int
    name: str
    path: str
    text: str
    why: str
    at: int
    params: list[Parameter]


class FormOfOne(TypedDict):
    """The cards of a document; none but its first error if it has one. `at` is the place of the error."""

    cards: list[FormCard]
    error: str
    at: int


class FormOfBoth(TypedDict):
    """The cards of both documents. `question` is the card of the last text for the model, or -1."""

    schema: FormOfOne
    prompt: FormOfOne
    question: int


class EditedForm(TypedDict):
    """Both documents after an edit, and their cards. `card` is a new or moved card, or -1."""

    schema: str
    prompt: str
    card: int
    form: FormOfBoth


def read_form(documents: Documents, schema: str, prompt: str, base: Path | None) -> FormOfBoth:
    """Returns both documents as cards."""
    checked = documents.check(schema, prompt, base=base)
    modules = {module.path: module for module in checked.schema.tree.modules()} if checked.schema.tree else {}
    faults = checked.of_prompt if checked.schema.ok else checked.prompt.diagnostics
    blank = not prompt.strip(" \t\r\n\ufeff")
    written = _cards(prompt, () if blank else faults, {})
    return {
        "schema": _cards(schema, checked.schema.diagnostics, modules),
        "prompt": written,
        "question": _question(written["cards"]),
    }


def _cards(source: str, diagnostics: tuple[Diagnostic, ...], modules: dict[str, Module]) -> FormOfOne:
    offset, fault = to_utf16(source), first_error(diagnostics)
    if fault is not None:
        where = f"line {fault.line}" if not fault.file else f"{fault.file}, line {fault.line}"
        place = offset(fault.in_place(source).span.start)
        return {"cards": [], "error": f"{where}: {fault.message}", "at": place}
    form = form_of(source)
    return {
        "cards": [_card(form, card, offset(card.span.start), modules) for card in form.cards],
        "error": "",
        "at": 0,
    }


def _card(form: Form, card: Card, at: int, modules: dict[str, Module]) -> FormCard:
    module = modules.get(card.path) if card.kind == "module" else None
    raw = form.source[card.span.start : card.span.end] if card.kind == "locked" else ""
    return {
        "kind": card.kind,
        "depth": card.depth,
        "name": card.name,
        "path": card.path,
        "text": raw[:_WORDS] if raw else card.text.text if card.text is not None else "",
        "why": card.why,
        "at": at,
        "params": [
            {"name": param.name, "length": param.length, "default": param.default or ""}
            for param in (module.params() if module is not None else ())
        ],
    }


def _question(cards: list[FormCard]) -> int:
    """Returns the last text directly in a prompt or in a user turn."""
    hosts: list[FormCard] = []
    found = -1
    for index, card in enumerate(cards):
        del hosts[card["depth"] :]
        outer = hosts[-1] if hosts else card
        text = card["kind"] == "text" or (card["kind"] == "locked" and not card["name"])
        if text and (outer["kind"] == "prompt" or outer["name"] == "user"):
            found = index
        hosts.append(card)
    return found


def edited_form(documents: Documents, request: EditForm, base: Path | None) -> EditedForm:
    """Returns both documents after an edit in the form view.

    Raises:
        PromptCacheError: the edit is not possible; nothing was changed.
    """
    edited, card = Edited(request.schema, request.prompt, base), request.card
    focus = -1
    match request.act:
        case "text":
            edited.set_text(card, request.text)
        case "rename":
            edited.rename(card, request.text)
        case "parameter":
            edited.set_parameter(card, request.what, request.text, request.number, request.default)
        case "add":
            focus = edited.add(card, _new(request.what))
        case "remove":
            edited.remove(card)
        case "move":
            focus = edited.move(card, request.number)
        case "write":
            edited.set_prompt_text(card, request.text)
        case "ask":
            edited.ask(request.text)
    form = read_form(documents, edited.schema, edited.prompt, base)
    return {"schema": edited.schema, "prompt": edited.prompt, "card": focus, "form": form}


def _new(what: str) -> New:
    if what not in ("module", "union", "text", "system", "user", "assistant"):
        raise PromptCacheError("The page asked for an unknown part. Reload it and try again.")
    return cast(New, what)
