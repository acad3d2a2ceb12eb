"""Blocks of a conversation, and those with names as modules of one schema. Knows no tokenizer.

A block that sees others is nested in them, the one in the other, as a module sees the text of those round it.
So one block can stand in several places of the tree, of which the conversation reads one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.errors import SettingsError
from engine.pml import Module, Text
from engine.pml.diagnostics import NOWHERE
from engine.pml.names import NAME, NAME_RULE

MOST_SEEN = 64
"""Blocks that one is encoded after: each nests it one deeper."""
LONGEST_NAME = 200
"""Characters: the store lists segments by their names."""


@dataclass(frozen=True)
class Named:
    """A name that makes a block a module: it is found wherever it stands, and whatever stands before it.

    Attributes:
        name: as of a module of a schema.
        sees: the names of blocks of the same conversation that it is encoded after; it does not see others.
    """

    name: str
    sees: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A part of a message.

    Attributes:
        text: what it says, read as it is.
        module: its name, where it has one; only in what the system or the user says.
    """

    text: str
    module: Named | None = None


@dataclass(frozen=True)
class Modules:
    """The named blocks of a conversation.

    Attributes:
        tree: as modules side by side; nested where one sees another.
        places: by name the path of the module that is read, and its text.
    """

    tree: tuple[Module, ...] = ()
    places: dict[str, tuple[str, Text]] = field(default_factory=dict)


def modules_of(blocks: Iterable[Block]) -> Modules:
    """Makes modules of the blocks that have names; those without text are none.

    Args:
        blocks: of one conversation.

    Raises:
        SettingsError: a name is none, two blocks of one name differ, a block sees itself or none, or more
            than `MOST_SEEN` others one behind the other.
    """
    found: dict[str, Block] = {}
    for block in blocks:
        if block.module is not None:
            _require(block, block.module, found)
            found[block.module.name] = block
    root, places = _Nest(), dict[str, tuple[str, Text]]()
    for name in found:
        nest, chain = root, _chain(name, found)
        if len(chain) > MOST_SEEN + 1:
            raise SettingsError(
                f"The named block {name!r} is encoded after {len(chain) - 1} others, and {MOST_SEEN} are the "
                "most. Let it, or those that it sees, see less."
            )
        for one in chain:
            nest = nest.inner.setdefault(one, _Nest(found[one].text))
        if nest.text.text:
            places[name] = "/".join(chain), nest.text
    return Modules(root.modules(""), places)


class _Nest:
    def __init__(self, text: str = "") -> None:
        self.text = Text(text, NOWHERE)
        self.inner: dict[str, _Nest] = {}

    def modules(self, above: str) -> tuple[Module, ...]:
        """The modules below."""
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
    """Refuses a name that is none, or that another text has."""
    name: Any = getattr(module, "name", None)
    sees: Any = getattr(module, "sees", "")
    if not isinstance(module, Named) or not isinstance(name, str) or isinstance(sees, str):
        raise SettingsError(f'module is {module!r}; it must be Named("name"), or Named("name", ("other",)).')
    if len(module.name) > LONGEST_NAME:
        raise SettingsError(
            f"The name of a block, {module.name[:40]!r}…, has {len(module.name):,} characters, and "
            f"{LONGEST_NAME} are the most."
        )
    if not NAME.fullmatch(module.name):
        raise SettingsError(f"{module.name!r} cannot be the name of a block: names {NAME_RULE}.")
    before = found.get(module.name)
    if before is not None and before != block:
        what = "texts" if before.text != block.text else "blocks that they see"
        raise SettingsError(
            f"Two blocks are named {module.name!r} and differ in their {what}. Rename one of them."
        )


def _chain(name: str, found: dict[str, Block]) -> tuple[str, ...]:
    """The names of all that a block is encoded after, and its own."""
    order: dict[str, None] = {}
    begun: set[str] = set()
    waiting = [(name, False)]
    while waiting:
        one, seen = waiting.pop()
        if seen:
            order[one] = None
            continue
        if one in order:
            continue
        if one in begun:
            raise SettingsError(
                f"The named block {one!r} sees itself. Let it, or one that it sees, see less."
            )
        begun.add(one)
        waiting.append((one, True))
        module = found[one].module
        for other in reversed(module.sees if module is not None else ()):
            if other not in found:
                raise SettingsError(
                    f"The named block {one!r} sees {other!r}, and there is no block of that name; there are "
                    f"{', '.join(map(repr, found))}."
                )
            waiting.append((other, False))
    return tuple(order)
