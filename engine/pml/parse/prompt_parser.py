"""Parses a prompt document into its tree. `binding` checks its imports against a schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from engine.pml.diagnostics.diagnostic import NOTHING, TAGS, Edit, Fix, LineIndex, Reporter, Span, quote, swap
from engine.pml.parse.decide_parser import check_questions, read_decide
from engine.pml.parse.format_parser import TAG, read_format
from engine.pml.parse.tree_builder import Frame, TreeBuilder
from engine.pml.tree.tree import AnswerFormat, Argument, Decide, Import, Prompt, Role, RoleName, Text
from engine.pml.whitespace.rules import INLINE, Run, contents, preserves
from engine.pml.xml.elements import Attribute, Chars, Element
from engine.pml.xml.names import HTML, NAME, RESERVED, ROLES, SPACE_MODES
from engine.pml.xml.reader import Document
from engine.pml.xml.scanner import Scanner
from engine.pml.xml.suggestions import escaped, meant_attribute, meant_choice, moved, removed, unwrapped

_MOST_MOVED: Final = 100  # imports that one fix moves
_MODULE: Final = re.compile(r"<module[ \t\r\n]")


def document_kind(source: str) -> Literal["schema", "prompt"] | None:
    """Returns the kind of a document by its root element."""
    tag = Scanner(source, Reporter(LineIndex(source))).first_tag()
    return cast(Literal["schema", "prompt"], tag) if tag in ("schema", "prompt") else None


def build_prompt(document: Document, base: Path | None = None) -> Prompt | None:
    """Builds the tree of a document; further errors go to its reporter. `src` needs the folder `base`."""
    if document.root is None:
        return None
    builder = _PromptBuilder(document.text, document.report)
    builder.base = base
    return builder.build(document.root)


@dataclass(slots=True)
class _Frame(Frame):
    arguments: list[Argument] = field(default_factory=list)


class _PromptBuilder(TreeBuilder[_Frame]):
    base: Path | None = None

    def build(self, root: Element) -> Prompt | None:
        if not self._is_root(root, "prompt", '<prompt schema="…">'):
            return None
        if not HTML.fullmatch(root.tag):
            self._check_attributes(root, ("schema",))
        name = root.get("schema")
        if name is not None and not name.value.strip():
            message = "the attribute schema is empty; name the schema, or leave the attribute out"
            self._report.add("E202", message, name.span, NOTHING, removed(self._text, name.span))
            name = None
        roles = (child for child in root.children if isinstance(child, Element) and child.tag in ROLES)
        self._first_role, self._end = next(roles, None), root.close_span
        frame = self._frame(root, "prompt", False)
        self._questions: list[Decide] = []
        self._asked: list[Element] = []
        self._formats: list[AnswerFormat | None] = []  # None for one with an error
        self._in_roles: list[tuple[Element, Element]] = []  # imports, each with its role
        self._fill(frame)
        self._check_roles()
        check_questions(self._asked, self._report)
        span = name.value_span if name else root.tag_span
        children = tuple(frame.children)
        report, questions = self._report, tuple(self._questions)
        title = name.value if name else None
        lines, torn = report.lines, report.torn
        answer = self._formats[0] if self._formats else None
        return Prompt(title, children, root.span, span, lines, self._text, torn, questions, answer)

    def _frame(self, element: Element, kind: Literal["prompt", "import", "role"], preserve: bool) -> _Frame:
        preserve = preserves(element, preserve)
        items = iter(contents(element, self._text, preserve))
        return _Frame(element, kind, items, preserve)

    def _text_run(self, frame: _Frame, run: Run) -> None:
        if not run.text:
            return
        if frame.kind == "role" or frame.preserve:
            before, after, begins = "", "", False
        else:  # text at the start of an import or prompt, or after a turn, begins a line
            begins = not frame.children or isinstance(frame.children[-1], Role)
            before, after = "\n" if begins else run.before, run.after
        seam = Text(before, run.span, True, implied=begins)
        texts = (seam, Text(run.text, run.span), Text(after, run.span, True))
        frame.children.extend(text for text in texts if text.text)

    def _finish(self, frame: _Frame) -> Import | Role:
        element, children = frame.element, tuple(frame.children)
        if frame.kind == "role":
            return Role(cast(RoleName, element.tag), children, element.span)
        name, closing = element.tag_span, element.close_span
        end = None
        if closing is not None and element.end_name == element.tag:
            end = Span(closing.start + len("</"), closing.start + len("</") + len(element.tag))
        unclosed = None if element.closed else element.open_span.end
        return Import(element.tag, tuple(frame.arguments), children, element.span, name, end, unclosed)

    def _element(self, frame: _Frame, element: Element) -> _Frame | None:
        tag = element.tag
        if tag == "arg":
            self._argument(frame, element)
            return None
        if tag in ROLES:
            return self._role(frame, element)
        if tag in ("decide", TAG):
            self._beside_text(frame, element)
            return None
        if tag in RESERVED:
            remedy, hint, fix = self._of_schema(frame, element)
            message = f"<{tag}> belongs to a schema and is not allowed in a prompt; {remedy}"
            choices: tuple[Fix, ...] = ()
            if fix and element.closed and element.children and tag in ("module", "schema", "union"):
                choices = self._without_text(element, hint, fix)
            self._report.add("E206", message, element.tag_span, hint, () if choices else fix, choices)
            if choices:
                return None
            # The content of an unclosed parameter is read as text after it. Reading it here too would
            # double the work for each one.
            swallowed = tag in INLINE and not element.closed
            return None if swallowed else self._transparent(frame, element)
        if frame.kind == "role":
            self._in_roles.append((element, frame.element))
            return None
        inner = self._frame(element, "import", frame.preserve)
        for key, attribute in element.attributes.items():
            if ":" not in key:
                inner.arguments.append(Argument(key, attribute.value, attribute.span, attribute.name_span))
        self._check_space(element)
        return inner

    def _of_schema(self, frame: _Frame, element: Element) -> tuple[str, str, tuple[Edit, ...]]:
        """Returns what to write for an element of a schema: in words, as a hint and as edits."""
        tag, name = element.tag, element.get("name")
        if tag == "module" and name and NAME.fullmatch(name.value):
            if frame.kind == "role" or not element.closed:
                return f"write <{name.value}/>", f"<{name.value}/>", ()
            start = Edit(Span(element.tag_span.start, name.span.end), name.value)
            return f"write <{name.value}/>", f"<{name.value}/>", (start, *element.renamed(name.value)[1:])
        if tag in ("param", "parameter") and frame.kind == "import" and element.renamed("arg"):
            return "an argument is an <arg>", "arg", element.renamed("arg")
        if tag == "scaffold" and element.closed and not element.children:
            return "remove it", NOTHING, (Edit(element.span, ""),)
        return "import modules by name, <name/>, and remove its tags", TAGS, unwrapped(element)

    def _without_text(self, element: Element, hint: str, fix: tuple[Edit, ...]) -> tuple[Fix, ...]:
        """Returns the choices for a part of a schema in a prompt, which has its text already."""
        name, tag = element.get("name"), element.tag
        if any(isinstance(child, Element) and child.tag not in RESERVED for child in element.children):
            return ()
        if tag == "module" and name:
            whole = f"<{name.value}/>"
            return (
                Fix(f"Write {whole} without this text: the schema has it", (Edit(element.span, whole),)),
                Fix(f"Write {hint} and add this text to it", fix),
            )
        if _MODULE.search(self._text, element.span.start, element.span.end) is None:
            return ()
        gone = Fix(f"Remove <{tag}>…</{tag}>: it belongs in the schema", (Edit(element.span, ""),))
        return (gone, Fix("Remove the tags", fix))

    def _check_roles(self) -> None:
        """Reports imports in roles. One fix moves all of them, so that they keep their order."""
        movable = [found for found in self._in_roles if self._is_movable(found[0])]
        edits: tuple[Edit, ...] = ()
        if 1 < len(movable) <= _MOST_MOVED:
            pairs = [self._before_roles(element) for element, _ in movable]
            place, whole = pairs[0][1].span, "".join(insertion.text for _, insertion in pairs)
            edits = (*(removal for removal, _ in pairs), Edit(place, whole))
        certain = not any(self._follows_text(*found) for found in movable)
        for element, role in self._in_roles:
            tag = element.tag
            message = (
                f"<{tag}> is not allowed in <{role.tag}>: turns of a prompt contain only text; "
                f"move it before <{role.tag}>, or write &lt;{tag} for literal text"
            )
            alone = self._before_roles(element)
            hint, fix = f"it before <{role.tag}>", alone
            choices: tuple[Fix, ...] = ()
            if any(isinstance(child, Chars) and child.text.strip() for child in element.children):
                hint, fix = f"&lt;{tag}", escaped(element)
            elif edits and self._is_movable(element):
                hint, fix = f"all {len(movable)} imports before the turns", edits
                if not certain:
                    fix, choices = (), (Fix(f"Move {hint}", edits),)
            elif fix and self._follows_text(element, role):
                fix, choices = (), (Fix(f"Move {hint}", alone),)
                if HTML.fullmatch(tag):
                    as_text = Fix(f"Write &lt;{tag}: the tag is then read as text", escaped(element))
                    hint, choices = f"&lt;{tag}", (as_text, *choices)
            self._report.add("E206", message, element.tag_span, hint if fix or choices else "", fix, choices)

    def _is_movable(self, element: Element) -> bool:
        """Whether an element in a role can only be an import, and can be moved."""
        says = any(isinstance(child, Chars) and child.text.strip() for child in element.children)
        return not says and not HTML.fullmatch(element.tag) and bool(self._before_roles(element))

    def _follows_text(self, element: Element, role: Element) -> bool:
        """Whether anything in its role precedes an element."""
        return bool(self._text[role.open_span.end : element.span.start].strip())

    def _before_roles(self, element: Element) -> tuple[Edit, ...]:
        """Returns the edits that move an import before the first turn of the prompt."""
        first = self._first_role
        if (
            first is None
            or not (element.closed or element.empty_tag)
            or first.span.start > element.span.start
        ):
            return ()
        return moved(self._text, element.span, first.span.start)

    def _role(self, frame: _Frame, element: Element) -> _Frame:
        self._check_attributes(element, ())
        if frame.kind == "prompt":
            return self._frame(element, "role", frame.preserve)
        where = frame.element.tag
        message = (
            f"<{element.tag}> is not allowed in <{where}>: a role must be directly in the prompt; move it out"
        )
        hint, fix = TAGS, unwrapped(element)
        if frame.kind == "import" and element.closed and self._end is not None:
            hint, fix = "it before </prompt>", moved(self._text, element.span, self._end.start)
        self._report.add("E206", message, element.tag_span, hint, fix)
        return self._transparent(frame, element)

    def _beside_text(self, frame: _Frame, element: Element) -> None:
        """Reads a question or the format of the answer."""
        if frame.kind != "prompt":
            what = "a question" if element.tag == "decide" else "the format of the answer"
            message = (
                f"<{element.tag}> is not allowed in <{frame.element.tag}>: {what} must be directly in the "
                "prompt; move it out"
            )
            fixable = element.closed and self._end is not None
            fix = moved(self._text, element.span, self._end.start) if fixable and self._end else ()
            self._report.add("E206", message, element.tag_span, "it before </prompt>" if fix else "", fix)
            return
        if element.tag == TAG:
            self._format(frame, element)
            return
        self._asked.append(element)
        decide = read_decide(
            element, self._text, self._report, self._check_attributes, preserve=frame.preserve
        )
        if decide is not None:
            self._questions.append(decide)

    def _format(self, frame: _Frame, element: Element) -> None:
        if self._formats:
            message = "the prompt has two answer formats; keep one of them"
            self._report.add("E214", message, element.tag_span)
        found = read_format(
            *(element, self._text, self._report, self._check_attributes),
            preserve=frame.preserve,
            base=self.base,
        )
        self._formats.append(found)

    def _argument(self, frame: _Frame, element: Element) -> None:
        name, other = element.get("name"), element.get("value", "default", "text")
        if name and other and not (element.children or element.close_span):
            hint = f"{name.value}>…</arg>"
            message = f"the text of <arg> is its content; write <arg name={quote(name.value)}>…</arg>"
            raw = self._text[other.value_span.start : other.value_span.end]
            value = f'<arg name="{name.value}">{raw}</arg>'
            self._report.add("E203", message, other.name_span, hint, (Edit(element.span, value),))
            return
        self._check_attributes(element, ("name",))
        value = self._argument_text(frame, element)
        if frame.kind != "import":
            message = "<arg> is allowed only in the import with its parameter; move it into that import"
            self._report.add("E206", message, element.tag_span)
        elif name is None or not name.value.strip():
            message = 'the attribute name of <arg> is missing; write <arg name="…">'
            self._report.add("E202", message, element.tag_span, 'name="…"')
        else:
            frame.arguments.append(Argument(name.value, value, element.span, name.value_span))

    def _argument_text(self, frame: _Frame, element: Element) -> str:
        parts: list[str] = []
        for item in contents(element, self._text, preserves(element, frame.preserve)):
            if isinstance(item, Run):
                parts.append(item.text)
            else:
                message = (
                    f"<{item.tag}> is not allowed in <arg>, which contains only text; write &lt; for '<'"
                )
                self._report.add("E206", message, item.tag_span, f"&lt;{item.tag}", escaped(item))
        return "".join(parts)

    def _check_attributes(self, element: Element, known: tuple[str, ...]) -> None:
        for name, attribute in list(element.attributes.items()):
            if name in known or ":" in name:
                continue
            near = self._speller.nearest(name, [other for other in known if other not in element.attributes])
            near = near or meant_attribute(name, known, element.attributes)
            remedy = f"did you mean {near}?" if near else "remove it"
            span = Span(attribute.span.start, attribute.span.start + len(name))
            message = f"<{element.tag}> has no attribute {quote(name)}; {remedy}"
            fix = swap(span, near) or removed(self._text, attribute.span)
            self._report.add("E203", message, span, near or NOTHING, fix)
            if near:
                element.attributes[near] = Attribute(
                    near, attribute.value, attribute.span, attribute.value_span
                )
        self._check_space(element)

    def _check_space(self, element: Element) -> None:
        mode = element.get("xml:space")
        if mode is not None and mode.value not in SPACE_MODES:
            message = (
                f'xml:space cannot be {quote(mode.value)}; write xml:space="default" or xml:space="preserve"'
            )
            right = meant_choice(mode.value, SPACE_MODES)
            self._report.add("E204", message, mode.value_span, right or "", swap(mode.value_span, right))
