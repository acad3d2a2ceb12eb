"""Turns the named blocks of a conversation into modules of one schema. Needs no tokenizer.

A block that sees others is nested inside them in a chain, because a module sees the text of its ancestors. So
a block can occur several times in the tree; the conversation reads one occurrence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.base.errors import SettingsError
from engine.pml import Module, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.xml.names import NAME, NAME_RULE

MOST_SEEN = 64  # limit of a chain of blocks; each nests the next one deeper
LONGEST_NAME = 200  # characters; the store lists segments by name


@dataclass(frozen=True)
class Named:
    """The name that makes a block a module, which is found at any place and after any text.

    Attributes:
        name: a valid module name.
        sees: the names of blocks of the same conversation that form its context.
    """

    name: str
    sees: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A part of a message, read verbatim; only messages of the system or the user may name it as a module."""

    text: str
    module: Named | None = None


@dataclass(frozen=True)
class Modules:
    """The named blocks of a conversation.

    Attributes:
        tree: adjacent modules; a module that sees another is nested in it.
        places: by name, the path of the module that is read, and its text.
    """

    tree: tuple[Module, ...] = ()
    places: dict[str, tuple[str, Text]] = field(default_factory=dict)


def modules_of(blocks: Iterable[Block]) -> Modules:
    """Makes modules of the named blocks of one conversation; blocks without text are skipped.

    Raises:
        SettingsError: a name is invalid, two blocks with one name differ, a block sees itself or an unknown
            block, or a chain is longer than `MOST_SEEN`.
    """
    named: dict[str, Block] = {}
    for block in blocks:
        if block.module is not None:
            _require(block, block.module, named)
            named[block.module.name] = block
    root, places = _Nest(), dict[str, tuple[str, Text]]()
    for name in named:
        nest, chain = root, _chain(name, named)
        if len(chain) > MOST_SEEN + 1:
            raise SettingsError(
                f"The named block {name!r} is encoded after {len(chain) - 1} others; {MOST_SEEN} is the "
                "limit. Reduce the blocks that it or they see."
            )
        for link in chain:
            nest = nest.inner.setdefault(link, _Nest(named[link].text))
        if nest.text.text:
            places[name] = "/".join(chain), nest.text
    return Modules(root.modules(""), places)


class _Nest:
    def __init__(self, text: str = "") -> None:
        self.text = Text(text, NOWHERE)
        self.inner: dict[str, _Nest] = {}

    def modules(self, above: str) -> tuple[Module, ...]:
        return tuple(
            Module(
                name,
                above + name,
                (nest.text, *nest.modules(f"{above}{name}/")),
                cache=True,
                src=None,
                span=NOWHERE,
                name_span=NOWHERE,
            )
            for name, nest in self.inner.items()
        )


def _require(block: Block, module: object, found: dict[str, Block]) -> None:
    """Raises an error for an invalid name, or one that another text uses."""
    name: Any = getattr(module, "name", None)
    sees: Any = getattr(module, "sees", "")
    if not isinstance(module, Named) or not isinstance(name, str) or isinstance(sees, str):
        raise SettingsError(f'module is {module!r}; it must be Named("name"), or Named("name", ("other",)).')
    if len(module.name) > LONGEST_NAME:
        raise SettingsError(
            f"The name of a block, {module.name[:40]!r}…, has {len(module.name):,} characters; "
            f"{LONGEST_NAME} is the limit."
        )
    if not NAME.fullmatch(module.name):
        raise SettingsError(f"{module.name!r} cannot be the name of a block: names {NAME_RULE}.")
    before = found.get(module.name)
    if before is not None and before != block:
        difference = "texts" if before.text != block.text else "blocks that they see"
        raise SettingsError(
            f"Two blocks are named {module.name!r} and differ in their {difference}. Rename one of them."
        )


def _chain(name: str, found: dict[str, Block]) -> tuple[str, ...]:
    """The names in the context of a block, then its own."""
    order: dict[str, None] = {}
    begun: set[str] = set()
    waiting = [(name, False)]
    while waiting:
        block, seen = waiting.pop()
        if seen:
            order[block] = None
            continue
        if block in order:
            continue
        if block in begun:
            raise SettingsError(f"The named block {block!r} sees itself. Remove a block from its chain.")
        begun.add(block)
        waiting.append((block, True))
        module = found[block].module
        for other in reversed(module.sees if module is not None else ()):
            if other not in found:
                raise SettingsError(
                    f"The named block {block!r} sees {other!r}, but no block has that name; "
                    f"there are {', '.join(map(repr, found))}."
                )
            waiting.append((other, False))
    return tuple(order)
