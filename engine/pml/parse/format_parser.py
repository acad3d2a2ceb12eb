"""Reads the format of a prompt's answer, `<answer-format>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from engine.grammars.grammar import GrammarError, compiled
from engine.pml.diagnostics.diagnostic import NOTHING, Reporter, Span, quote, swap
from engine.pml.diagnostics.spelling import Speller
from engine.pml.parse.decide_parser import CheckAttributes
from engine.pml.parse.sources import SourceError, read_source, require_inside
from engine.pml.tree.tree import AnswerFormat, FormatKind
from engine.pml.whitespace.rules import Run, contents, preserves
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.suggestions import escaped, meant_choice, removed

TAG: Final = "answer-format"
TYPES: Final = ("json", "choice", "regex")


def read_format(
    element: Element,
    text: str,
    report: Reporter,
    check: CheckAttributes,
    *,
    preserve: bool,
    base: Path | None,
) -> AnswerFormat | None:
    """Reads a format; returns None if it has an error.

    Args:
        element: the `<answer-format>` element.
        text: the document.
        report: takes the errors.
        check: reports unknown attributes.
        preserve: whether white space around it is preserved.
        base: the document's folder; without one, a file is not read.
    """
    before = len(report.errors)
    return _Reader(element, text, report, check, base, before).read(preserves(element, preserve))


@dataclass(frozen=True)
class _Reader:
    element: Element
    text: str
    report: Reporter
    check: CheckAttributes
    base: Path | None
    before: int  # errors before this element

    def read(self, preserve: bool) -> AnswerFormat | None:
        self.check(self.element, ("type", "src"))
        written: list[Run] = []
        options: list[Element] = []
        for item in contents(self.element, self.text, preserve):
            if isinstance(item, Run):
                written += [item] if item.text.strip() else []
            elif item.tag == "option":
                options.append(item)
            else:
                message = f"<{item.tag}> is not allowed in <{TAG}>; write <option>, or &lt; for '<'"
                self.report.add("E206", message, item.tag_span, f"&lt;{item.tag}", escaped(item))
        kind = self._kind(written, options)
        if kind is None:
            return None
        src = self._source(kind, written)
        labels = self._labels(kind, written, options)
        if kind == "regex" and not written:
            message = "the answer format has no pattern; write the regular expression that answers match"
            self.report.add("E214", message, self.element.tag_span)
        if len(self.report.errors) > self.before:
            return None
        words: str | None = "".join(run.text for run in written)
        place = Span(written[0].span.start, written[-1].span.end) if written else self.element.tag_span
        if src is not None:
            words, place = self._file(src), src.value_span
        name = src.value if src is not None else None
        found = AnswerFormat(cast(FormatKind, kind), words, labels, name, self.element.span, place)
        return found if self._is_sound(found, place) else None

    def _kind(self, written: Sequence[Run], options: Sequence[Element]) -> str | None:
        given = self.element.get("type")
        if given is None or not given.value.strip():
            object_text = not written or written[0].text.lstrip()[:1] == "{"
            meant = "choice" if options else "json" if object_text else "regex"
            message = f'the attribute type of <{TAG}> is missing; write type="{meant}"'
            at = self.element.tag_span.end
            fix = () if given else swap(Span(at, at), f' type="{meant}"')
            self.report.add("E202", message, self.element.tag_span, f'type="{meant}"', fix)
            return None
        if given.value not in TYPES:
            message = (
                f"the type of an answer format cannot be {quote(given.value)}; write json, choice or regex"
            )
            right = meant_choice(given.value, TYPES) or Speller().nearest(given.value, TYPES)
            self.report.add("E204", message, given.value_span, right or "", swap(given.value_span, right))
            return None
        return given.value

    def _source(self, kind: str, written: Sequence[Run]) -> Attribute | None:
        """The attribute with a file's name, if it is allowed here."""
        src = self.element.get("src")
        if src is None:
            return None
        if kind != "json":
            message = f'only type="json" has a file; write the {kind} here'
            self.report.add("E203", message, src.name_span, NOTHING, removed(self.text, src.span))
        elif written:
            message = "the schema is both in the file and here; keep one of them"
            self.report.add("E207", message, written[0].span)
        try:
            require_inside(src.value)
        except SourceError as error:
            self.report.add(error.code, str(error), src.value_span)
        return src

    def _labels(self, kind: str, written: Sequence[Run], options: Sequence[Element]) -> tuple[str, ...]:
        labels = list[str]()
        if kind != "choice":
            for option in options:
                message = f'<option> is only for type="choice", not for a {kind}; remove it'
                self.report.add("E206", message, option.tag_span, NOTHING, removed(self.text, option.span))
            return ()
        for run in written:
            message = f'text {quote(run.text, 30)} is not an option; write <option value="…"/>'
            self.report.add("E207", message, run.span)
        for option in options:
            self.check(option, ("value",))
            value = option.get("value")
            if value is None or not value.value.strip():
                message = 'the attribute value of <option> is missing; write <option value="…"/>'
                self.report.add("E202", message, option.tag_span, 'value="…"')
                continue
            inner = [
                item for item in contents(option, self.text, False) if isinstance(item, Element) or item.text
            ]
            if inner:
                message = "an option of an answer format is only its value; remove the content"
                at = inner[0].tag_span if isinstance(inner[0], Element) else inner[0].span
                self.report.add("E207", message, at)
            if value.value in labels:
                message = f"two options have the name {quote(value.value)}; remove one"
                self.report.add("E307", message, value.value_span, NOTHING, removed(self.text, option.span))
            labels.append(value.value)
        if not options:
            message = 'a choice has no option; write <option value="…"/> for each possible answer'
            self.report.add("E214", message, self.element.tag_span, '<option value="…"/>')
        return tuple(labels)

    def _file(self, src: Attribute) -> str | None:
        """The text of a file; None if it is not read."""
        if self.base is None:
            return None
        try:
            return read_source(src.value, self.base)
        except SourceError as error:
            self.report.add(error.code, str(error), src.value_span)
            return None

    def _is_sound(self, found: AnswerFormat, place: Span) -> bool:
        if found.text is None:
            return self.base is None
        try:
            compiled(found.grammar)
        except GrammarError as error:
            fault, _, remedy = str(error).rstrip(".").rpartition(". ")
            message = f"{fault[:1].lower()}{fault[1:]}; {remedy[:1].lower()}{remedy[1:]}"
            self.report.add("E215", message, self._of_key(error.keys, place))
            return False
        return True

    def _of_key(self, keys: Sequence[str], place: Span) -> Span:
        """The place of a refused keyword, if it is in the document; else the whole format."""
        for key in keys:
            at = self.text.find(f'"{key}"', place.start, place.end)
            if at >= 0:
                return Span(at, at + len(key) + 2)
        return place
