"""Resolves the imports and arguments of a prompt and assigns its own text to places.

`binding` derives the reading order from the result; `page` derives edits from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Final

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Fix, Reporter, Span, quote, quote_text, swap
from engine.pml.diagnostics.spelling import Speller, meant
from engine.pml.tree.tree import Argument, Import, Module, Prompt, Role, Schema, Text
from engine.pml.tree.unknown_imports import UnknownImports, nested, shown
from engine.pml.xml.names import NAME
from engine.pml.xml.suggestions import wrapped

_MOST_EDITS: Final = 100  # places that one fix may change


@dataclass(frozen=True)
class Site:
    """An element of the prompt and the path of its module."""

    path: str
    node: Import


@dataclass
class Resolution:
    """The resolved imports of a prompt.

    Attributes:
        picks: the imported modules by path, ancestors first, in prompt order. The value is the element that
            imports the module; for an implied ancestor it is a deeper element.
        arguments: the arguments by path and name; the first one wins.
        sites: every element that names a module, even a misplaced one.
        before: text of the prompt directly before a module, by its path.
        after: text of the prompt directly after a module, by its path.
        ending: text at the end of a module without nested imports.
        tail: everything after the last import, and text next to a module's turns.
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
    """One import and its unread children."""

    children: Iterator[Import | Text]
    path: str
    node: Import | None = None
    leading: list[Text] = field(default_factory=list)
    last: str | None = None
    cut: bool = False  # it has a misplaced child and ends before it
    # node, message, hint, whether to wrap it
    misplaced: list[tuple[Import, str, str, bool]] = field(default_factory=list)


class Resolver:
    """Resolves one prompt against one schema."""

    def __init__(
        self, schema: Schema, prompt: Prompt, report: Reporter, earlier: Sequence[Schema] = ()
    ) -> None:
        self._schema = schema
        self._prompt = prompt
        self._report = report
        self._speller = Speller()
        self._source = prompt.source
        self._written: dict[str, Import] = {}
        self._chosen: dict[int, str] = {}
        self._beside: list[Text] = []  # text next to a module's turns
        self._result = Resolution()
        self._earlier = earlier

    def resolve(self) -> Resolution:
        """Resolves the prompt and reports its errors."""
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
        """Moves text that must not stand next to turns to the end, on its own line."""
        first = next((text for text in texts if not text.seam), None)
        if first is not None:
            message = (
                f"{quote(first.text, 30)} is next to whole turns, so it is read at the end of the prompt; "
                "write it after the last import"
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
        edits = self._outward(level) if level.misplaced else ()
        for node, message, hint, _ in level.misplaced:
            self._report.add("E403", message, node.name_span, hint, edits)
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
        module = self._find(level, node)
        if module is None:
            return None
        path = module.path
        self._result.sites.append(Site(path, node))
        if not self._pick(path, node):
            return _Level(iter(node.children), path, node)
        earlier = self._written.setdefault(path, node)
        if earlier is not node:
            first, again = (self._report.lines.line(element.name_span.start) for element in (earlier, node))
            message = f"module {quote(path)} is imported at lines {first} and {again}; remove one"
            fix = self._without_repeat(earlier, node)
            choices = () if fix else self._one_of(node, earlier)
            self._report.add("E405", message, node.name_span, NOTHING if fix else "", fix, choices)
        self._arguments(module, node)
        if level.last is None and level.leading:
            if self._brings_turns(path):
                self._move(level.leading)
            else:
                self._result.before.setdefault(path, []).extend(level.leading)
            level.leading = []
        level.last = path
        return _Level(iter(node.children), path, node)

    def _without_repeat(self, first: Import, node: Import) -> tuple[Edit, ...]:
        """Returns the edit that removes an import if it only repeats the one directly before it."""
        between = self._source[first.span.end : node.span.start]
        plain = not (node.children or node.arguments) and not between.strip()
        return (Edit(Span(first.span.end, node.span.end), ""),) if plain else ()

    def _one_of(self, *nodes: Import) -> tuple[Fix, ...]:
        """Returns the choices that remove one of two imports; none if one contains other imports."""
        if any(isinstance(child, Import) for node in nodes for child in node.children):
            return ()
        return tuple(
            Fix(
                f"Remove <{node.name}> in line {self._report.lines.line(node.span.start)}",
                (Edit(node.span, ""),),
            )
            for node in nodes
        )

    def _brings_turns(self, path: str) -> bool:
        module = self._schema.module(path)
        return module is not None and bool(module.turns())

    def _find(self, level: _Level, node: Import) -> Module | None:
        """Returns the module that an import names, or None after reporting an error."""
        index, parent = self._schema.index, level.path
        direct = index.members.get(parent, {}).get(node.name)
        if direct is not None:
            return direct
        others = index.by_name.get(node.name, [])
        if not others:
            self._unknown(level, node)
            return None
        if parent:
            return self._misplaced(level, node, others)
        if len(others) == 1:
            return others[0]
        places = " or ".join(quote(module.path) for module in others[:3])
        message = f"the name {quote(node.name)} could be {places}; nest the import as in the schema"
        rounds = [(other.path, self._round(node, other.path.rpartition("/")[0])) for other in others[:3]]
        choices = tuple(
            Fix(f"Write {nested(path)}: {shown(index.by_path[path])} is read", edits)
            for path, edits in rounds
        )
        known = all(edits for _, edits in rounds)
        self._report.add(
            "E404", message, node.name_span, nested(others[0].path), (), choices if known else ()
        )
        return None

    def _misplaced(self, level: _Level, node: Import, others: list[Module]) -> Module | None:
        parent, host = level.path, level.node
        inside = [module for module in others if module.path.startswith(parent + "/")]
        module = (inside or others)[0]
        above = self._schema.parent_of(module.path)
        where = f"in {quote(above)}" if above else "at the top level of the schema"
        message = f"module {quote(node.name)} is {where}, not directly in {quote(parent)}"
        fix: tuple[Edit, ...] = ()
        torn = host is not None and host.unclosed is not None
        if torn and host is not None:
            hint, fix = self._closed_before(host, node) if not level.cut else (f"</{host.name}>", ())
            level.cut = True
            message += f", which is never closed; write {hint} before it"
        elif inside and above is not None:
            hint = nested(module.path.removeprefix(f"{parent}/"))
            fix = self._round(node, above.removeprefix(f"{parent}/")) if len(inside) == 1 else ()
            message += f"; write {hint} here"
        else:
            alone = len(self._schema.index.by_name[module.name]) == 1
            hint = f"<{module.name}/>" if alone else nested(module.path)
            level.misplaced.append(
                (node, f"{message}; write {hint} directly under the prompt", hint, not alone)
            )
            return module if len(others) == 1 else None
        self._report.add("E403", message, node.name_span, hint, fix, of_tags=torn)
        return module if len(inside) == 1 or len(others) == 1 else None

    def _closed_before(self, host: Import, node: Import) -> tuple[str, tuple[Edit, ...]]:
        """Returns the tag that closes an import before a misplaced child; no edits if text precedes it."""
        place = host.unclosed or 0
        if host.children and host.children[0] is node:
            return f"<{host.name}/>", (Edit(Span(place - 1, place - 1), "/"),)
        before = list(takewhile(lambda child: child is not node, host.children))
        closing = f"</{host.name}>"
        if any(isinstance(child, Text) and not child.seam for child in before):
            return closing, ()
        last = [child for child in before if isinstance(child, Import)]
        place = last[-1].span.end if last else place
        return closing, (Edit(Span(place, place), closing),)

    def _unknown(self, level: _Level, node: Import) -> None:
        if self._report.full:
            self._report.add("E402", "", node.name_span)
            return
        meaning = self._unknown_imports.meaning(level.path, node)
        name = self._schema.name
        of = f"schema {quote(name)}" if name else "the schema"
        message = f"{of} has no module {quote(node.name)}; {meaning.words}"
        remedy = meaning.hint, meaning.fix, meaning.choices
        self._report.add("E402", message, node.name_span, *remedy, of_tags=meaning.is_text)

    @cached_property
    def _unknown_imports(self) -> UnknownImports:
        return UnknownImports(self._schema, self._source, self._names, self._earlier)

    @cached_property
    def _imports(self) -> list[Import]:
        return [child for child in self._prompt.children if isinstance(child, Import)]

    @cached_property
    def _starts(self) -> list[int]:
        return [child.span.start for child in self._imports]

    @cached_property
    def _names(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        waiting = list(self._imports)
        while waiting:
            node = waiting.pop()
            counts[node.name] += 1
            waiting.extend(child for child in node.children if isinstance(child, Import))
        return counts

    def _round(self, node: Import, path: str) -> tuple[Edit, ...]:
        """Returns the edits that wrap an import in those of a path, unless one of them exists already."""
        names = path.split("/")
        if any(name in self._names for name in names):
            return ()
        closed = "".join(f"</{name}>" for name in reversed(names))
        return wrapped(node.span, "".join(f"<{name}>" for name in names), closed)

    def _outward(self, level: _Level) -> tuple[Edit, ...]:
        """Returns the edits that move misplaced imports after the top-level import that contains them.

        All imports of a level move together and keep their order.
        """
        nodes, host = [node for node, *_ in level.misplaced], level.node
        place = bisect_right(self._starts, nodes[0].span.start) - 1
        holds_text = host is None or any(
            isinstance(child, Text) and not child.seam for child in host.children
        )
        unclear = any(round_it or self._names[node.name] > 1 for node, _, _, round_it in level.misplaced)
        if not self._source or place < 0 or holds_text or unclear or len(nodes) > _MOST_EDITS:
            return ()
        end = self._imports[place].span.end
        if end < nodes[-1].span.end:
            return ()
        written = "".join(self._source[node.span.start : node.span.end] for node in nodes)
        return (*(Edit(node.span, "") for node in nodes), Edit(Span(end, end), written))

    def _check_schema(self) -> None:
        wanted, name = self._prompt.schema, self._schema.name
        if wanted is not None and name and wanted != name:
            message = f"the prompt names schema {quote(wanted)}, but {quote(name)} is open; change one name"
            span = self._prompt.schema_span
            self._report.add("E401", message, span, name, swap(span, name) if NAME.fullmatch(name) else ())

    def _behind(self, roles: list[Role], place: int) -> tuple[Edit, ...]:
        """Returns the edits that move turns after the last import."""
        if not self._source or len(roles) > _MOST_EDITS:
            return ()
        texts = (self._source[role.span.start : role.span.end] for role in roles)
        return (*(Edit(role.span, "") for role in roles), Edit(Span(place, place), "".join(texts)))

    def _role_too_early(self, role: Role, last: object, fix: tuple[Edit, ...]) -> None:
        line = self._report.lines.line(last.name_span.start) if isinstance(last, Import) else 1
        message = (
            f"<{role.role}> is before the last import (line {line}), but turns of a prompt come after all "
            "imports; move it after the imports"
        )
        span = Span(role.span.start, role.span.start + len(role.role) + 1)
        self._report.add("E409", message, span, "it after the imports", fix)

    def _pick(self, path: str, node: Import) -> bool:
        """Imports a module and its ancestors; False if another member of its union is imported."""
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
        line = lines.line(node.name_span.start)
        other_line = lines.line(self._result.picks[other].name_span.start)
        message = (
            f"{quote(path)} (line {line}) and {quote(other)} (line {other_line}) are members of the same "
            "union, so a prompt can import only one; remove one"
        )
        choices = self._one_of(node, self._result.picks[other])
        self._report.add("E406", message, node.name_span, choices=choices)

    def _arguments(self, module: Module, node: Import) -> None:
        params = {param.name for param in module.params()}
        arguments = self._result.arguments.setdefault(module.path, {})
        for argument in node.arguments:
            if argument.name not in params:
                self._unknown_argument(module, node, argument, params)
            elif argument.name in arguments:
                line = self._report.lines.line(arguments[argument.name].span.start)
                message = f"the argument {quote(argument.name)} is already given at line {line}; keep one"
                same = argument.value == arguments[argument.name].value
                fix = (Edit(argument.span, ""),) if same else ()
                self._report.add("E408", message, argument.span, NOTHING, fix)
            else:
                arguments[argument.name] = argument

    def _unknown_argument(self, module: Module, node: Import, argument: Argument, params: set[str]) -> None:
        written = {other.name for other in node.arguments}
        unused = sorted(params - written)
        near_names = self._speller.near(argument.name, unused)
        near = next(iter(near_names), None)
        sure = meant(argument.name, near_names, unused)
        alone = all(other is argument or other.name in params for other in node.arguments)
        only = unused[0] if near is None and len(unused) == 1 and alone else None
        if only:
            remedy = (
                f"write its other parameter, {only}" if params - {only} else f"write its parameter, {only}"
            )
        elif near:
            remedy = f"did you mean {quote(near)}?"
        else:
            remedy = (
                f"it has {', '.join(sorted(params))}"
                if params
                else "it has no parameter; remove the argument"
            )
        message = f"module {quote(module.path)} has no parameter {quote(argument.name)}; {remedy}"
        span = argument.name_span
        fix = swap(span, sure) if span else ()
        title = f"Write {only}: its value is then {quote_text(argument.value)}"
        choices = (Fix(title, swap(span, only)),) if only and span else ()
        if not params:
            said = quote_text(argument.value)
            choices = (Fix(f"Remove {said}: the model does not read it", (Edit(argument.span, ""),)),)
        self._report.add("E407", message, argument.span, near or only or "", fix, choices)
