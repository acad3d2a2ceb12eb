"""Writes a text of a form into its document, with its parameters."""

from __future__ import annotations

from dataclasses import replace

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import Edit, Span
from engine.pml.diagnostics.quick_fixes import apply_edits
from engine.pml.edit.form import Card, Form, form_of
from engine.pml.edit.form_text import SLOT, FormText, changed_range, slots_of, text_edit
from engine.pml.whitespace.rules import SPACE
from engine.pml.xml.elements import Element
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_value

NEW_LENGTH = 10  # tokens of a new parameter

Renamed = tuple[str, str] | None  # the old and the new name of a parameter


class FormError(PromptCacheError):
    """A form cannot make an edit; the message gives the reason."""


def written_text(form: Form, card: Card, typed: str, home: Card | None) -> tuple[str, Renamed]:
    """Returns the source with another text of a card, and the parameter that the text renames, if any.

    Args:
        form: the form.
        card: the text.
        typed: the new text; an empty text removes it.
        home: the module of the text, if any.

    Raises:
        FormError: the text has a character that XML forbids, or the form cannot edit it.
    """
    old = card.text
    if old is None or old.why:
        raise FormError("The form cannot edit this text. Edit it in the source.")
    if forbidden_character(typed) is not None:
        raise FormError("The text has a character that XML forbids. Remove it.")
    text = old.normal(typed)
    if not text:
        span = card.span if card.preserve else form.with_line(card.span)
        return apply_edits(form.source, [Edit(span, "")] if old.tokens else []), None
    params, renamed = _params(form, old, text, home) if home is not None and old.slots else ({}, None)
    if old.tokens:
        source = apply_edits(form.source, [text_edit(form.source, old, text, params)])
    else:
        source = _first_text(form, card, old, text, params)
    if home is not None and (SLOT.search(text) or SLOT.search(old.text)):
        source = _defined_first(source, home, form)
    return source, renamed


def _first_text(form: Form, card: Card, old: FormText, new: str, params: dict[int, str]) -> str:
    """Returns the source with a text in an element that has none."""
    element, source = form.cards[card.host].element, form.source
    assert element is not None
    inner = source[element.open_span.end : element.close_span.start] if element.close_span else ""
    lead = ""
    if not card.preserve and "\n" in inner:
        margin = (form.indent(element.span.start) or "") + form.unit()
        old = replace(old, margin=margin)
        lead = ("\r\n" if "\r\n" in inner else "\n") + margin
    text = lead + text_edit(source, old, new, params).text
    if element.empty_tag:
        head = source[: element.open_span.end - len("/>")].rstrip(SPACE)
        return f"{head}>{text}</{element.tag}>{source[element.span.end :]}"
    return source[: old.span.start] + text + source[old.span.start :]


def _params(form: Form, old: FormText, new: str, home: Card) -> tuple[dict[int, str], Renamed]:
    """Returns the source of the parameters in the changed part of a text, and a renamed parameter."""
    head, old_end, new_end = changed_range(old, new)
    inside = Span(old.place(head), old.place(old_end)) if old.tokens else Span(0, 0)
    removed: dict[str, list[str]] = {}
    others: set[str] = set()
    for param in form.params(home):
        if inside.start <= param.span.start < inside.end:
            raw = form.source[param.span.start : param.span.end]
            removed.setdefault(name_of(param), []).append(raw)
        else:
            others.add(name_of(param))
    params: dict[int, str] = {}
    fresh: dict[int, str] = {}
    gone = {name_of(param): param for param in form.params(home) if name_of(param) not in others}
    for match in slots_of(new, True):
        at, name = match.start(), match[1]
        if not head <= at < new_end:
            continue
        gone.pop(name, None)
        if removed.get(name):
            params[at] = removed[name].pop(0)
        elif name in others or name in removed:
            params[at] = f'<param name="{name}"/>'
        else:
            others.add(name)
            fresh[at] = name
    if len(fresh) == len(gone) == 1:
        ((at, name),), ((was, param),) = fresh.items(), gone.items()
        params[at] = _named(form.source, param, name)
        return params, (was, name)
    params |= {at: f'<param name="{name}" len="{NEW_LENGTH}"/>' for at, name in fresh.items()}
    return params, None


def _named(source: str, param: Element, name: str) -> str:
    """Returns the source of a parameter with another name."""
    span = param.attributes["name"].value_span
    return source[param.span.start : span.start] + name + source[span.end : param.span.end]


def _defined_first(source: str, home: Card, before: Form) -> str:
    """Returns the source with the length and default of each parameter at its first place in a module."""
    form = form_of(source)
    module = next((card for card in form.cards if (card.kind, card.path) == ("module", home.path)), None)
    if module is None:
        return source
    written = [(before.source, param) for param in before.params(home)]
    written += [(source, param) for param in form.params(module)]
    raws = {
        name_of(param): text[param.span.start : param.span.end]
        for text, param in written
        if param.get("len", "length")
    }
    edits: list[Edit] = []
    first: set[str] = set()
    moved: set[str] = set()
    for param in form.params(module):
        name, defined = name_of(param), param.get("len", "length") is not None
        if name in first and defined and name in moved:
            edits.append(Edit(param.span, f'<param name="{escaped_value(name)}"/>'))
        elif name not in first and not defined and name in raws:
            moved.add(name)
            edits.append(Edit(param.span, raws[name]))
        first.add(name)
    return apply_edits(source, edits)


def name_of(param: Element) -> str:
    """Returns the name of a parameter."""
    name = param.get("name")
    return name.value if name is not None else ""
