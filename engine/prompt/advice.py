"""Diagnostics that need a tokenizer and its chat template.

The reference is transformers' `apply_chat_template` over the same conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.pml import Bound, Diagnostic, Prompt, RoleOpen, Schema, make
from engine.pml.diagnostics.diagnostic import Span, quote
from engine.pml.tree.conversation import conversation
from engine.prompt.layout import SchemaLayout
from engine.prompt.pieces import PromptPlan
from engine.prompt.spec import ModelSpec
from engine.prompt.template.rendered import Rendering
from engine.prompt.template.tokenizer import Fragment, Tokenizer
from engine.prompt.template.trimming import turn_texts
from engine.prompt.template.turn_marks import fixed_turns, said_by
from engine.prompt.template.turns import ChatError

_SHOWN = 3  # differences shown in one message


def of_schema(spec: ModelSpec, layout: SchemaLayout) -> Iterator[Diagnostic]:
    """Yields advice on a schema after layout."""
    yield from _stand_ins(spec, layout.schema)
    schema, chat = layout.schema, spec.chat
    turns = fixed_turns(schema)
    if not turns:
        return
    roles, contents = [turn.role for turn in turns], list(map(said_by, turns))
    try:
        opening = chat.opening(roles, contents, layout.day)
        dated = chat.date is None and chat.writes_date(roles, contents)
    except ChatError:  # allowed next to turns of modules
        return
    yield from _refused_system(opening, turns[0].span, schema)
    if dated:
        message = (
            f"the model's chat template writes the date ({layout.day:%Y-%m-%d}), so on another day "
            "every segment after it is computed again"
        )
        hint = f"set a fixed date: --date {layout.day:%Y-%m-%d}, PML_DATE or Engine.open(date=…)"
        yield make("W608", message, turns[0].span, schema.lines, hint)


def of_prompt(
    spec: ModelSpec, plan: PromptPlan, bound: Bound, prompt: Prompt, rendering: Rendering | None
) -> Iterator[Diagnostic]:
    """Yields advice on a planned prompt: what the chat template changes, and which tokens differ."""
    chat = spec.chat
    if rendering is None:
        texts = [Fragment(message.text) for message in conversation(bound.parts)]
        bos = chat.begins(bound.schema)
        whole = [token for ids in chat.tokens.encode(texts, begins=True) for token in ids]
        yield from _tokens(spec, plan.token_ids, whole if bos is None else [bos, *whole], prompt)
        return
    if not any(
        isinstance(part, RoleOpen) and part.role == "system" and not (part.new or part.module)
        for part in bound.parts
    ):
        yield from _refused_system(rendering, prompt.span, prompt)
    if not rendering.invites:
        ends = f", right after {rendering.closes[-1][-30:]!r}" if rendering.closes[-1] else ""
        message = f"the model's chat template has no start of the assistant's turn; the answer begins{ends}"
        yield make("W609", message, prompt.span, prompt.lines)
    contents = turn_texts(bound.parts)
    turns = [part for part in bound.parts if isinstance(part, RoleOpen)]
    yield from _rewritten(rendering, turns, contents, plan, prompt)
    if len(conversation(bound.parts)) == len(contents):  # no template supports text between turns
        fragments = list(_fragments(rendering, chat.tokens))
        whole = [token for ids in chat.tokens.encode(fragments, begins=True) for token in ids]
        yield from _tokens(spec, plan.token_ids, whole, prompt)


def _fragments(rendering: Rendering, tokens: Tokenizer) -> Iterator[Fragment]:
    """The texts of a rendering, one fragment for each author."""
    yield tokens.rendered(rendering.begin)
    for opened, content, closed in zip(rendering.opens, rendering.contents, rendering.closes, strict=True):
        yield tokens.rendered(opened)
        for item in content:
            yield tokens.rendered(item) if isinstance(item, str) else Fragment(item.text)
        yield tokens.rendered(closed)
    yield tokens.rendered(rendering.generation)


def _refused_system(rendering: Rendering, span: Span, document: Schema | Prompt) -> Iterator[Diagnostic]:
    if rendering.system == "refused":
        message = (
            "the model's chat template refuses system text; here it is the first paragraph of the first "
            "user turn"
        )
        yield make("W610", message, span, document.lines)


def _rewritten(
    rendering: Rendering, turns: Sequence[RoleOpen], contents: Sequence[str], plan: PromptPlan, prompt: Prompt
) -> Iterator[Diagnostic]:
    """Reports turns that the template changes, except for white space and thoughts."""
    by_fate: dict[str, list[int]] = {}
    for number, content in enumerate(contents):
        if turns[number].role != "tool" and (fate := _fate(rendering, number, content)):
            by_fate.setdefault(fate, []).append(number)
    if not by_fate:
        return
    fates = [
        f"{fate} turn {_listed([f'{number + 1} ({turns[number].role})' for number in numbers])}"
        for fate, numbers in by_fate.items()
    ]
    message = f"the model's chat template {' and '.join(fates)}; the model reads what the template writes"
    computed = sum(piece.tokens for piece in plan.pieces if piece.why)
    if computed:
        message += f", and every request computes {computed} tokens of the schema"
    hint = "“What the model reads” in the studio shows its text"
    spans = (
        turns[number].node.span for numbers in by_fate.values() for number in numbers if turns[number].new
    )
    yield make("W612", message, next(spans, _start(prompt)), prompt.lines, hint)


def _fate(rendering: Rendering, turn: int, content: str) -> str:
    """How the template changes the text of a turn; "" if unchanged."""
    items = rendering.contents[turn]
    read = "".join(item if isinstance(item, str) else item.text for item in items)
    if not read:
        gaps = (*rendering.opens, *rendering.closes, rendering.generation)
        moved = any(content.strip() in gap for gap in gaps)
        return "" if not content.strip() else "moves" if moved else "rewrites or leaves out"
    before, match, behind = content.partition(read)
    if not match:
        return "rewrites"
    gone = any(item.strip() and "</think>" not in item for item in (before, behind))
    return "leaves out a part of" if gone else ""


def _start(prompt: Prompt) -> Span:
    """An empty span at the start of the prompt, for diagnostics of the whole prompt."""
    start = prompt.span.start
    return Span(start, min(start + len("<prompt"), prompt.span.end))


def _listed(faults: Sequence[str]) -> str:
    shown = ", ".join(faults[:_SHOWN])
    return shown if len(faults) <= _SHOWN else f"{shown} and {len(faults) - _SHOWN} more"


def _stand_ins(spec: ModelSpec, schema: Schema) -> Iterator[Diagnostic]:
    tokenizer = spec.tokenizer
    first = next((param for module in schema.modules() for param in module.params()), None)
    if tokenizer.unk_token_id is None and first is not None and first.scaffold is None:
        token = tokenizer.convert_ids_to_tokens(spec.stand_in)
        message = (
            f"the tokenizer of {spec.name!r} has no <unk> token, so {token!r} is the placeholder of "
            f"parameter {first.name!r}"
        )
        hint = 'write scaffold="…", a typical text, to choose the placeholder'
        yield make("W607", message, first.span, schema.lines, hint)


def _tokens(
    spec: ModelSpec, ours: Sequence[int], theirs: Sequence[int], prompt: Prompt
) -> Iterator[Diagnostic]:
    """Reports tokens that differ from those of the whole text."""
    diffs = list(_differences(ours, theirs))
    if not diffs:
        return
    shown = "; ".join(
        f"{_spelled(spec, ours[a:b])} instead of {_spelled(spec, theirs[c:d])}"
        for a, b, c, d in diffs[:_SHOWN]
    )
    more = f" and at {len(diffs) - _SHOWN} more" if len(diffs) > _SHOWN else ""
    places = "place" if len(diffs) == 1 else "places"
    message = (
        "modules, arguments and earlier turns are tokenized separately, so tokens differ from those of "
        f"the whole text in {len(diffs)} {places}: {shown}{more}; this is usually harmless, "
        "and `pml fidelity` measures the effect"
    )
    yield make("W611", message, _start(prompt), prompt.lines)


def _spelled(spec: ModelSpec, ids: Sequence[int]) -> str:
    """Tokens as readable text, with a bar at each boundary."""
    return quote("|".join(spec.tokenizer.decode([token]) for token in ids))


def _differences(ours: Sequence[int], theirs: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yields ranges `a:b` of the first list and `c:d` of the second that differ but spell the same text."""
    i = j = 0
    while i < len(ours) or j < len(theirs):
        if i < len(ours) and j < len(theirs) and ours[i] == theirs[j]:
            i, j = i + 1, j + 1
            continue
        a, b = _again(ours[i:], theirs[j:])
        yield i, i + a, j, j + b
        i, j = i + a, j + b


def _again(ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, int]:
    """The number of tokens of each list before both agree again."""
    for total in range(1, 24):
        for a in range(total + 1):
            b = total - a
            if a <= len(ours) and b <= len(theirs) and ours[a : a + 3] == theirs[b : b + 3]:
                return a, b
    return len(ours), len(theirs)
