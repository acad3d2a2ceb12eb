"""Parses a schema document into its tree, with diagnostics of structure, names and advice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from engine.pml.diagnostics.diagnostic import (
    MAX_DIAGNOSTICS,
    NOTHING,
    TAGS,
    Edit,
    Fix,
    Reporter,
    Span,
    quote,
    swap,
)
from engine.pml.parse.includes import SchemaFile, placed, placed_scaffolds
from engine.pml.parse.scaffold_checks import check_scaffolds
from engine.pml.parse.schema_attributes import MAX_PATH, AttributeReader
from engine.pml.parse.sources import SourceError
from engine.pml.parse.tree_builder import Frame
from engine.pml.parse.turn_checks import TURNS_RULE, check_text_beside, check_turns
from engine.pml.tree.lookalikes import advise_on_lookalikes
from engine.pml.tree.tree import Module, Param, Role, RoleName, Scaffold, Schema, Text, Union
from engine.pml.whitespace.joined_words import check_schema
from engine.pml.whitespace.markdown_blocks import check_blocks
from engine.pml.whitespace.rules import Run, contents, preserves
from engine.pml.whitespace.separators import add_run, ended
from engine.pml.xml.elements import Attribute, Element
from engine.pml.xml.escaping import escaped_value
from engine.pml.xml.names import (
    ATTRIBUTES,
    ELEMENTS,
    PATH,
    RESERVED,
    ROLES,
)
from engine.pml.xml.reader import Document
from engine.pml.xml.suggestions import (
    MAX_LENGTH,
    MEANT_ELEMENTS,
    as_module,
    escaped,
    in_module,
    meant_element,
    moved,
    nearest_length,
    paragraph,
    removed,
    unlike,
    unwrapped,
)

# used names, with the file ("" for the schema itself) and the line
Names: TypeAlias = dict[str, tuple[str, int]]

_LENGTH: Final = re.compile(r"0*[1-9][0-9]{0,6}")
_OF_FIRST: Final = ("len", "length", "default", "scaffold")
# misplaced ones are not read further
_SKIPPED: Final = ("param", "scaffold", "arg", "decide", "answer-format", "include")
_REPEAT_LENGTH: Final = 40
_FAR: Final = 20_000  # search distance for a copy of a module, in characters
_WHERE: Final = {
    "param": "a parameter must be inside a module, which a prompt imports with the argument",
    "union": "a union contains only modules; put the inner union inside a module",
    "scaffold": "a scaffold must be directly in the schema",
    "schema": "a document has one schema, its root",
    "prompt": "a prompt needs its own document",
    "arg": "an argument must be inside an import of a prompt",
    "decide": "a question must be directly in a prompt",
    "answer-format": "the format of an answer must be directly in a prompt",
    "include": "an include must be in the schema, a role or a module",
}


def build_schema(document: Document, base: Path | None) -> Schema | None:
    """Builds the tree of a document; further errors go to its reporter. `src` needs the folder `base`."""
    if document.root is None:
        return None
    file = SchemaFile.of(document.text, base)
    return _SchemaBuilder(document.text, document.report, file, {}).build(document.root)


@dataclass(slots=True)
class _Frame(Frame):
    path: str = ""
    names: Names = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    members: int = 0
    unread: bool = False
    written: str = ""  # the last separator written in it
    outermost: bool = False  # whole turns are allowed: the schema, or its top-level modules and unions


class _SchemaBuilder(AttributeReader[_Frame]):
    def __init__(self, text: str, report: Reporter, file: SchemaFile, texts: dict[str, str]) -> None:
        super().__init__(text, report)
        self._file = file
        self._scaffolds: list[tuple[Scaffold, Span]] = []
        self._included: list[Scaffold] = []
        self._texts = texts  # texts of modules in all files, with their paths
        self._end: int | None = None

    def build(self, root: Element) -> Schema | None:
        if not self._is_root(root, "schema", '<schema name="…">'):
            return None
        self._end = root.close_span.start if root.close_span else None
        frame = self._frame(root, "schema", False, "", {})
        frame.outermost = True
        attributes = self._attributes(root, "schema")
        meant = root.tag == "schema" or self._speller.nearest(root.tag, ("schema",))
        name = self._required(root, attributes, "name") if meant else None
        if name is not None:
            self._check_name("schema", name)
        self._fill(frame)
        schema = Schema(
            name.value if name else "",
            ended(frame.children, frame.written),
            self._all_scaffolds(),
            root.span,
            self._report.lines,
            self._file.included,
        )
        check_text_beside(root, self._text, self._report)
        check_scaffolds(schema, self._scaffolds, self._text, self._report)
        advise_on_lookalikes(schema, self._report)
        check_schema(schema, self._report, self._text)
        check_blocks(schema, self._report)
        return schema

    def _all_scaffolds(self) -> tuple[Scaffold, ...]:
        scaffolds = [*self._included, *(scaffold for scaffold, _ in self._scaffolds)]
        return tuple(sorted(scaffolds, key=lambda scaffold: scaffold.span.start))

    def _frame(self, element: Element, kind: str, preserve: bool, path: str, names: Names) -> _Frame:
        preserve = preserves(element, preserve)
        items = iter(contents(element, self._text, preserve))
        return _Frame(element, kind, items, preserve, path=path, names=names)

    def _text_run(self, frame: _Frame, run: Run) -> None:
        if frame.kind != "union":
            frame.written = add_run(frame.children, run) or frame.written
        elif run.text.strip():
            message = (
                f"text {quote(run.text.strip(), 30)} is in a union, which contains only modules; move it out"
            )
            edits = moved(self._text, run.span, frame.element.open_span.start)
            choices = (Fix("Move it before <union>: every prompt then reads it", edits),) if edits else ()
            self._report.add("E207", message, run.span, choices=choices)

    def _element(self, frame: _Frame, element: Element) -> _Frame | None:
        tag = self._known_tag(element, frame)
        if tag is None:
            return self._transparent(frame, element)
        if tag == "module":
            return self._module(frame, element)
        if tag == "union" and frame.kind != "union":
            self._attributes(element, "union")
            inner = self._frame(element, "union", frame.preserve, frame.path, frame.names)
            inner.outermost = frame.outermost and frame.kind == "schema"
            return inner
        if tag in ROLES and frame.outermost and frame.kind != "union":
            self._attributes(element, tag)
            inner = self._frame(element, "role", frame.preserve, frame.path, frame.names)
            inner.params = frame.params
            return inner
        if tag == "param" and (frame.kind == "module" or (frame.kind == "role" and frame.path)):
            self._param(frame, element)
            return None
        if tag == "scaffold" and frame.kind == "schema":
            self._scaffold(element)
            return None
        if tag == "include" and frame.kind != "union":
            self._include(frame, element)
            return None
        rule = TURNS_RULE if tag in ROLES else _WHERE[tag]
        inside = frame.element.tag
        message = f"<{element.tag}> is not allowed in <{inside}>: {rule}"
        hint, fix = self._elsewhere(frame, element, tag)
        choices: tuple[Fix, ...] = ()
        if tag == "param" and fix:
            choices, fix = (Fix(f"Put its text into {hint}: a prompt has to import it", fix),), ()
        if tag in ROLES and fix:
            choices, hint, fix = (Fix(f"Remove the tags: the text is then part of <{inside}>", fix),), "", ()
        if tag in ROLES and frame.kind != "union" and frame.path:
            message += f"; move module {quote(frame.path)} directly into the schema, or remove its tags"
        elif hint == TAGS or (choices and tag in ROLES):
            message += "; remove its tags, or move it"
        self._report.add("E206", message, element.tag_span, hint, fix, choices)
        return None if tag in _SKIPPED else self._transparent(frame, element)

    def _elsewhere(self, frame: _Frame, element: Element, tag: str) -> tuple[str, tuple[Edit, ...]]:
        """Returns the fix for a misplaced element, as a hint and as edits."""
        name = element.get("name")
        if tag == "param":
            shown = len(self._report.errors) < MAX_DIAGNOSTICS
            span = paragraph(element, self._text) if shown else element.span
            return in_module(element, name.value if name else "", frame.names, span)
        if tag in ("union", "include"):
            return in_module(element, "choice" if tag == "union" else "part", frame.names, element.span)
        if tag == "scaffold" and self._end is not None and element.closed and self._may_be_known(element):
            return "it before </schema>", moved(self._text, element.span, self._end)
        if tag in ("arg", "decide", "answer-format"):
            return "", ()
        behind = self._text[element.span.end : element.span.end + 2]
        apart = tag in ROLES and behind != "</" and not behind[:1].isspace()
        return TAGS, unwrapped(element, "\n" if apart else "")

    def _may_be_known(self, scaffold: Element) -> bool:
        """Whether each path of a scaffold ends with a name that occurs in the text."""
        modules = scaffold.get("modules")
        names = (path.rpartition("/")[2] for path in modules.value.split()) if modules else ()
        return all(f'name="{name}"' in self._text for name in names)

    def _known_tag(self, element: Element, frame: _Frame) -> str | None:
        """Returns the PML element of a tag; an unknown tag is reported and read as the nearest."""
        tag = "param" if element.tag == "parameter" else element.tag
        if tag in ELEMENTS:
            return tag
        near = meant_element(element)
        if near in ROLES and frame.kind != "schema":
            near = None  # such tags mark parts of a text
        else:
            near = near or self._speller.nearest(element.tag, (*ATTRIBUTES, "parameter"))
        shown = quote(element.tag)[1:-1]
        hint, fix = f"&lt;{element.tag}", escaped(element)
        if near:
            remedy, hint, fix = f"did you mean <{near}>?", near, element.renamed(near)
        elif frame.kind == "union" and (fixed := as_module(element, frame.names))[1]:
            remedy, (hint, fix) = f"to define a module, write {fixed[0]}", fixed
        else:
            remedy = f'write &lt;{shown} for literal text, or <module name="…"> to define a module'
        message, same = f"<{shown}> is not a PML element; {remedy}", not near and not element.closed
        self._report.add("E205", message, element.tag_span, hint, fix, of_tags=same)
        return "param" if near == "parameter" else near

    def _module(self, frame: _Frame, element: Element) -> _Frame:
        frame.members += 1
        attributes = self._attributes(element, "module")
        name = self._required(element, attributes, "name")
        path = "/".join(filter(None, (frame.path, name.value if name else "?")))
        usable = (
            name is not None
            and self._check_path(name, path)
            and self._check_module_name(element, name, frame.names)
        )
        inner = self._frame(element, "module", frame.preserve, path[:MAX_PATH], {})
        inner.builds = usable
        inner.outermost = frame.outermost and frame.kind != "module"
        src = attributes.get("src")
        if src is not None:
            self._fill_from_file(inner, src)
        return inner

    def _fill_from_file(self, frame: _Frame, src: Attribute) -> None:
        if any(True for _ in frame.items):
            message = (
                f"the text of this module comes from {quote(src.value)}; empty the module, or remove src"
            )
            remove = Fix("Remove src: the module then has its own text", removed(self._text, src.span))
            self._report.add("E210", message, src.span, choices=(remove,))
        frame.items = iter(())
        try:
            content = self._file.read(src.value)
        except SourceError as error:
            frame.unread = True
            hint = src.value.replace("\\", "/") if "\\" in src.value else ""
            self._report.add(error.code, str(error), src.value_span, hint, swap(src.value_span, hint))
            return
        if content:
            frame.children.append(Text(content, src.value_span))

    def _include(self, frame: _Frame, element: Element) -> None:
        """Replaces an `<include>` with the content of another schema."""
        src = self._required(element, self._attributes(element, "include"), "src")
        if element.closed:
            self._check_bare(element)
        frame.unread = True
        if src is None:
            return
        try:
            file, document, root = self._file.include(src.value, element, turns=frame.kind == "schema")
        except SourceError as error:
            self._report.add(error.code, str(error), src.value_span)
            return
        inner = _SchemaBuilder(document.text, document.report, file, self._texts)
        content, scaffolds = inner.build_in(frame, root)
        frame.children.extend(placed(content.children, element.span))
        frame.written = content.written or frame.written
        self._included.extend(placed_scaffolds(scaffolds, frame.path, element.span))
        self._report.adopt(document.report, file.path, src.value_span)

    def build_in(self, place: _Frame, root: Element) -> tuple[_Frame, tuple[Scaffold, ...]]:
        """Returns the content and scaffolds of this schema, for inclusion at `place`."""
        self._end = root.close_span.start if root.close_span else None
        frame = self._frame(root, "schema", False, place.path, place.names)
        frame.outermost = place.outermost and place.kind == "schema"
        self._attributes(root, "schema")
        self._fill(frame)
        schema = Schema("", tuple(frame.children), (), root.span)
        above = f"{place.path}/" if place.path else ""
        check_scaffolds(schema, self._scaffolds, self._text, self._report, above)
        check_schema(schema, self._report, self._text)
        check_blocks(schema, self._report)
        return frame, self._all_scaffolds()

    def _finish(self, frame: _Frame) -> Module | Union | Role | None:
        element, children = frame.element, ended(frame.children, frame.written)
        if frame.kind == "role":
            return Role(cast(RoleName, self._role_of(element)), children, element.span)
        if frame.kind == "union":
            return self._finish_union(frame)
        name, cache, src = element.get("name"), element.get("cache"), element.get("src")
        finished = self._text.endswith(">", element.open_span.start, element.open_span.end)
        if finished and not children and not frame.unread:
            message = f"module {quote(frame.path)} is empty; write its text, or remove it"
            self._report.add("W603", message, element.open_span)
        children = check_turns(frame.path, children, self._report)
        self._check_repeated(frame)
        span = name.value_span if name else element.tag_span
        short = frame.path.rpartition("/")[2]
        source = self._file.beside(src.value) if src else None
        cached = cache is None or cache.value != "false"
        return Module(short, frame.path, children, cached, source, element.span, span)

    def _role_of(self, element: Element) -> str:
        meant = MEANT_ELEMENTS.get(element.tag.casefold(), element.tag)
        return meant if meant in ROLES else self._speller.nearest(element.tag, ROLES) or "user"

    def _finish_union(self, frame: _Frame) -> Union:
        element = frame.element
        members = tuple(child for child in frame.children if isinstance(child, Module))
        if frame.members == 0:
            message = "this union has no module; write modules into it, or remove it"
            bare = element.closed and not element.children
            self._report.add(
                "W602", message, element.tag_span, NOTHING, (Edit(element.span, ""),) if bare else ()
            )
        elif frame.members == 1:
            message = "a union of one module changes nothing; add a module, or remove the union"
            self._report.add("W601", message, element.tag_span, TAGS, unwrapped(element))
        scaffold = element.get("scaffold")
        if scaffold is not None and scaffold.value not in {member.name for member in members}:
            near = self._speller.nearest(scaffold.value, [member.name for member in members])
            remedy = f"did you mean {quote(near)}?" if near else "name one of its modules, or remove it"
            message = f"the union has no module {quote(scaffold.value)}; {remedy}"
            fix = swap(scaffold.value_span, near) or removed(self._text, scaffold.span)
            self._report.add("E305", message, scaffold.value_span, near or NOTHING, fix)
        return Union(members, scaffold.value if scaffold else None, element.span)

    def _param(self, frame: _Frame, element: Element) -> None:
        attributes = self._attributes(element, "param")
        name = self._required(element, attributes, "name")
        first = frame.params.get(name.value) if name else None
        own = [attributes[key] for key in _OF_FIRST if key in attributes]
        length = first.length if first else self._length(element, attributes, frame.params)
        if element.closed:
            self._check_bare(element)
        if name is None or not self._check_name("parameter", name):
            return
        if first is not None:
            if own:
                self._say_twice(first, element, name, own)
            frame.children.append(replace(first, span=element.span, name_span=name.value_span, repeats=True))
            return
        default, scaffold = attributes.get("default"), attributes.get("scaffold")
        written = attributes.get("len") or attributes.get("length")
        param = Param(
            name.value,
            length,
            default.value if default else None,
            scaffold.value if scaffold else None,
            element.span,
            length_span=written.value_span if written else None,
            name_span=name.value_span,
        )
        frame.params[name.value] = param
        frame.children.append(param)

    def _say_twice(self, first: Param, element: Element, name: Attribute, own: list[Attribute]) -> None:
        """Reports a parameter that is defined again instead of repeated."""
        line = self._report.lines.line((first.name_span or first.span).start)
        removing = " and ".join(attribute.name for attribute in own)
        message = (
            f"parameter {quote(name.value)} is already defined at line {line}; remove {removing} to repeat "
            "its argument, or rename one"
        )
        fix = tuple(edit for attribute in own for edit in removed(self._text, attribute.span))
        second = element.span
        if self._text[first.span.start : first.span.end] == self._text[second.start : second.end]:
            between = self._text[first.span.end : second.start]
            fix = fix if between.strip(" \t\r\n") else (Edit(second, ""),)
        self._report.add("E304", message, name.value_span, NOTHING, fix)

    def _length(self, element: Element, attributes: dict[str, Attribute], earlier: dict[str, Param]) -> int:
        short, long = attributes.get("len"), attributes.get("length")
        if short and long:
            message = "len and length are the same attribute; keep one"
            fix = removed(self._text, long.span) if short.value == long.value else ()
            self._report.add("E204", message, long.span, NOTHING, fix)
        written = short or long
        if written is None:
            name = attributes.get("name")
            near = self._speller.nearest(name.value, earlier) if name else None
            if name and near:
                message = (
                    f"a parameter {quote(name.value)} needs a length; did you mean the earlier parameter "
                    f"{quote(near)}?"
                )
                self._report.instead("E202", message, name.value_span, near)
                return 1
            message = 'a parameter needs a length in tokens; write len="10"'
            place = element.tag_span.end
            self._report.add(
                "E202", message, element.tag_span, 'len="10"', (Edit(Span(place, place), ' len="10"'),)
            )
            return 1
        value = written.value.strip()
        if not _LENGTH.fullmatch(value):
            right = str(nearest_length(value))
            message = (
                f"the length {quote(written.value)} is not a whole number of tokens from 1 to "
                f'{MAX_LENGTH:,}; write {written.name}="{right}"'
            )
            self._report.instead("E204", message, written.value_span, right)
            return 1
        return int(value)

    def _scaffold(self, element: Element) -> None:
        attributes = self._attributes(element, "scaffold")
        modules = self._required(element, attributes, "modules")
        if element.closed:
            self._check_bare(element)
        if modules is not None:
            self._scaffolds.append(
                (Scaffold(tuple(PATH.findall(modules.value)), element.span), modules.value_span)
            )

    def _check_bare(self, element: Element) -> None:
        """Reports content of an element that must be empty."""
        inner = contents(element, self._text, False)
        items = [item for item in inner if isinstance(item, Element) or item.text]
        end, tag = element.span.end, element.tag
        attribute = {"scaffold": "modules", "include": "src"}.get(tag, "default")
        for item in items:
            behind = moved(self._text, item.span, end)
            if isinstance(item, Element):
                message = f"<{item.tag}> is not allowed in <{tag}>, which must be empty; move it out"
                self._report.add("E206", message, item.tag_span, f"it after <{tag}>", behind)
                continue
            hint, fix = f"it after <{tag}>", behind
            remedy = "move it out"
            if len(items) == 1 and attribute not in element.attributes:
                hint, place = f'{attribute}="{escaped_value(item.text)}"', element.tag_span.end
                fix = (Edit(Span(place, place), f" {hint}"), Edit(item.span, ""))
                remedy = f'write {attribute}="…", or {remedy}'
            message = f"text {quote(item.text, 30)} is in <{tag}>, which must be empty; {remedy}"
            self._report.add("E207", message, item.span, hint, fix)

    def _check_module_name(self, element: Element, name: Attribute, names: Names) -> bool:
        if not self._check_name("module", name):
            return False
        if name.value in RESERVED:
            message = f"{quote(name.value)} is an element of PML, so modules cannot have that name; rename it"
            self._report.instead("E303", message, name.value_span, unlike(f"{name.value}-text", names))
            return False
        if name.value in names:
            where = self._file.where(*names[name.value])
            message = f"module {quote(name.value)} is already defined {where}; rename one, or nest it"
            other, place = unlike(name.value, names), element.span.start
            copied = (
                element.closed
                and self._text[place : element.span.end] in self._text[max(0, place - _FAR) : place]
            )
            choices: tuple[Fix, ...] = (
                Fix(f"Write {other}: both modules stay", swap(name.value_span, other)),
            )
            if copied:
                choices = (Fix("Remove it: it repeats the other", (Edit(element.span, ""),)), *choices)
            self._report.add("E302", message, name.value_span, other, (), choices)
            return False
        names[name.value] = self._file.path, self._report.lines.line(name.value_span.start)
        return True

    def _check_repeated(self, frame: _Frame) -> None:
        text = "".join(child.text for child in frame.children if isinstance(child, Text)).strip()
        if len(text) < _REPEAT_LENGTH:
            return
        other = self._texts.setdefault(text, frame.path)
        if other != frame.path:
            message = f"module {quote(frame.path)} repeats the text of {quote(other)}; keep one of them"
            self._report.add("W605", message, frame.element.open_span)
