"""What a tokenizer and its chat template make of a document, in words: advice that only a model can give.

The measure is transformers' `apply_chat_template` over the same conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.pml import Bound, Diagnostic, Prompt, Role, Schema, make
from engine.pml.conversation import conversation
from engine.pml.diagnostics import Span, quote
from engine.prompt.layout import SchemaLayout
from engine.prompt.plan import PromptPlan
from engine.prompt.spec import ModelSpec
from engine.prompt.tokenizer import Fragment
from engine.prompt.tools import NO_TOOLS, Header, Tools
from engine.prompt.trimming import headers_of
from engine.prompt.turns import ChatError, System, aligned

_SHOWN = 3  # differences that a message names
_SYSTEM = {
    "refused": "the model's chat template refuses system text",
    "dropped": "the model's chat template leaves system text out",
    "moved": "the model's chat template writes system text into a later turn",
}


def of_schema(spec: ModelSpec, layout: SchemaLayout) -> Iterator[Diagnostic]:
    """Advice on a schema that was laid out."""
    yield from _stand_ins(spec, layout.schema)
    schema, roles, chat = layout.schema, layout.roles, spec.chat
    if not roles or _system_alone(spec, layout) is None:
        return
    first = next(child for child in schema.children if isinstance(child, Role))
    yield from _system(spec, schema, first, roles, whole=False)
    if chat.date is None and chat.writes_date(roles):
        message = (
            f"the model's chat template writes the date, today {layout.day:%Y-%m-%d}, so on another day "
            "every segment behind it is computed again"
        )
        hint = f"keep one date: --date {layout.day:%Y-%m-%d}, PML_DATE or Engine.open(date=…)"
        yield make("W608", message, first.span, schema.lines, hint)


def of_prompt(
    spec: ModelSpec,
    layout: SchemaLayout,
    plan: PromptPlan,
    bound: Bound,
    prompt: Prompt,
    tools: Tools = NO_TOOLS,
) -> Iterator[Diagnostic]:
    """Advice on a prompt that was planned: where its tokens are not the chat template's own."""
    roles = headers_of(bound.parts)
    chat, day = spec.chat, layout.day
    messages = conversation(bound.parts)
    contents = [message.text for message in messages]
    if not roles:
        texts = [Fragment(text) for text in contents]
        begin = [chat.bos] if chat.bos is not None else []
        whole = [token for ids in chat.tokens.encode(texts, begins=True) for token in ids]
        yield from _tokens(spec, plan.token_ids, [*begin, *whole], prompt)
        return
    if _system_alone(spec, layout) in ("kept", None):
        yield from _system(spec, prompt, prompt, roles, whole=True, tools=tools)
    turns = chat.turns(roles, day, tools)
    if not turns.invites:
        ends = f", right after {turns.closes[-1][-30:]!r}" if turns.closes[-1] else ""
        message = (
            f"the model's chat template writes nothing that invites the assistant; its answer begins{ends}"
        )
        yield make("W609", message, prompt.span, prompt.lines)
    if len(messages) != len(roles):  # text between turns, of which no template knows
        return
    text = chat.spelled(roles, contents, day, tools)
    strips = aligned(text, turns, contents)
    if strips is None:
        message = f"the model's chat template rewrites what the turns say: {_rewritten(spec, plan, text)}"
        hint = "the prompt is read as it is written here"
        yield make("W612", message, prompt.span, prompt.lines, hint)
        return
    fragments = [Fragment.rendered(turns.begin)]
    for place, (left, right) in enumerate(strips):
        content = contents[place]
        fragments.append(Fragment.rendered(turns.opens[place]))
        fragments.append(Fragment(turns.read(place, content[left : len(content) - right])))
        fragments.append(Fragment.rendered(turns.closes[place]))
    fragments.append(Fragment.rendered(turns.generation))
    whole = [token for ids in chat.tokens.encode(fragments, begins=True) for token in ids]
    yield from _tokens(spec, plan.token_ids, whole, prompt)


def _system_alone(spec: ModelSpec, layout: SchemaLayout) -> System | None:
    """What becomes of system text in the schema's own turns; None where they are no conversation alone."""
    if not layout.roles:
        return None
    try:
        return spec.chat.opening(layout.roles, layout.day).system
    except ChatError:  # they stand beside turns of modules
        return None


def _stand_ins(spec: ModelSpec, schema: Schema) -> Iterator[Diagnostic]:
    tokenizer = spec.tokenizer
    first = next((param for module in schema.modules() for param in module.params()), None)
    if tokenizer.unk_token_id is None and first is not None and first.scaffold is None:
        token = tokenizer.convert_ids_to_tokens(spec.stand_in)
        message = f"{spec.name!r} has no <unk>; {token!r} stands in for parameter {first.name!r}"
        hint = 'write scaffold="…", a text of the usual kind, to choose what stands there'
        yield make("W607", message, first.span, schema.lines, hint)


def _system(
    spec: ModelSpec,
    document: Schema | Prompt,
    place: Role | Prompt,
    roles: Sequence[str | Header],
    *,
    whole: bool,
    tools: Tools = NO_TOOLS,
) -> Iterator[Diagnostic]:
    turns = spec.chat.turns(roles, None, tools) if whole else spec.chat.opening(roles)
    if turns.system == "kept":
        return
    message = f"{_SYSTEM[turns.system]}; here it is the first paragraph of the first user turn"
    yield make(
        "W610",
        message,
        place.span,
        document.lines,
        severity="info" if turns.system == "refused" else "warning",
    )


def _tokens(
    spec: ModelSpec, ours: Sequence[int], theirs: Sequence[int], prompt: Prompt
) -> Iterator[Diagnostic]:
    """Says which tokens are others than those of the whole text."""
    found = list(_differences(ours, theirs))
    if not found:
        return
    shown = "; ".join(
        f"{_spelled(spec, ours[a:b])} for {_spelled(spec, theirs[c:d])}" for a, b, c, d in found[:_SHOWN]
    )
    more = f" and at {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    places = "place" if len(found) == 1 else "places"
    message = (
        "modules, arguments and earlier turns are cut into tokens by themselves, which in "
        f"{len(found)} {places} gives others than the text as a whole: {shown}{more}; nothing is to be "
        "mended, and `pml fidelity` measures what it changes"
    )
    start = prompt.span.start
    yield make("W611", message, Span(start, min(start + len("<prompt"), prompt.span.end)), prompt.lines)


def _spelled(spec: ModelSpec, ids: Sequence[int]) -> str:
    """Tokens as a person reads them, with a bar at every border."""
    return quote("|".join(spec.tokenizer.decode([token]) for token in ids))


def _differences(ours: Sequence[int], theirs: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Stretches `a:b` of the one list that stand for `c:d` of the other; both spell the same text."""
    i = j = 0
    while i < len(ours) or j < len(theirs):
        if i < len(ours) and j < len(theirs) and ours[i] == theirs[j]:
            i, j = i + 1, j + 1
            continue
        a, b = _again(ours[i:], theirs[j:])
        yield i, i + a, j, j + b
        i, j = i + a, j + b


def _again(ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, int]:
    """After how many tokens of each the two go on alike."""
    for total in range(1, 24):
        for a in range(total + 1):
            b = total - a
            if a <= len(ours) and b <= len(theirs) and ours[a : a + 3] == theirs[b : b + 3]:
                return a, b
    return len(ours), len(theirs)


def _rewritten(spec: ModelSpec, plan: PromptPlan, theirs: str) -> str:
    ours = spec.tokenizer.decode(plan.token_ids)
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    return f"it has {theirs[place : place + 40]!r} where the prompt has {ours[place : place + 40]!r}"
