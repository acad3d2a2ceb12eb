"""Parses a prompt document into its tree. `binding` checks its imports against a schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

from engine.pml.diagnostics.diagnostic import NOTHING, TAGS, Edit, LineIndex, Reporter, Span, quote, swap
from engine.pml.parse.tree_builder import Frame, TreeBuilder
from engine.pml.tree.tree import Argument, Import, Prompt, Role, RoleName, Text
from engine.pml.whitespace.rules import INLINE, Run, contents, preserves
from engine.pml.xml.elements import Attribute, Chars, Element
from engine.pml.xml.names import NAME, RESERVED, ROLES, SPACE_MODES
from engine.pml.xml.reader import Document
from engine.pml.xml.scanner import Scanner
from engine.pml.xml.suggestions import escaped, meant_attribute, meant_choice, moved, removed, unwrapped


def document_kind(source: str) -> Literal["schema", "prompt"] | None:
    """Returns the kind of a document by its root element."""
    tag = Scanner(source, Reporter(LineIndex(source))).first_tag()
    return cast(Literal["schema", "prompt"], tag) if tag in ("schema", "prompt") else None


def build_prompt(document: Document) -> Prompt | None:
    """Builds the tree of a document; further errors go to the document's reporter."""
    if document.root is None:
        return None
    return _PromptBuilder(document.text, document.report).build(document.root)


@dataclass(slots=True)
class _Frame(Frame):
    arguments: list[Argument] = field(default_factory=list)


class _PromptBuilder(TreeBuilder[_Frame]):
    def build(self, root: Element) -> Prompt | None:
        if not self._is_root(root, "prompt", '<prompt schema="…">'):
            return None
        self._check_attributes(root, ("schema",))
        name = root.get("schema")
        if name is not None and not name.value.strip():
            message = "the attribute schema is empty; name the schema, or leave the attribute out"
            self._report.add("E202", message, name.span, NOTHING, removed(self._text, name.span))
            name = None
        roles = (child for child in root.children if isinstance(child, Element) and child.tag in ROLES)
        self._first_role, self._end = next(roles, None), root.close_span
        frame = self._frame(root, "prompt", False)
        self._fill(frame)
        span = name.value_span if name else root.tag_span
        children = tuple(frame.children)
        report = self._report
        title = name.value if name else None
        return Prompt(title, children, root.span, span, report.lines, self._text, report.torn)

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
        if tag in RESERVED:
            remedy, hint, fix = self._of_schema(frame, element)
            message = f"<{tag}> belongs to a schema and is not allowed in a prompt; {remedy}"
            self._report.add("E206", message, element.tag_span, hint, fix)
            # The content of an unclosed parameter is read as text after it. Reading it here too would
            # double the work for each one.
            swallowed = tag in INLINE and not element.closed
            return None if swallowed else self._transparent(frame, element)
        if frame.kind == "role":
            message = (
                f"<{tag}> is not allowed in <{frame.element.tag}>: a role of a prompt contains only text, "
                "and modules have their roles in the schema; move the import out, or write "
                f"&lt;{tag} for literal text"
            )
            hint, fix = f"it before <{frame.element.tag}>", self._before_roles(element)
            if any(isinstance(child, Chars) and child.text.strip() for child in element.children):
                hint, fix = f"&lt;{tag}", escaped(element)
            self._report.add("E206", message, element.tag_span, hint if fix else "", fix)
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

    def _argument(self, frame: _Frame, element: Element) -> None:
        self._check_attributes(element, ("name",))
        name = element.get("name")
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
