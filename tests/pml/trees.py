"""Drawn schemas and prompts, as trees, with awkward texts and names."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from engine.pml import RESERVED, Argument, Import, Module, Param, Prompt, Role, Scaffold, Schema, Text, Union
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.tree import Decide, DecideKind
from engine.pml.whitespace.separators import ended, with_seam

AWKWARD = (
    *(" ", "\n", "\t", "  \n  ", "a", "Word ", "\n\n    ", "line\n", "\n    def f():\n        x\n", "\r"),
    *("<", "&amp;", "]]>", '"', "'", "{", "}}", "{%", "\\", "<!-- c -->", "#", "${x}"),
    *("🗼", "é", "e\u0301", "\u202e", "\u00a0"),
)


def joined(pieces: Sequence[str], min_size: int = 0, max_size: int = 5) -> st.SearchStrategy[str]:
    """So many of some pieces, drawn in one draw: each by itself is most of what drawing a tree takes."""
    drawn = st.binary(min_size=min_size, max_size=max_size)
    return drawn.map(lambda chosen: "".join(pieces[number % len(pieces)] for number in chosen))


TEXTS = joined(AWKWARD, 1, 6)
PLAIN = st.text(string.ascii_letters + " .,\n", min_size=1, max_size=20)
VALUES = st.none() | TEXTS | st.just("")
_FIRST = string.ascii_letters + "_東éЖ🗼ﬁ"
_LATER = _FIRST + string.digits + ".-京ไ"
NAMES = (
    st.binary(min_size=1, max_size=6)
    .map(lambda drawn: _FIRST[drawn[0] % len(_FIRST)] + "".join(_LATER[n % len(_LATER)] for n in drawn[1:]))
    .filter(lambda name: name not in RESERVED)
)
_FOUR, _THREE = st.lists(NAMES, unique=True, max_size=4), st.lists(NAMES, unique=True, max_size=3)
_TWO = st.lists(NAMES, unique=True, min_size=2, max_size=2)
_KINDS = joined("tmup")
_PLACES = st.integers(1, 40)


def text(value: str) -> Text:
    return Text(value, NOWHERE)


def _param(draw: st.DrawFn, name: str) -> Param:
    return Param(name, draw(_PLACES), draw(VALUES), draw(VALUES), NOWHERE)


def _module(draw: st.DrawFn, name: str, above: str, depth: int, texts: st.SearchStrategy[str]) -> Module:
    path = f"{above}/{name}" if above else name
    children = _contents(draw, path, depth, texts, True)
    return Module(name, path, children, draw(st.booleans()), None, NOWHERE, NOWHERE)


def _earlier(children: list[Any]) -> Param | None:
    """The last parameter among children, which another may repeat."""
    return next((child for child in reversed(children) if isinstance(child, Param)), None)


def _contents(
    draw: st.DrawFn, path: str, depth: int, texts: st.SearchStrategy[str], inside: bool, used: Any = ()
) -> tuple[Any, ...]:
    """What stands in a schema, a role or a module: no two texts beside each other."""
    names = iter([name for name in draw(_FOUR) if name not in used])
    slots = iter(draw(_THREE) if inside else [])
    children: list[Any] = []
    for kind in draw(_KINDS):
        if kind == "t" and not (children and isinstance(children[-1], Text)):
            children.append(text(draw(texts)))
        elif kind == "p" and (first := _earlier(children)) and draw(st.booleans()):
            children.append(replace(first, repeats=True))
        elif kind == "p" and (slot := next(slots, None)):
            children.append(_param(draw, slot))
        elif kind == "m" and depth and (name := next(names, None)):
            children.append(_module(draw, name, path, depth - 1, texts))
        elif kind == "u" and depth and (found := [n for n in (next(names, None), next(names, None)) if n]):
            members = tuple(_module(draw, name, path, depth - 1, texts) for name in found)
            children.append(Union(members, draw(st.sampled_from([None, *found])), NOWHERE))
    return tuple(children)


def _whole_turns(
    draw: st.DrawFn, texts: st.SearchStrategy[str], depth: int, used: frozenset[str]
) -> Module | Union | None:
    """A module of whole turns, or a union of one and a module of text."""
    name, other = draw(_TWO.filter(lambda names: used.isdisjoint(names)))
    turns: list[Role] = []
    names: set[str] = set()
    for role in draw(st.lists(st.sampled_from(["system", "user", "assistant"]), min_size=1, max_size=2)):
        found = _contents(draw, name, depth, texts, True, frozenset(names))
        below = Module(name, name, found, True, None, NOWHERE, NOWHERE)
        if len({one.name for one in below.params()} & names) == 0:
            turns.append(Role(role, found, NOWHERE))
            names |= {one.name for one in below.params()}
            names |= Schema("s", (below,), (), NOWHERE).index.members.get(name, {}).keys()
    module = Module(name, name, tuple(turns), draw(st.booleans()), None, NOWHERE, NOWHERE)
    if not turns or draw(st.booleans()):
        return module if turns else None
    beside = Module(other, other, (text(draw(texts)),), True, None, NOWHERE, NOWHERE)
    return Union((module, beside), None, NOWHERE)


@st.composite
def schemas(
    draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS, depth: int = 3, *, optional: bool = True
) -> Schema:
    """A schema; `optional`: modules may bring whole turns, which programs and the builder cannot spell."""
    kinds = [None, "system", "user", "assistant", *(["turns"] if optional else [])]
    children: list[Any] = []
    used: set[str] = set()
    for role in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        if role == "turns":
            found = _whole_turns(draw, texts, depth and 1, frozenset(used))
            members = found.members if isinstance(found, Union) else (found,) if found else ()
            used |= {module.name for module in members}
            children.extend((found,) if found else ())
            continue
        inner = _contents(draw, "", depth, texts, False, frozenset(used))
        used |= {module.name for module in Schema("s", inner, (), NOWHERE).index.members[""].values()}
        if role is not None:
            children.append(Role(role, inner, NOWHERE))
        elif not (children and isinstance(children[-1], Text) and inner and isinstance(inner[0], Text)):
            children.extend(inner)
    schema = Schema(draw(NAMES), tuple(children), (), NOWHERE)
    paths = list(schema.index.by_path)
    if paths and draw(st.booleans()):
        named = tuple(draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)))
        schema = Schema(schema.name, schema.children, (Scaffold(named, NOWHERE),), NOWHERE)
    return schema


@st.composite
def prompts(draw: st.DrawFn, schema: Schema, texts: st.SearchStrategy[str] = TEXTS) -> Prompt:
    """A prompt that binds to the schema: picks in schema order, arguments, new text at the end."""
    index = schema.index
    picked: set[str] = set()
    closed: set[int] = set()
    for path in index.by_path:
        above = path.rpartition("/")[0]
        union = index.union_of.get(path)
        if (above and above not in picked) or (union is not None and id(union) in closed):
            continue
        if draw(st.booleans()):
            picked.add(path)
            if union is not None:
                closed.add(id(union))
    tops = [name for name in index.members[""] if name in picked]
    children: list[Any] = [_import(draw, index, name, picked, texts) for name in tops]
    if draw(st.booleans()):
        children.append(text(draw(texts)))
    asked = draw(st.none() | questions(texts))
    return Prompt(schema.name, tuple(children), NOWHERE, questions=() if asked is None else (asked,))


@st.composite
def questions(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> Decide:
    """A question of a prompt."""
    kind: DecideKind = draw(st.sampled_from(["predicate", "choice", "score"]))
    labels = [] if kind == "predicate" else draw(_TWO)
    options = tuple((label, draw(texts | st.just(""))) for label in labels)
    return Decide(kind, draw(texts.filter(str.strip)), options, draw(NAMES | st.just("")))


def _import(
    draw: st.DrawFn, index: Any, path: str, picked: set[str], texts: st.SearchStrategy[str]
) -> Import:
    module = index.by_path[path]
    given = [param for param in module.params() if draw(st.booleans())]
    arguments = tuple(Argument(param.name, draw(texts), NOWHERE) for param in given)
    inner = [one.path for one in index.members.get(path, {}).values() if one.path in picked]
    children = tuple(_import(draw, index, below, picked, texts) for below in inner)
    return Import(module.name, arguments, children, NOWHERE, NOWHERE)


@st.composite
def seamed(draw: st.DrawFn, drawn: st.SearchStrategy[Schema]) -> Schema:
    """A drawn schema with seams behind some of its modules, unions and texts."""
    seams = st.sampled_from(["", "\n", "\n\n", " "])

    def below(children: tuple[Any, ...]) -> tuple[Any, ...]:
        found: list[Any] = []
        for place, child in enumerate(children):
            last = place == len(children) - 1
            follows = None if last else children[place + 1]
            if isinstance(child, Union):
                child = replace(child, members=below_each(child.members))
            elif isinstance(child, Module | Role):
                child = replace(child, children=below(child.children))
            seam = draw(seams)
            if isinstance(child, Module | Union) and not last:
                child = with_seam(child, seam, NOWHERE)
            found.append(child)
            if isinstance(child, Text) and isinstance(follows, Module | Union) and seam:
                found.append(Text(seam, NOWHERE, seam=True))
        return ended(found)

    def below_each(members: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(one, children=below(one.children)) for one in members)

    schema = draw(drawn)
    return replace(schema, children=below(schema.children))
