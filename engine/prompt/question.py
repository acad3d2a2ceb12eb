"""A question over a schema as a prompt: the modules that a search has found, and the question behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.pml import Import, Module, Prompt, Role, Schema, Text, Union
from engine.pml.diagnostics import NOWHERE
from engine.pml.seams import own_seam
from engine.pml.whitespace import normalise

BEFORE_QUESTION = "\n\n"
"""The seam before a question where the module before it brings none."""


@dataclass(frozen=True)
class Asked:
    """A question, with the modules that answer it.

    Attributes:
        schema: the schema with the text of no other modules than these and those round them. Their segments
            are those of the whole schema, as a module sees only what is always before it.
        prompt: imports them, the best first, and asks.
        paths: what was imported for its own text, the best first.
    """

    schema: Schema
    prompt: Prompt
    paths: tuple[str, ...]


def choose(
    schema: Schema,
    ranked: Iterable[str],
    most: int,
    *,
    budget: int | None = None,
    count: Callable[[str], int] | None = None,
    fits: Callable[[tuple[str, ...]], bool] | None = None,
) -> tuple[str, ...]:
    """Chooses modules that one prompt can import together.

    Args:
        schema: the schema.
        ranked: paths of modules, the best first.
        most: how many at most.
        budget: the most tokens of their texts, those of modules round them included; what does not fit is
            passed over.
        count: tokens of a text; needed for a budget.
        fits: whether a prompt may import these paths; a module with which it may not is passed over.
    """
    members: dict[int, str] = {}
    taken: set[str] = set()
    chosen: list[str] = []
    spent = 0
    for path in ranked:
        if len(chosen) == most:
            break
        above = _with_ancestors(path)
        unions = {id(union): one for one in above if (union := schema.union_of(one)) is not None}
        if any(members.get(union, one) != one for union, one in unions.items()):
            continue
        new = [one for one in above if one not in taken]
        cost = 0
        if budget is not None and count is not None:
            cost = sum(count(_own_text(schema, one)) for one in new)
            if spent + cost > budget:
                continue
        if fits is not None and not fits((*chosen, path)):
            continue
        spent += cost
        members.update(unions)
        taken.update(new)
        chosen.append(path)
    return tuple(chosen)


def ask(schema: Schema, paths: Sequence[str], question: str) -> Asked:
    """Makes a prompt of modules and a question.

    Modules that lie in one module stand together, as a prompt imports each once.

    Args:
        schema: the schema, without errors.
        paths: modules that one prompt can import together, the best first.
        question: the question, which stands at the end, in a turn of the user where the schema has turns.
    """
    narrow = narrowed(schema, paths)
    last = narrow.children[-1] if narrow.children else None
    turns = bool(narrow.index.turns)
    words = Text(normalise(question), NOWHERE)
    tail: tuple[Text | Role, ...]
    if turns and not (isinstance(last, Role) and last.role == "user"):
        tail = (Role("user", (words,), NOWHERE),)
    else:
        seam = Text(BEFORE_QUESTION if paths else "\n", NOWHERE, seam=True, implied=not paths)
        tail = (seam, words)
    prompt = Prompt(schema.name, (*_imports(paths), *tail), NOWHERE)
    return Asked(narrow, prompt, tuple(paths))


def narrowed(schema: Schema, paths: Iterable[str]) -> Schema:
    """The schema with the text of these modules and of those round them only; all text outside modules stays.

    Other modules stay as places without text: text beside them would else be tokenized as one.
    """
    kept = {one for path in paths for one in _with_ancestors(path)}
    scaffolds = tuple(one for one in schema.scaffolds if kept.issuperset(one.modules))
    return replace(schema, children=_children(schema.children, kept), scaffolds=scaffolds)


def _children(children: Iterable[Any], kept: set[str]) -> tuple[Any, ...]:
    return tuple(_narrow(child, kept) for child in children)


def _narrow(node: Any, kept: set[str]) -> Any:
    if isinstance(node, Union):
        return replace(node, members=_children(node.members, kept))
    if isinstance(node, Module):
        if node.path not in kept and node.turns():
            return replace(node, children=tuple(replace(turn, children=()) for turn in node.turns()))
        if node.path not in kept:
            seam = own_seam(node)
            return replace(node, children=(seam,) if seam else (), src=None)
        return replace(node, children=_children(node.children, kept))
    return replace(node, children=_children(node.children, kept)) if isinstance(node, Role) else node


def _with_ancestors(path: str) -> list[str]:
    """The paths of a module and of those round it, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[: place + 1]) for place in range(len(parts))]


def _own_text(schema: Schema, path: str) -> str:
    module = schema.module(path)
    return "".join(child.text for child in module.contents() if isinstance(child, Text)) if module else ""


def _imports(paths: Iterable[str]) -> tuple[Import, ...]:
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for name in path.split("/"):
            inner = inner.setdefault(name, {})
    return tuple(_import(name, inner) for name, inner in tree.items())


def _import(name: str, inner: dict[str, Any]) -> Import:
    return Import(name, (), tuple(_import(one, below) for one, below in inner.items()), NOWHERE, NOWHERE)
