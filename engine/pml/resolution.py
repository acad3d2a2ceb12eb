"""Which modules of a schema a prompt imports, with which arguments, and where its own text belongs.

`binding` turns the answer into the order in which a prompt is read; `page` finds by it what to edit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

from engine.pml.diagnostics import NOTHING, Edit, Reporter, Span, quote, swap
from engine.pml.names import NAME
from engine.pml.remedies import moved, wrapped
from engine.pml.spelling import Speller
from engine.pml.tree import Argument, Import, Module, Prompt, Role, Schema, Text

_MOST_EDITS: Final = 100
"""The most places that one fix changes."""


@dataclass(frozen=True)
class Site:
    """An element of the prompt and the module that it means."""

    path: str
    node: Import


@dataclass
class Resolution:
    """The imports of a prompt, resolved.

    Attributes:
        picks: the imported modules by path, ancestors first, in the order of the prompt; the value is the
            element that imports it, which for an ancestor that is not written is a deeper one.
        arguments: the arguments by path and name; of an argument given twice, the first.
        sites: every element that means a module, also one that may not stand where it does.
        before: text of the prompt directly before a module, by its path.
        after: text of the prompt directly after a module, by its path.
        ending: text at the end of a module of which nothing nested is imported.
        tail: what follows the last import of the prompt, and text that would stand beside a module's turns.
    """

    picks: dict[str, Import] = field(default_factory=dict)
    arguments: dict[str, dict[str, Argument]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    before: dict[str, list[Text]] = field(default_factory=dict)
    after: dict[str, list[Text]] = field(default_factory=dict)
    ending: dict[str, list[Text]] = field(default_factory=dict)
    tail: list[Text | Role] = field(default_factory=list)


@dataclass
class _Level:
    """One import whose children are being read."""

    children: Iterator[Import | Text]
    path: str
    leading: list[Text] = field(default_factory=list)
    last: str | None = None


class Resolver:
    """Resolves one prompt against one schema."""

    def __init__(self, schema: Schema, prompt: Prompt, report: Reporter) -> None:
        self._schema = schema
        self._prompt = prompt
        self._report = report
        self._speller = Speller()
        self._source = prompt.source
        self._written: dict[str, Import] = {}
        self._chosen: dict[int, str] = {}
        self._beside: list[Text] = []  # turns of a module
        self._result = Resolution()

    def resolve(self) -> Resolution:
        """Resolves the prompt; its faults go to the reporter."""
        self._check_schema()
        top = self._prompt.children
        imports = [place for place, child in enumerate(top) if isinstance(child, Import)]
        split = imports[-1] + 1 if imports else 0
        head: list[Import | Text] = []
        early = [child for child in top[:split] if isinstance(child, Role)]
        behind = self._behind(early, top[split - 1].span.end) if early else ()
        for child in top[:split]:
            if isinstance(child, Role):
                self._role_too_early(child, top[split - 1], behind)
                self._result.tail.append(child)
            else:
                head.append(child)
        self._walk(iter(head))
        tail = [child for child in top[split:] if not isinstance(child, Import)]
        if self._beside and tail and isinstance(tail[0], Text):
            self._beside.append(self._line_break(tail[0]))
        self._result.tail[:0] = self._beside
        self._result.tail.extend(tail)
        return self._result

    def _move(self, texts: list[Text]) -> None:
        """Lets texts that cannot stand where they are follow at the end, on a line of their own."""
        first = next((text for text in texts if not text.seam), None)
        if first is not None:
            message = (
                f"{quote(first.text, 30)} stands beside whole turns, so it is read at the end of the prompt; "
                "write it behind the last import"
            )
            self._report.add("W617", message, first.span)
            self._beside.append(self._line_break(texts[0]))
        self._beside.extend(texts)

    @staticmethod
    def _line_break(text: Text) -> Text:
        place = text.span.start
        return Text("\n", Span(place, place), seam=True)

    def _walk(self, head: Iterator[Import | Text]) -> None:
        levels = [_Level(head, "")]
        while levels:
            level = levels[-1]
            child = next(level.children, None)
            if child is None:
                self._leave(levels.pop())
            elif isinstance(child, Text):
                self._text(level, child)
            else:
                inner = self._import(level, child)
                if inner is not None:
                    levels.append(inner)

    def _leave(self, level: _Level) -> None:
        if level.leading and level.path and self._brings_turns(level.path):
            self._move(level.leading)
        elif level.leading and level.path:
            self._result.ending.setdefault(level.path, []).extend(level.leading)
        elif level.leading:
            self._result.tail[:0] = level.leading

    def _text(self, level: _Level, text: Text) -> None:
        if level.last is None:
            level.leading.append(text)
        elif self._brings_turns(level.last):
            self._move([text])
        else:
            self._result.after.setdefault(level.last, []).append(text)

    def _import(self, level: _Level, node: Import) -> _Level | None:
        module = self._find(level.path, node)
        if module is None:
            return None
        path = module.path
        self._result.sites.append(Site(path, node))
        if not self._pick(path, node):
            return _Level(iter(node.children), path)
        earlier = self._written.setdefault(path, node)
        if earlier is not node:
            first, again = (self._report.lines.line(one.name_span.start) for one in (earlier, node))
            message = (
                f"module {quote(path)} is imported at line {first} and again at line {again}; remove one"
            )
            self._report.add("E405", message, node.name_span, NOTHING, _without(node))
        self._arguments(module, node)
        if level.last is None and level.leading:
            if self._brings_turns(path):
                self._move(level.leading)
            else:
                self._result.before.setdefault(path, []).extend(level.leading)
            level.leading = []
        level.last = path
        return _Level(iter(node.children), path)

    def _brings_turns(self, path: str) -> bool:
        module = self._schema.module(path)
        return module is not None and bool(module.turns())

    # Names

    def _find(self, parent: str, node: Import) -> Module | None:
        """The module that an import means, or None after its fault is reported."""
        index = self._schema.index
        direct = index.members.get(parent, {}).get(node.name)
        if direct is not None:
            return direct
        others = index.by_name.get(node.name, [])
        if not others:
            self._unknown(parent, node)
            return None
        if not parent:
            if len(others) == 1:
                return others[0]
            places = " or ".join(quote(module.path) for module in others[:3])
            message = f"the name {quote(node.name)} could be {places}; nest the import as in the schema"
            free = (one.path for one in others if self._names.isdisjoint(one.path.split("/")[:-1]))
            path = next(free, others[0].path)
            fix = self._round(node, path.rpartition("/")[0])
            self._report.add("E404", message, node.name_span, _nested(path), fix)
            return None
        return self._misplaced(parent, node, others)

    def _misplaced(self, parent: str, node: Import, others: list[Module]) -> Module | None:
        inside = [module for module in others if module.path.startswith(parent + "/")]
        module = (inside or others)[0]
        above = self._schema.parent_of(module.path)
        where = f"in {quote(above)}" if above else "at the top level of the schema"
        if inside and above is not None:
            hint, place = _nested(module.path.removeprefix(f"{parent}/")), "here"
            fix = self._round(node, above.removeprefix(f"{parent}/"))
        else:
            alone = len(self._schema.index.by_name[module.name]) == 1
            hint, place = f"<{module.name}/>" if alone else _nested(module.path), "directly under the prompt"
            fix = self._outward(node, None if alone else above)
        message = f"module {quote(node.name)} stands {where}, not directly in {quote(parent)}"
        self._report.add("E403", f"{message}; write {hint} {place}", node.name_span, hint, fix)
        return module if len(inside) == 1 or len(others) == 1 else None

    def _unknown(self, parent: str, node: Import) -> None:
        if self._report.full:
            self._report.add("E402", "", node.name_span)
            return
        index = self._schema.index
        near = self._speller.nearest(node.name, index.members.get(parent, {}))
        near = near or self._speller.nearest(node.name, index.by_name)
        name = self._schema.name
        if near:
            remedy = f"did you mean <{near}/>?"
        elif index.by_path:
            known = ", ".join(islice(index.by_name, 3))
            remedy = f"it has {known}{' and others' if len(index.by_name) > 3 else ''}"
        else:
            remedy = "it defines none"
        of = f"schema {quote(name)}" if name else "the schema"
        message = f"{of} has no module {quote(node.name)}; {remedy}"
        if near:
            self._report.add("E402", message, node.name_span, near, self._renamed(parent, node, near))
            return
        hint = f"&lt;{node.name}"
        message += f"; write {hint} where it is text"
        self._report.add("E402", message, node.name_span, hint, self._as_text(node))

    def _as_text(self, node: Import) -> tuple[Edit, ...]:
        """The edits that make text of the tags of an unknown import, and of the unknown ones in it."""
        edits: list[Edit] = []
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one is not node and one.name in self._schema.index.by_name:
                continue
            places = [one.name_span.start - 1, *([one.end_span.start - 2] if one.end_span else [])]
            if any(self._source[place : place + 1] != "<" for place in places) or len(edits) > _MOST_EDITS:
                return ()
            edits += [Edit(Span(place, place + 1), "&lt;") for place in places]
            waiting += [child for child in one.children if isinstance(child, Import)]
        return tuple(edits)

    @cached_property
    def _imports(self) -> list[Import]:
        return [child for child in self._prompt.children if isinstance(child, Import)]

    @cached_property
    def _starts(self) -> list[int]:
        return [child.span.start for child in self._imports]

    @cached_property
    def _names(self) -> set[str]:
        """The names of all imports of the prompt."""
        found: set[str] = set()
        waiting = list(self._imports)
        while waiting:
            node = waiting.pop()
            found.add(node.name)
            waiting.extend(child for child in node.children if isinstance(child, Import))
        return found

    def _round(self, node: Import, path: str) -> tuple[Edit, ...]:
        """The edits that write the imports of a path round an import, where none of them is written yet."""
        names = path.split("/")
        if any(name in self._names for name in names):
            return ()
        closed = "".join(f"</{name}>" for name in reversed(names))
        return wrapped(node.span, "".join(f"<{name}>" for name in names), closed)

    def _outward(self, node: Import, path: str | None) -> tuple[Edit, ...]:
        """The edits that move an import behind the one directly under the prompt that it stands in."""
        place = bisect_right(self._starts, node.span.start) - 1
        if not self._source or place < 0 or self._imports[place].span.end < node.span.end:
            return ()
        edits = moved(self._source, node.span, self._imports[place].span.end)
        if not edits:
            return ()
        begin, end = edits
        if path is None:
            return (begin, Edit(end.span, end.text.lstrip()))
        names = path.split("/")
        if any(name in self._names for name in names):
            return ()
        opened, closed = "".join(f"<{name}>" for name in names), "".join(f"</{name}>" for name in names[::-1])
        return (begin, Edit(end.span, f"{opened}{end.text.lstrip()}{closed}"))

    def _renamed(self, parent: str, node: Import, near: str | None) -> tuple[Edit, ...]:
        """The edits that import the nearest module, if it may stand here and take what the import holds."""
        if near is None or any(isinstance(child, Import) for child in node.children):
            return ()
        index = self._schema.index
        module = index.members.get(parent, {}).get(near)
        if module is None and not parent and len(index.by_name[near]) == 1:
            module = index.by_name[near][0]
        if module is None:
            return ()
        params = {param.name for param in module.params()}
        if any(argument.name not in params for argument in node.arguments):
            return ()
        return (*swap(node.name_span, near), *(swap(node.end_span, near) if node.end_span else ()))

    def _check_schema(self) -> None:
        given, name = self._prompt.schema, self._schema.name
        if given is not None and name and given != name:
            message = f"the prompt is for schema {quote(given)}, but {quote(name)} is open; change one name"
            span = self._prompt.schema_span
            self._report.add("E401", message, span, name, swap(span, name) if NAME.fullmatch(name) else ())

    def _behind(self, roles: list[Role], place: int) -> tuple[Edit, ...]:
        """The edits that move turns behind the last import, in their order."""
        if not self._source or len(roles) > _MOST_EDITS:
            return ()
        texts = (self._source[role.span.start : role.span.end] for role in roles)
        return (*(Edit(role.span, "") for role in roles), Edit(Span(place, place), "".join(texts)))

    def _role_too_early(self, role: Role, last: object, fix: tuple[Edit, ...]) -> None:
        line = self._report.lines.line(last.name_span.start) if isinstance(last, Import) else 1
        message = (
            f"<{role.role}> stands before the last import (line {line}), but a role of a prompt is a "
            "new turn at its end; move it below the imports"
        )
        span = Span(role.span.start, role.span.start + len(role.role) + 1)
        self._report.add("E409", message, span, "it behind the imports", fix)

    # Picks

    def _pick(self, path: str, node: Import) -> bool:
        """Imports a module and its ancestors; False where a union has another member already."""
        missing: list[str] = []
        current = path
        while current and current not in self._result.picks:
            missing.append(current)
            current = current.rpartition("/")[0]
        for new in reversed(missing):
            union = self._schema.union_of(new)
            if union is not None:
                other = self._chosen.setdefault(id(union), new)
                if other != new:
                    self._clash(new, other, node)
                    return False
            self._result.picks[new] = node
        return True

    def _clash(self, path: str, other: str, node: Import) -> None:
        lines = self._report.lines
        here = lines.line(node.name_span.start)
        there = lines.line(self._result.picks[other].name_span.start)
        message = (
            f"{quote(path)} (line {here}) and {quote(other)} (line {there}) are members of one union, "
            "of which a prompt imports one; remove one of the two"
        )
        self._report.add("E406", message, node.name_span, NOTHING, _without(node))

    def _arguments(self, module: Module, node: Import) -> None:
        params = {param.name for param in module.params()}
        given = self._result.arguments.setdefault(module.path, {})
        for argument in node.arguments:
            if argument.name not in params:
                self._unknown_argument(module, node, argument, params)
            elif argument.name in given:
                line = self._report.lines.line(given[argument.name].span.start)
                message = f"the argument {quote(argument.name)} is already given at line {line}; keep one"
                self._report.add("E408", message, argument.span, NOTHING, (Edit(argument.span, ""),))
            else:
                given[argument.name] = argument

    def _unknown_argument(self, module: Module, node: Import, argument: Argument, params: set[str]) -> None:
        given = {other.name for other in node.arguments}
        near = self._speller.nearest(argument.name, sorted(params - given))
        if near:
            remedy = f"did you mean {quote(near)}?"
        else:
            remedy = (
                f"it has {', '.join(sorted(params))}"
                if params
                else "it has no parameter; remove the argument"
            )
        message = f"module {quote(module.path)} has no parameter {quote(argument.name)}; {remedy}"
        span = argument.name_span
        fix = swap(span, near) if span else ()
        if not params:
            fix = (Edit(argument.span, ""),)
        self._report.add("E407", message, argument.span, near or NOTHING, fix)


def _without(node: Import) -> tuple[Edit, ...]:
    """The edit that takes an import away which holds nothing; one that does is for a person to merge."""
    return () if node.children or node.arguments else (Edit(node.span, ""),)


def _nested(path: str) -> str:
    """The import of a path as it is written, ancestors round it."""
    *outer, last = path.split("/")
    opened = "".join(f"<{name}>" for name in outer)
    closed = "".join(f"</{name}>" for name in reversed(outer))
    return f"{opened}<{last}/>{closed}"
