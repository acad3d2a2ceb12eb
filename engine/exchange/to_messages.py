"""A bound prompt as the request of a chat service, with the places at which a service may cache.

Such services reuse a prompt's beginning only: whatever comes after the first word that changes is read anew.
The *stable prefix* is what stands before the first argument or new text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.pml import ArgumentText, NewText, Part, RoleClose, RoleOpen, SchemaText
from engine.pml.tree.conversation import conversation
from engine.pml.tree.parts import part_text

MAX_BREAKPOINTS: Final = 4
"""How many cache breakpoints a request to Anthropic may have."""


@dataclass(frozen=True)
class ContentBlock:
    """Text of one turn that comes from one place.

    Attributes:
        turn: number of the turn, text between turns counted as one.
        role: its role.
        module: path of the outermost module; empty for text that every prompt has.
        text: the text.
        stable: whether every prompt with the same picks has it.
    """

    turn: int
    role: str
    module: str
    text: str
    stable: bool


def to_openai(parts: Iterable[Part]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The `messages` of a request to OpenAI or a service like it, and notes.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    messages = [{"role": one.role or "user", "content": one.text} for one in conversation(parts) if one.text]
    if not messages:
        raise ExchangeError("the prompt is empty, and a service takes no empty request; import a module")
    return {"messages": messages}, (_stable_note(_blocks(parts)), *_turn_notes(parts))


def to_openai_marked(parts: Iterable[Part]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As `to_openai`, with the content of turns in parts, at most four of which end in a cache breakpoint.

    The breakpoints are those of `to_anthropic`.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    blocks = _with_words(_stable_first(_blocks(parts)))
    if not blocks:
        raise ExchangeError("the prompt is empty, and a service takes no empty request; import a module")
    marks = breakpoints(blocks)
    messages: list[dict[str, Any]] = []
    turn = -1
    for place, block in enumerate(blocks):
        if block.turn != turn:
            turn = block.turn
            messages.append({"role": block.role, "content": []})
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if place in marks else {}
        messages[-1]["content"].append({"type": "text", "text": block.text, **mark})
    return {"messages": messages}, (_stable_note(blocks), *_turn_notes(parts), *_blank_note(parts, blocks))


def to_anthropic(parts: Iterable[Part]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The `system` and `messages` of a request to Anthropic, and notes.

    At most four blocks end in a cache breakpoint: the end of the stable prefix, and borders of modules before
    it, where prompts with other picks still share what is before.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    blocks = _blocks(parts)
    notes = list(_turn_notes(parts))
    late = [block for block in blocks if block.role == "system" and _follows_other(block, blocks)]
    if late:
        notes.append("a system turn after the first other turn is moved up, as there is one place for it")
    ordered = _with_words(_stable_first(sorted(blocks, key=lambda block: block.role != "system")))
    if not ordered:
        raise ExchangeError("the prompt is empty, and a service takes no empty request; import a module")
    notes.extend(_blank_note(parts, ordered))
    marks = breakpoints(ordered)
    system: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    turn = -1
    for place, block in enumerate(ordered):
        entry: dict[str, Any] = {"type": "text", "text": block.text}
        if place in marks:
            entry["cache_control"] = {"type": "ephemeral"}
        if block.role == "system":
            system.append(entry)
            continue
        if block.turn != turn:
            turn = block.turn
            messages.append({"role": block.role, "content": []})
        messages[-1]["content"].append(entry)
    if not messages:
        notes.append("there is no turn of the user; add one before sending it")
    body: dict[str, Any] = {"system": system} if system else {}
    return {**body, "messages": messages}, (_stable_note(ordered), *notes)


def _follows_other(block: ContentBlock, blocks: list[ContentBlock]) -> bool:
    return any(one.turn < block.turn and one.role != "system" for one in blocks)


def _turn_notes(parts: tuple[Part, ...]) -> tuple[str, ...]:
    roles = any(isinstance(part, RoleOpen) for part in parts)
    outside = any(message.role is None and message.text for message in conversation(parts))
    return ("text between the turns became turns of the user",) if roles and outside else ()


def _blank_note(parts: tuple[Part, ...], sent: list[ContentBlock]) -> tuple[str, ...]:
    """What is said of turns that hold nothing but white space, which are not among the blocks sent."""
    blank = len({block.turn for block in _blocks(parts)} - {block.turn for block in sent})
    left = "turn of white space alone is left out, as the service refuses it"
    several = "turns of white space alone are left out, as the service refuses them"
    return (f"{blank} {left if blank == 1 else several}",) if blank else ()


def _blocks(parts: tuple[Part, ...]) -> list[ContentBlock]:
    """The parts as blocks: neighbours of one turn, module and stability are joined."""
    blocks: list[ContentBlock] = []
    turn, role = 0, "user"
    for part in parts:
        if isinstance(part, RoleOpen):
            turn, role = turn + 1, part.role
        elif isinstance(part, RoleClose):
            turn, role = turn + 1, "user"
        elif text := part_text(part):
            module = part.module.partition("/")[0] if isinstance(part, (SchemaText, ArgumentText)) else ""
            stable = not isinstance(part, NewText) and not (isinstance(part, ArgumentText) and part.given)
            block = ContentBlock(turn, role, module, text, stable)
            last = blocks[-1] if blocks else None
            if last is not None and replace(last, text="") == replace(block, text=""):
                blocks[-1] = replace(last, text=last.text + text)
            else:
                blocks.append(block)
    return blocks


def _stable_first(blocks: list[ContentBlock]) -> list[ContentBlock]:
    """After the first change nothing is stable, and what follows in a turn is one block."""
    result: list[ContentBlock] = []
    stable = True
    for block in blocks:
        stable = stable and block.stable
        last = result[-1] if result else None
        if last is not None and not stable and not last.stable and last.turn == block.turn:
            result[-1] = replace(last, text=last.text + block.text)
        else:
            result.append(replace(block, stable=stable))
    return result


def _with_words(blocks: list[ContentBlock]) -> list[ContentBlock]:
    """Blocks of white space are refused by the service: each joins its neighbour in the turn."""
    result: list[ContentBlock] = []
    pending = ""
    for place, block in enumerate(blocks):
        follows = place + 1 < len(blocks) and blocks[place + 1].turn == block.turn
        text = pending + block.text
        pending = ""
        if text.strip():
            result.append(replace(block, text=text))
        elif result and result[-1].turn == block.turn:
            result[-1] = replace(
                result[-1], text=result[-1].text + text, stable=result[-1].stable and block.stable
            )
        elif follows:
            pending = text
    return result


def breakpoints(blocks: list[ContentBlock]) -> set[int]:
    """The blocks after which the service shall cache: at most four, in the stable prefix.

    The end of the stable prefix is one, the end of what every prompt has another; the others are borders of
    modules as far from the chosen ones as can be, in characters.
    """
    stable = 0
    while stable < len(blocks) and blocks[stable].stable:
        stable += 1
    if not stable:
        return set()
    ends: list[int] = []
    for block in blocks[:stable]:
        ends.append((ends[-1] if ends else 0) + len(block.text))
    chosen = {stable - 1}
    first = next((place for place in range(stable) if blocks[place].module), stable)
    if first:
        chosen.add(first - 1)
    while len(chosen) < min(MAX_BREAKPOINTS, stable):
        free = [place for place in range(stable) if place not in chosen]
        chosen.add(max(free, key=lambda place: min(abs(ends[place] - ends[other]) for other in chosen)))
    return chosen


def _stable_note(blocks: list[ContentBlock]) -> str:
    stable = 0
    for block in blocks:
        if not block.stable:
            break
        stable += len(block.text)
    total = sum(len(block.text) for block in blocks)
    share = f"{stable:,} of {total:,} characters stand before the first argument or new text"
    if stable == total:
        share = f"all {total:,} characters are the schema's own"
    return f"{share}; a service can cache these, if they are as long as it demands"
