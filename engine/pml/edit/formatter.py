"""Formats a document: indentation and canonical tags, without changing a token.

Lines of text are never joined or split. Comments stay in place. Text under `xml:space="preserve"` is
unchanged. White space is added only where the white-space rules ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import quote
from engine.pml.diagnostics.errors import PromptError
from engine.pml.parse.documents import parse_prompt, parse_schema
from engine.pml.parse.prompt_parser import document_kind
from engine.pml.tree.tree import Prompt, Schema
from engine.pml.whitespace.rules import SILENT, SPACE, Run, contents, preserves, separator
from engine.pml.xml.elements import Attribute, Chars, Element
from engine.pml.xml.escaping import escaped_value
from engine.pml.xml.names import PATH, ROLES
from engine.pml.xml.reader import Document, read

INDENT: Final = "  "
WIDTH: Final = 100  # longer one-line turns and arguments get lines of their own

_INLINE: Final = ("param", "parameter")
_SHORT: Final = ("arg", "decide", "answer-format", "option", *ROLES)
_LOOSE: Final = ("schema", "prompt", *_SHORT)
_SPELLED: Final = {"parameter": "param", "length": "len"}
_ORDER: Final = (
    *("name", "type", "len", "cache", "src", "default", "scaffold", "modules"),
    *("xml:space", "xml:lang"),
)
_COMMENT: Final = re.compile("<!--.*?-->", re.DOTALL)


class FormatError(PromptCacheError):
    """A document that cannot be formatted without changing its meaning."""


def format_source(source: str) -> str:
    """Returns the canonical form of a schema or prompt, which may have errors of names and structure.

    Formatting is idempotent and preserves the tree, so the token ids stay the same.

    Raises:
        PromptError: the document is not well-formed.
        FormatError: its root is neither a schema nor a prompt.
    """
    document = read(source)
    for result in _layouts(document):
        if _tree(result) == _tree(document.text):
            return result
    raise FormatError("this document cannot be formatted without changing its meaning; please report it")


def first_layout(source: str) -> str:
    """Returns the formatted document without checking that its tree is unchanged.

    Raises:
        PromptError: the document is not well-formed.
        FormatError: its root is neither a schema nor a prompt.
    """
    return next(_layouts(read(source)))


def _layouts(document: Document) -> Iterator[str]:
    """Yields candidates for the canonical form, the best first."""
    if document.report.errors:
        raise PromptError(document.report.finish())
    kind = document_kind(document.text)
    if document.root is None or kind is None:
        tag = quote(document.root.tag) if document.root else "nothing"
        raise FormatError(f"the root element is {tag}; only a schema or a prompt can be formatted")
    for careful in (False, True):
        yield _Printer(document, kind == "prompt", careful).print(document.root)


def start_tag(tag: str, attributes: list[tuple[str, str]], empty: bool) -> str:
    """Returns a start tag with its attributes escaped."""
    parts = [f'{name}="{escaped_value(value)}"' for name, value in attributes]
    return f"<{' '.join([tag, *parts])}{'/' if empty else ''}>"


def _tree(source: str) -> Schema | Prompt | None:
    kind = document_kind(source)
    return parse_prompt(source).tree if kind == "prompt" else parse_schema(source).tree


@dataclass(slots=True)
class _Paragraph:
    """Text, comments and parameters between two other elements, as written."""

    raw: str

    @property
    def blank(self) -> bool:
        return not self.raw.strip(SPACE)

    @property
    def silent(self) -> bool:
        """Whether it has only comments and white space."""
        return not _COMMENT.sub("", self.raw).strip(SPACE)

    @property
    def before(self) -> str:
        return self.raw[: len(self.raw) - len(self.raw.lstrip(SPACE))]

    @property
    def after(self) -> str:
        return self.raw[len(self.raw.rstrip(SPACE)) :]

    def lines(self) -> list[str]:
        """Returns the lines without their common indentation and without white space at both ends."""
        first, *rest = self.raw.split("\n")
        if not first.strip(SPACE):
            indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in rest if line.strip(SPACE)]
            margin = _common(indents)
            rest = [line.removeprefix(margin) for line in rest]
        rest = [line if line.strip(SPACE) else "" for line in rest]
        return "\n".join((first, *rest)).strip(SPACE).split("\n")


class _Printer:
    """Prints one document.

    Attributes of a prompt's imports are arguments and stay in order. A `careful` printer leaves the content
    of an element unchanged if formatting would change it.
    """

    def __init__(self, document: Document, is_prompt: bool, careful: bool) -> None:
        self._text = document.text
        self._is_prompt = is_prompt
        self._careful = careful
        self._printed: dict[int, str] = {}

    def print(self, root: Element) -> str:
        """Returns the whole document; text around the root keeps its lines."""
        for element, depth, preserve in reversed(list(_walk(root))):
            self._printed[id(element)] = self._element(element, depth, preserve)
        around = (self._text[: root.span.start].removeprefix("\ufeff"), self._text[root.span.end :])
        head, tail = (_unix(piece).strip(SPACE) for piece in around)
        return "\n".join(filter(None, (head, self._printed[id(root)], tail))) + "\n"

    def _element(self, element: Element, depth: int, preserve: bool) -> str:
        inner = self._verbatim(element) if preserve else self._content(element, depth)
        tag = element.tag if self._is_prompt else _SPELLED.get(element.tag, element.tag)
        opening = start_tag(tag, self._attributes(element), not inner)
        return f"{opening}{inner}</{tag}>" if inner else opening

    def _attributes(self, element: Element) -> list[tuple[str, str]]:
        attributes = list(element.attributes.values())
        if self._is_prompt and element.tag not in ("prompt", "arg", "decide", "answer-format", *ROLES):
            return [(attribute.name, attribute.value) for attribute in attributes]
        named = [(self._attribute_name(element, item), item) for item in attributes]
        rank = {name: place for place, name in enumerate(_ORDER)}
        named.sort(key=lambda pair: rank.get(pair[0], len(rank)))
        return [(name, _value(name, item.value)) for name, item in named]

    def _attribute_name(self, element: Element, attribute: Attribute) -> str:
        spelled = _SPELLED.get(attribute.name, attribute.name)
        is_param = element.tag in _INLINE and not self._is_prompt
        return spelled if is_param and spelled not in element.attributes else attribute.name

    def _verbatim(self, element: Element) -> str:
        pieces = [
            self._raw(child) if isinstance(child, Chars) else self._printed[id(child)]
            for child in element.children
        ]
        return "".join(pieces)

    def _raw(self, chars: Chars) -> str:
        return _unix(self._text[chars.span.start : chars.span.end])

    def _content(self, element: Element, depth: int) -> str:
        parts = list(self._parts(element))
        inner = self._laid_out(element, parts, depth, mini=False)
        if not self._careful or not inner:
            return inner
        mini = self._laid_out(element, parts, depth, mini=True)
        spaced = ' xml:space="default"'
        trial = read(f"<{element.tag}{spaced}>{mini}</{element.tag}>")
        same = trial.root is not None and not trial.report.errors
        if same and self._runs(element, self._text) == self._runs(trial.root, trial.text):
            return inner
        return self._verbatim(element)

    def _runs(self, element: Element | None, source: str) -> list[str]:
        if element is None:
            return []
        items = contents(element, source, False)
        return [
            f"text {item.before!r} {item.text} {item.after!r}" if isinstance(item, Run) else _kind(item)
            for item in items
        ]

    def _parts(self, element: Element) -> Iterator[_Paragraph | Element]:
        pieces: list[str] = []
        for child in element.children:
            if isinstance(child, Element) and child.tag not in _INLINE:
                yield _Paragraph("".join(pieces))
                yield child
                pieces = []
            else:
                pieces.append(self._raw(child) if isinstance(child, Chars) else self._printed[id(child)])
        yield _Paragraph("".join(pieces))

    def _laid_out(self, element: Element, parts: list[_Paragraph | Element], depth: int, mini: bool) -> str:
        """Returns the content on lines of its own if white space is ignored there or means a line break."""
        inline = self._one_line(element, parts, depth)
        if inline:
            return inline
        indent = "\n" + INDENT * (depth + 1)
        last = len(parts) - 1
        out: list[str] = []
        for place, part in enumerate(parts):
            if isinstance(part, Element):
                out.append(self._block(part, mini))
                continue
            sides = self._free(element, parts, place, -1), self._free(element, parts, place, 1)
            if part.silent and any(sides):
                sides = (True, True)
            closing = "\n" + INDENT * depth if place == last else ""
            if place == 0 and element.tag not in _LOOSE and not part.before and not part.silent:
                out.append(part.raw.rstrip(SPACE))  # lines after a tag have unknown indentation
                out.append(_space(part.after, indent, sides[1]) if last else closing if part.after else "")
                continue
            out.append(self._paragraph(part, indent, sides, first=place == 0, closing=closing))
        return "" if len(parts) == 1 and not "".join(out).strip(SPACE) else "".join(out)

    def _free(self, element: Element, parts: list[_Paragraph | Element], place: int, step: int) -> bool:
        """Whether white space on one side of a paragraph is ignored."""
        if element.tag == "union" and not self._is_prompt:
            return True
        at = place + step
        while 0 <= at < len(parts):
            part = parts[at]
            if isinstance(part, _Paragraph):
                if not part.silent:
                    return False
            elif part.tag not in SILENT:
                written = parts[place]
                silent = isinstance(written, _Paragraph) and written.silent
                free = part.tag in ("arg", *ROLES) or (
                    part.tag == "option" and element.tag in ("decide", "answer-format")
                )
                return free or (self._is_prompt and silent)
            at += step
        return True

    def _paragraph(
        self, part: _Paragraph, indent: str, free: tuple[bool, bool], *, first: bool, closing: str
    ) -> str:
        head, tail = _space(part.before, indent, free[0]), _space(part.after, indent, free[1])
        if first:
            head = head.removeprefix("\n") if head.startswith("\n\n") else head
        if part.blank:
            return closing or head
        if part.silent and part.before and "\n" not in part.before and not first:
            head = " "  # a comment on the line of the tag before it
        text = indent.join(part.lines()) if "\n" in head else part.raw.strip(SPACE)
        text = "\n".join(line if line.strip(SPACE) else "" for line in text.split("\n"))
        return head + text + (closing or tail)

    def _one_line(self, element: Element, parts: list[_Paragraph | Element], depth: int) -> str:
        """Returns the content if it is one line that fits with its tags, else ""."""
        if element.tag in ("schema", "prompt") or len(parts) != 1 or not isinstance(parts[0], _Paragraph):
            return ""
        lines = parts[0].lines()
        if element.tag not in _SHORT and "\n" in parts[0].before:
            return ""
        width = len(INDENT) * depth + len(lines[0]) + 2 * len(element.tag) + len("<></>")
        return lines[0] if len(lines) == 1 and (width <= WIDTH or element.tag not in _SHORT) else ""

    def _block(self, element: Element, mini: bool) -> str:
        return f"<{_kind(element)}/>" if mini else self._printed[id(element)]


def _space(written: str, indent: str, free: bool) -> str:
    """Returns the white space next to a paragraph: as written, or a line break if it is ignored."""
    seam = separator(written)
    if free:
        return "\n" + indent if seam == "\n\n" else indent
    return {"\n": indent, "\n\n": "\n" + indent}.get(seam, seam)


def _walk(root: Element) -> Iterator[tuple[Element, int, bool]]:
    """Yields every element with its depth and `preserve`, parents first."""
    pending = [(root, 0, preserves(root, False))]
    while pending:
        element, depth, preserve = pending.pop()
        yield element, depth, preserve
        below = [child for child in element.children if isinstance(child, Element)]
        pending.extend((child, depth + 1, preserves(child, preserve)) for child in below)


def _kind(element: Element) -> str:
    return _SPELLED.get(element.tag, element.tag)


def _value(name: str, value: str) -> str:
    if name == "modules":
        return " ".join(PATH.findall(value))
    return value.strip() if name in ("len", "length") else value


def _common(indents: list[str]) -> str:
    if not indents:
        return ""
    low, high = min(indents), max(indents)
    same = next((at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), None)
    return low if same is None else low[:same]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
