"""Converts turns of templates to a schema: Jinja, Mustache, and Python's format strings."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.base.notes import Notes
from engine.exchange.base.turns import ROLE_LINE, ROLES
from engine.exchange.templates.expressions import path_of
from engine.exchange.templates.reader import Place, TemplateReader
from engine.exchange.templates.statements import written_in
from engine.pml import RoleName, Schema
from engine.programs.build import build_schema
from engine.programs.compile.outline import Compiled, Node, Turn

Form = Literal["jinja", "mustache", "f-string", "plain"]
FORMS: Final = ("jinja", "mustache", "f-string", "plain")

_TAG: Final = re.compile(r"\{\{\{\s*([^{}]*?)\s*\}\}\}|\{\{\s*([#^/!>&]?)\s*([^{}]*?)\s*\}\}")
_SETS: Final = re.compile(r"(?:\s++|(?>\{#.*?#\})|(?>\{%-?\s*set\b[^=%]*=.*?%\}))*+", re.DOTALL)
_SILENT: Final = ("#", "^", "/", "!", ">")
_LINE_END: Final = re.compile(r"[ \t]*(?:\r?\n|\Z)")
_PATH: Final = re.compile(r"[^\W\d]\w*(?:[.\[][^.\[\]]+\]?)*")
_BLOCKS: Final = re.compile(r"\{%-?\s*(?:block|extends)\b")


@dataclass(frozen=True)
class TemplateTurn:
    """A turn whose text is a template.

    Attributes:
        role: its role; None for text outside turns.
        text: the template.
        form: the syntax of its variables.
        where: its name in messages; empty if line numbers suffice.
        line: its first line in the source; 0 if messages use its name.
        continues: whether it belongs to the same template as the previous turn.
        constants: fixed values of variables.
    """

    role: RoleName | None
    text: str
    form: Form = "jinja"
    where: str = ""
    line: int = 0
    continues: bool = False
    constants: Mapping[str, Any] = field(default_factory=dict)


def role_turns(source: str, before: RoleName | None, above: int = 0) -> tuple[TemplateTurn, ...]:
    """Cuts a template at lines that name a role; returns none without such lines.

    Args:
        source: the template.
        before: the role of text before the first such line; None if only comments and assignments are allowed
            there.
        above: number of source lines before the template.
    """
    headers = list(ROLE_LINE.finditer(source))
    if not headers or _BLOCKS.search(source):
        return ()
    turns: list[TemplateTurn] = []
    if source[: headers[0].start()].strip():
        if _SETS.fullmatch(source, 0, headers[0].start()):
            before = None
        elif before is None:
            return ()
        turns.append(_cut(source, 0, headers[0].start(), before, "the text before the first role", above))
    for place, header in enumerate(headers):
        end = headers[place + 1].start() if place + 1 < len(headers) else len(source)
        line = source.count("\n", 0, header.start()) + above + 1
        role = cast(RoleName, ROLES[header[1].lower()])
        turns.append(_cut(source, header.end(), end, role, f"the turn of line {line}", above))
    return tuple(replace(turn, continues=place > 0) for place, turn in enumerate(turns))


def _cut(source: str, start: int, end: int, role: RoleName | None, where: str, above: int) -> TemplateTurn:
    """The turn of a template's part, without white space at its ends."""
    text = source[start:end]
    begins = start + len(text) - len(text.lstrip())
    return TemplateTurn(role, text.strip(), where=where, line=source.count("\n", 0, begins) + above + 1)


def from_turns(
    turns: Sequence[TemplateTurn],
    name: str,
    length: int,
    *,
    defaults: Mapping[str, str] | None = None,
    notes: Notes | None = None,
) -> Imported:
    """Makes a schema of turns; `notes` has additional notes.

    Raises:
        ExchangeError: a turn is an invalid template, or a schema cannot express any of them.
    """
    reader = TemplateReader(length, defaults)
    try:
        schema = read_turns(turns, name, reader, notes := notes or Notes())
        all_notes = (*reader.told(), *notes.told())
        return Imported(schema, None, all_notes, always=reader.choices.always(defaults or {}))
    except RecursionError:
        raise ExchangeError("this template is nested too deeply; flatten it") from None


def read_turns(turns: Sequence[TemplateTurn], name: str, reader: TemplateReader, notes: Notes) -> Schema:
    """Makes a schema of turns with a given reader, which then has the results.

    Raises:
        ExchangeError: a turn is an invalid template, or a schema cannot express any of them.
    """
    top = Place()
    body: list[Node] = []
    for number, turn in enumerate(turns, 1):
        if not turn.continues:
            reader.begin(turn.constants)
        reader.stand("" if turn.line else turn.where, max(turn.line - 1, 0))
        try:
            place = top if turn.role is None else top.turn()
            items = parsed(turn.text, turn.form)
            inner = reader.anonymous(reader.body(items, place), top)
        except TemplateSyntaxError as error:
            where = f"{turn.where}, " if turn.where else ""
            line = error.lineno + max(turn.line - 1, 0)
            raise ExchangeError(f"this is not valid Jinja: {where}line {line}: {error.message}") from None
        for section in _sections(items) if turn.form == "mustache" else ():
            once = "became a module, whose text occurs once (Mustache repeats it for a list)"
            notes.count("section", once, f"{{{{#{section}}}}}")
        if turn.role is None:
            body.extend(inner)
        elif inner:
            body.append(Turn(turn.role, tuple(inner)))
        else:
            notes.left_out(turn.where or f"turn {number}", turn.role)
    if not body:
        reasons = (*reader.notes[:3], *notes.told()[:3])
        raise ExchangeError("; ".join(["nothing in this template can become a schema", *reasons]))
    return build_schema(Compiled(name, (), tuple(body), (), (), None, None))


def _sections(items: list[nodes.Node]) -> Iterator[str]:
    """The Mustache sections that write other variables than their own."""
    for item in items:
        for node in (item, *item.find_all(nodes.If)):
            name = path_of(node.test) if isinstance(node, nodes.If) else None
            if name is not None and set(written_in(node)) - {name}:
                yield name


def parsed(source: str, form: Form) -> list[nodes.Node]:
    """Parses a template to Jinja nodes.

    Raises:
        ExchangeError: it is an invalid format string, or its sections do not match.
        TemplateSyntaxError: it is invalid Jinja.
    """
    if form == "jinja":
        return Environment(autoescape=False).parse(source).body
    if form == "mustache":
        return _mustache(source)
    if form == "f-string":
        return [nodes.Output(list(_fields(source)), lineno=1)]
    return [nodes.Output([nodes.TemplateData(source, lineno=1)], lineno=1)]


def _fields(source: str) -> Iterator[nodes.Expr]:
    line = 1
    try:
        for text, name, spec, conversion in string.Formatter().parse(source):
            if text:
                yield nodes.TemplateData(text, lineno=line)
            line += text.count("\n")
            if name is not None:
                variable = _variable(name, line)
                form = f"{(conversion and f'!{conversion}') or ''}{(spec and f':{spec}') or ''}"
                yield nodes.Filter(variable, form, [], [], None, None, lineno=line) if form else variable
    except ValueError as error:
        raise ExchangeError(f"this is not a format string: {error}; write {{{{ for a brace") from None


def _variable(words: str, line: int) -> nodes.Expr:
    """The expression of a variable; an invalid name becomes an expression that a schema cannot express."""
    if not _PATH.fullmatch(words):
        return nodes.Call(nodes.Name("f", "load", lineno=line), [], [], None, None, lineno=line)
    first, *others = re.split(r"[.\[]", words)
    variable: nodes.Expr = nodes.Name(first, "load", lineno=line)
    for attribute in others:
        variable = nodes.Getattr(variable, attribute.rstrip("]").strip("'\""), "load", lineno=line)
    return variable


def _alone(source: str, tag: re.Match[str]) -> tuple[int, int]:
    """The end of the text before a tag, and the start of the text after it."""
    begins = source.rfind("\n", 0, tag.start()) + 1
    rest = _LINE_END.match(source, tag.end())
    if rest is None or source[begins : tag.start()].strip(" \t"):
        return tag.span()
    return begins, rest.end()


def _mustache(source: str) -> list[nodes.Node]:
    """Parses variables, sections (written if true) and inverted sections.

    A line that has only white space and a tag without output is removed.
    """
    bodies: list[list[nodes.Node]] = [[]]
    opened: list[tuple[str, str, int]] = []
    at, line = 0, 1

    def say(found: nodes.Expr) -> None:
        bodies[-1].append(nodes.Output([found], lineno=line))

    for tag in _TAG.finditer(source):
        sign, words = tag[2] or "", tag[1] or tag[3] or ""
        begins, ends = _alone(source, tag) if sign in _SILENT else tag.span()
        text = source[at:begins]
        if text:
            say(nodes.TemplateData(text, lineno=line))
        line += source.count("\n", at, tag.start())
        if words.startswith("="):
            raise ExchangeError(
                f"line {line}: {tag[0]} changes the tag delimiters, which is not supported; use {{{{ }}}}"
            )
        if sign in ("#", "^") and " " in words:
            plain = f"{{{{{sign}{words.rpartition(' ')[2]}}}}}"
            raise ExchangeError(f"line {line}: {tag[0]} is Handlebars, which is not supported; write {plain}")
        if sign in ("#", "^"):
            opened.append((sign, words, line))
            bodies.append([])
        elif sign == "/":
            if not opened or opened[-1][1] != words:
                how = f"open it with {{{{#{words}}}}}"
                raise ExchangeError(f"line {line}: {{{{/{words}}}}} ends no section; {how}")
            begun, name, where = opened.pop()
            test = _variable(name, where)
            inner = bodies.pop()
            bodies[-1].append(
                nodes.If(test if begun == "#" else nodes.Not(test, lineno=where), inner, [], [], lineno=where)
            )
        elif sign == ">":
            bodies[-1].append(nodes.Include(nodes.Const(words), False, False, lineno=line))
        elif sign != "!":
            say(_variable(words, line))
        line += source.count("\n", tag.start(), ends)
        at = ends
    if opened:
        raise ExchangeError(f"line {opened[-1][2]}: the section {{{{#{opened[-1][1]}}}}} is never closed")
    if source[at:]:
        say(nodes.TemplateData(source[at:], lineno=line))
    return bodies[0]
