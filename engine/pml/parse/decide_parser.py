"""Reads the questions of a prompt, `<decide>`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from engine.pml.diagnostics.diagnostic import NOTHING, Reporter, Span, quote, swap
from engine.pml.diagnostics.spelling import Speller
from engine.pml.tree.tree import Decide, DecideKind
from engine.pml.whitespace.rules import Run, contents, preserves
from engine.pml.xml.elements import Element
from engine.pml.xml.suggestions import escaped, meant_choice, moved

TYPES: Final = ("predicate", "choice", "score")
MOST_OPTIONS: Final = 255
MOST_QUESTIONS: Final = 400

CheckAttributes = Callable[[Element, tuple[str, ...]], None]


def read_decide(
    element: Element, text: str, report: Reporter, check: CheckAttributes, *, preserve: bool
) -> Decide | None:
    """Reads a question; returns None if it has an error.

    Args:
        element: the `<decide>` element.
        text: the document.
        report: takes the errors.
        check: reports unknown attributes.
        preserve: whether white space around it is preserved.
    """
    before = len(report.errors)
    check(element, ("name", "type"))
    instructions: list[Run] = []
    options: list[Element] = []
    for item in contents(element, text, preserves(element, preserve)):
        if isinstance(item, Element):
            if item.tag == "option":
                options.append(item)
            else:
                message = f"<{item.tag}> is not allowed in <decide>; write <option>, or &lt; for '<'"
                report.add("E206", message, item.tag_span, f"&lt;{item.tag}", escaped(item))
        elif item.text.strip() and options:
            message = f"text {quote(item.text, 30)} follows an option; move it before the first <option>"
            edits = moved(text, item.span, options[0].span.start)
            report.add("E207", message, item.span, "it before <option>" if edits else "", edits)
        elif not options:
            instructions.append(item)
    kind = _kind(element, options, report)
    asked = "".join(run.text for run in instructions)
    if not asked.strip():
        message = "the question has no instructions; write what the model decides"
        report.add("E213", message, element.tag_span, "a question")
    labels = [_option(option, text, report, check, preserves(element, preserve)) for option in options]
    _check_count(element, kind, len(options), report)
    _check_different([option.get("value") for option in options], "option", report)
    if len(report.errors) > before or kind is None or None in labels:
        return None
    name = element.get("name")
    found = tuple(label for label in labels if label is not None)
    return Decide(cast(DecideKind, kind), asked, found, name.value.strip() if name else "", element.span)


def check_questions(elements: Sequence[Element], report: Reporter) -> None:
    """Reports questions with the same name, and too many questions."""
    _check_different([element.get("name") for element in elements], "question", report)
    if len(elements) > MOST_QUESTIONS:
        message = f"the prompt has {len(elements)} questions; a prompt has at most {MOST_QUESTIONS}"
        report.add("E213", message, elements[MOST_QUESTIONS].tag_span)


def _kind(element: Element, options: Sequence[Element], report: Reporter) -> str | None:
    given = element.get("type")
    if given is None or not given.value.strip():
        meant = "choice" if options else "predicate"
        message = f'the attribute type of <decide> is missing; write type="{meant}"'
        at = element.tag_span.end
        fix = () if given else swap(Span(at, at), f' type="{meant}"')
        report.add("E202", message, element.tag_span, f'type="{meant}"', fix)
        return None
    if given.value not in TYPES:
        message = f"the type of a question cannot be {quote(given.value)}; write predicate, choice or score"
        right = meant_choice(given.value, TYPES) or Speller().nearest(given.value, TYPES)
        report.add("E204", message, given.value_span, right or "", swap(given.value_span, right))
        return None
    return given.value


def _option(
    element: Element, text: str, report: Reporter, check: CheckAttributes, preserve: bool
) -> tuple[str, str] | None:
    """Returns the label and description of an option."""
    check(element, ("value",))
    description = ""
    for item in contents(element, text, preserves(element, preserve)):
        if isinstance(item, Run):
            description += item.text
        else:
            message = f"<{item.tag}> is not allowed in <option>, which contains only text"
            report.add("E206", message, item.tag_span, f"&lt;{item.tag}", escaped(item))
    value = element.get("value")
    if value is None or not value.value.strip():
        message = 'the attribute value of <option> is missing; write <option value="…">'
        report.add("E202", message, element.tag_span, 'value="…"')
        return None
    return value.value.strip(), description


def _check_count(element: Element, kind: str | None, count: int, report: Reporter) -> None:
    if kind == "predicate" and count:
        message = 'a predicate is answered with yes or no and has no options; write type="choice"'
        given = element.get("type")
        if given is not None:
            fix = swap(given.value_span, "choice") if count > 1 else ()
            report.add("E213", message, given.value_span, "choice" if fix else "", fix)
    elif kind in ("choice", "score") and not 2 <= count <= MOST_OPTIONS:
        noun = "option" if count == 1 else "options"
        message = f"the question has {count} {noun}; a {kind} needs 2 to {MOST_OPTIONS}"
        report.add("E213", message, element.tag_span, NOTHING if count > 1 else '<option value="…"/>')


def _check_different(names: Sequence[object], of: str, report: Reporter) -> None:
    seen: set[str] = set()
    for name in names:
        value = getattr(name, "value", "").strip()
        if value and value in seen:
            span = name.value_span  # type: ignore[attr-defined]
            report.add("E307", f"two {of}s have the name {quote(value)}; rename one", span)
        seen.add(value)
