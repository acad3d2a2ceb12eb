"""Builds a prompt from a question and the modules that a search found for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.pml import Import, Module, Prompt, Role, Schema, Text, Union
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.rules import normalise
from engine.pml.whitespace.separators import own_seam

BEFORE_QUESTION = "\n\n"  # the separator before a question if the module before it has none


@dataclass(frozen=True)
class Asked:
    """A question with the modules that answer it.

    Attributes:
        schema: the schema with only the text of these modules and of their ancestors. Segments are the same
            as for the whole schema, because a module attends only to text that always precedes it.
        prompt: imports the modules, best first, then asks the question.
        paths: the modules imported for their own text, best first.
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
        ranked: paths of modules, best first.
        most: the maximum number of modules.
        budget: the maximum number of tokens of their texts and their ancestors' texts; modules that do not
            fit are skipped.
        count: counts the tokens of a text; required with a budget.
        fits: whether a prompt may import these paths; otherwise the last module is skipped.
    """
    members: dict[int, str] = {}
    taken: set[str] = set()
    chosen: list[str] = []
    spent = 0
    for path in ranked:
        if len(chosen) == most:
            break
        above = _with_ancestors(path)
        unions = {id(union): module for module in above if (union := schema.union_of(module)) is not None}
        if any(members.get(union, module) != module for union, module in unions.items()):
            continue
        new = [module for module in above if module not in taken]
        cost = 0
        if budget is not None and count is not None:
            cost = sum(count(_own_text(schema, module)) for module in new)
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
    """Makes a prompt of modules, best first, and a question in a user turn if the schema has turns.

    Modules with a common parent are grouped, because a prompt imports each parent once.
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
    """Returns the schema with only the text of these modules and of their ancestors; anonymous text stays.

    Other modules stay without text. Without them, the texts around them would be tokenized together.
    """
    kept_paths = {ancestor for path in paths for ancestor in _with_ancestors(path)}
    scaffolds = tuple(ancestor for ancestor in schema.scaffolds if kept_paths.issuperset(ancestor.modules))
    return replace(schema, children=_children(schema.children, kept_paths), scaffolds=scaffolds)


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
    """The paths of a module and its ancestors, outermost first."""
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
    return Import(name, (), tuple(_import(child, below) for child, below in inner.items()), NOWHERE, NOWHERE)
