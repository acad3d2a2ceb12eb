"""Converts a bound prompt to the request of a chat service, with cache breakpoints.

Such services reuse only a prompt's prefix: text after the first change is computed again. The *stable prefix*
is the text before the first argument or new text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.pml import ArgumentText, NewText, Part, RoleClose, RoleOpen, SchemaText
from engine.pml.tree.conversation import conversation
from engine.pml.tree.parts import part_text

MAX_BREAKPOINTS: Final = 4  # limit of cache breakpoints in a request to Anthropic


@dataclass(frozen=True)
class ContentBlock:
    """Text of one turn from one source.

    Attributes:
        turn: number of the turn; text between turns counts as one turn.
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
    """Returns the `messages` of a request to OpenAI or a compatible service, and notes.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    messages = [{"role": m.role or "user", "content": m.text} for m in conversation(parts) if m.text]
    if not messages:
        raise ExchangeError("the prompt is empty, and services refuse empty requests; import a module")
    return {"messages": messages}, (_stable_note(_blocks(parts)), *_turn_notes(parts))


def to_openai_marked(parts: Iterable[Part]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the same with contents in parts, of which at most four end in a cache breakpoint.

    The breakpoints are those of `to_anthropic`.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    blocks = _with_words(_stable_first(_blocks(parts)))
    if not blocks:
        raise ExchangeError("the prompt is empty, and services refuse empty requests; import a module")
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
    """Returns the `system` and `messages` of a request to Anthropic, and notes.

    At most four blocks end in a cache breakpoint: the end of the stable prefix, and earlier module
    boundaries, up to which prompts with other picks still share the text.

    Raises:
        ExchangeError: the prompt is empty.
    """
    parts = tuple(parts)
    blocks = _blocks(parts)
    notes = list(_turn_notes(parts))
    late = [block for block in blocks if block.role == "system" and _follows_other(block, blocks)]
    if late:
        notes.append("a system turn after the first other turn is moved up to the service's only system text")
    ordered = _with_words(_stable_first(sorted(blocks, key=lambda block: block.role != "system")))
    if not ordered:
        raise ExchangeError("the prompt is empty, and services refuse empty requests; import a module")
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
        notes.append("there is no user turn; add one before sending it")
    body: dict[str, Any] = {"system": system} if system else {}
    return {**body, "messages": messages}, (_stable_note(ordered), *notes)


def _follows_other(block: ContentBlock, blocks: list[ContentBlock]) -> bool:
    return any(other.turn < block.turn and other.role != "system" for other in blocks)


def _turn_notes(parts: tuple[Part, ...]) -> tuple[str, ...]:
    roles = any(isinstance(part, RoleOpen) for part in parts)
    outside = any(message.role is None and message.text for message in conversation(parts))
    return ("text between turns became user turns",) if roles and outside else ()


def _blank_note(parts: tuple[Part, ...], sent: list[ContentBlock]) -> tuple[str, ...]:
    """A note on turns with only white space, which are not sent."""
    blank = len({block.turn for block in _blocks(parts)} - {block.turn for block in sent})
    left = "turn with only white space is left out, because the service refuses it"
    several = "turns with only white space are left out, because the service refuses them"
    return (f"{blank} {left if blank == 1 else several}",) if blank else ()


def _blocks(parts: tuple[Part, ...]) -> list[ContentBlock]:
    """The parts as blocks: neighbours with the same turn, module and stability are joined."""
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
    """Marks everything after the first change as unstable and joins it to one block per turn."""
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
    """Joins blocks of white space to a neighbour in their turn, because the service refuses them."""
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
    """Returns the indexes of at most four blocks in the stable prefix that should end in a breakpoint.

    These are the end of the stable prefix, the end of the text that every prompt has, and module boundaries
    as far from the chosen ones as possible, in characters.
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
    return f"{share}; a service can cache these if they reach its minimum length"
