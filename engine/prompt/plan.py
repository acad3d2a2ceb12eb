"""Plans a bound prompt: which tokens come from segments, which are computed, and all positions.

In compact placement, omitted modules take no positions, so a prompt has positions 0..n-1 without a gap. In
schema placement, schema text stands at the schema's own positions (paper, section 3.3), with gaps for omitted
modules. The cached and the uncached side always read the same tokens at the same positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.base.choices import PlacementPolicy
from engine.pml import (
    ArgumentText,
    Bound,
    Diagnostic,
    Edit,
    Fix,
    NewText,
    Param,
    Part,
    Prompt,
    PromptError,
    Role,
    RoleClose,
    RoleOpen,
    SchemaText,
    Span,
    make,
)
from engine.pml.tree.parts import part_text
from engine.prompt.conversation.messages import Blocks
from engine.prompt.layout import Extent, Mark, SchemaLayout, TextRun, ancestors
from engine.prompt.pieces import Kind, Piece, PromptPlan, Stretch
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.rendered import Rendering
from engine.prompt.template.tokenizer import Fragment, Together
from engine.prompt.template.trimming import Cut, remnant, shares

REWRITTEN = "the chat template rewrites this text, or text of the schema before it"


@dataclass(frozen=True)
class _Unsettled:
    """New text that is not tokenized yet; `piece` lacks tokens and position, `stretch` is an index."""

    piece: Piece
    begins: bool
    stretch: int
    fragment: Fragment


def make_plan(
    layout: SchemaLayout,
    bound: Bound,
    chat: ChatFormat,
    prompt: Prompt,
    placement: PlacementPolicy = "compact",
    *,
    rendering: Rendering | None = None,
    turns_held: bool = True,
    blocks: Blocks | None = None,
) -> PromptPlan:
    """Assigns tokens and positions to a bound prompt.

    Args:
        layout: the layout of the prompt's schema.
        bound: a binding without errors.
        chat: the chat template and the tokenizer.
        prompt: the source of `bound`, for the places of diagnostics.
        placement: the placement policy.
        rendering: the rendered chat template; None for a prompt without turns.
        turns_held: whether earlier turns of the conversation become segments; otherwise they are new text.
        blocks: for a conversation, the places of its blocks.

    Raises:
        PromptError: an argument is longer than its parameter, the prompt has no tokens, or schema placement
            cannot fit its text or the order of its imports.
    """
    return _Planner(layout, chat, prompt, placement, rendering, turns_held, blocks).plan(bound)


class _Planner:
    def __init__(
        self,
        layout: SchemaLayout,
        chat: ChatFormat,
        prompt: Prompt,
        placement: PlacementPolicy,
        rendering: Rendering | None,
        turns_held: bool,
        blocks: Blocks | None,
    ) -> None:
        self.layout, self.chat, self.turns_held = layout, chat, turns_held
        self.prompt, self.placement = prompt, placement
        self.rendering, self.blocks = rendering, blocks
        self.ends: dict[int | None, int] = {}  # the position after each part's last token
        self.pieces: list[Piece] = []
        self.stretches: list[Stretch] = []
        self.part: int | None = None  # the index of the current part
        self.texts: list[_Unsettled] = []  # adjacent texts, not yet tokenized
        self.faults: list[Diagnostic] = []
        self.too_long: set[tuple[str, str]] = set()  # modules with parameters whose arguments do not fit
        self.position = 0
        self.reached = 0  # the position after the last schema text
        self.crowded = False
        self.rewritten: set[str] = set()  # modules whose segments differ from the prompt's text
        self.schema_turns = 0  # turns of the schema
        self.numbers = {id(turn): place for place, (turn, _) in enumerate(layout.schema.index.turns)}
        self.opened = -1  # the last opened turn
        self.new_turn = False  # whether the next text begins a turn
        self.turn = False  # whether new text belongs to an earlier turn of the conversation

    def plan(self, bound: Bound) -> PromptPlan:
        parts = bound.parts
        self.schema_turns = sum(isinstance(part, RoleOpen) and not part.new for part in parts)
        self._lead_in()
        earlier = _earlier_turns(parts) if self.turns_held else range(0)
        opened: int | None = None
        for place, part in enumerate(parts):
            self.turn, self.part = place in earlier, place
            if isinstance(part, RoleOpen):
                self._open(part)
                opened = place
            elif isinstance(part, RoleClose):
                assert opened is not None
                self.part = opened
                self._content(parts, range(opened + 1, place), opened, earlier)
                self.turn, self.part, opened = place in earlier, place, None
                self._close(part)
            elif opened is None:
                self._whole(part)
        self.turn, self.part = False, None
        if self.rendering is not None:
            self._write("text", self.chat.tokens.rendered(self.rendering.generation))
        self._settle()
        self._recompute_last()
        if self.faults:
            raise PromptError(tuple(self.faults))
        imports = frozenset(bound.imports)
        return PromptPlan(
            tuple(self.pieces), imports, self.placement, tuple(self.stretches), tuple(self._borders())
        )

    def _content(self, parts: Sequence[Part], places: Sequence[int], opened: int, earlier: range) -> None:
        """The parts of a turn's content as the chat template writes them."""
        assert self.rendering is not None
        settled = self.blocks.settled if self.blocks is not None else frozenset()
        written = self.rendering.contents[self.opened]
        for entry in shares([part_text(parts[place]) for place in places], written):
            place = opened if isinstance(entry, str) else places[entry.part]
            if self.part != place and self.part in settled:
                self._settle()
            self.turn, self.part = place in earlier, place
            if isinstance(entry, str):
                self._write("text", self.chat.tokens.rendered(entry))
            elif entry.whole:
                self._whole(parts[place])
            elif entry.cut is not None:
                self._trimmed(parts[place], entry.cut)
            else:
                self._rewritten(parts[place], entry.text)

    def _whole(self, part: Part) -> None:
        """Text that the chat template leaves unchanged."""
        if isinstance(part, ArgumentText):
            self._argument(part)
        elif isinstance(part, SchemaText) and not self._stale(part.module):
            self._schema_text(part)
        else:
            self._rewritten(part, part_text(part))

    def _rewritten(self, part: Part, text: str) -> None:
        """Text that must be computed because the chat template changes it or earlier text of the module."""
        if isinstance(part, SchemaText) and part_text(part).strip():
            self.rewritten.add(part.module)
        kind, path = _origin(part)
        self._write(kind, Fragment(text), path)

    def _stale(self, path: str) -> bool:
        """Whether a module's segments attend to text that the chat template changes in this prompt."""
        return not self.rewritten.isdisjoint(ancestors(path) | {""})

    def _borders(self) -> Iterator[int]:
        """The position after each block of a conversation."""
        reached = 0
        for part in self.blocks.ends if self.blocks is not None else ():
            if part is not None:
                reached = self.ends.get(part, reached)
            yield reached

    def _open(self, part: RoleOpen) -> None:
        assert self.rendering is not None
        self.opened += 1
        self.new_turn = part.new  # later prompts reuse each added turn
        self._mark(part, "open", self.rendering.opens[self.opened])

    def _close(self, part: RoleClose) -> None:
        assert self.rendering is not None
        last = self.opened == self.schema_turns - 1
        self._mark(part, "close", self.rendering.closes[self.opened], last=last)

    def _lead_in(self) -> None:
        """Adds the token that begins a text. It belongs to the schema's first run but to no text node."""
        schema = self.layout.schema
        extent = self.layout.extent(schema, "open")
        if extent is None or extent.hi <= extent.lo:
            return
        if self.blocks is None:
            self._laid_out(schema, "open", extent)
            return
        if self.rendering is not None:
            self._write("text", self.chat.tokens.rendered(self.rendering.begin))
            return
        ids = self.layout.runs[extent.run].token_ids[extent.lo : extent.hi]
        self.stretches.append(Stretch(None, None, 0, len(ids)))
        self._new("text", "", list(ids))

    def _mark(
        self, part: RoleOpen | RoleClose, mark: Literal["open", "close"], text: str, *, last: bool = False
    ) -> None:
        """The text before or after a turn; the end of the schema's last turn depends on the prompt."""
        extent = None if part.new else self.layout.extent(part.node, mark)
        if (
            extent is not None
            and not self._stale("")
            and (not last or self._ends_as_laid_out(part.node, extent, text))
        ):
            self._laid_out(part.node, mark, extent)
            return
        if extent is not None and extent.hi > extent.lo and self.placement == "schema":
            self._settle()
            self.position = max(self.position, self.layout.runs[extent.run].start + extent.lo)
        self._write("text" if part.new else "anonymous", self.chat.tokens.rendered(text))

    def _ends_as_laid_out(self, turn: Role, extent: Extent, text: str) -> bool:
        """Whether the schema's last turn ends like other turns, directly after its own text."""
        laid_out = self.layout.marks.marks[self.numbers[id(turn)]]
        cacheable = self.layout.runs[extent.run].cacheable if extent.hi > extent.lo else True
        return cacheable and not self.texts and laid_out is not None and laid_out.close == text

    def _write(self, kind: Kind, fragment: Fragment, path: str = "") -> None:
        """Adds new text, which is tokenized together with adjacent new text."""
        if fragment.text:
            turn = self.turn and kind == "text"
            why = REWRITTEN if kind in ("module", "anonymous") and self._stale(path) else ""
            made = Piece(kind, path, 0, (), turn=turn, why=why)
            self.texts.append(_Unsettled(made, self.new_turn, len(self.stretches), fragment))
            self.new_turn = False
            self.stretches.append(Stretch(self.part, None, 0, 0))

    def _settle(self) -> None:
        """Tokenizes the pending adjacent texts."""
        texts, self.texts = self.texts, []
        if not texts:
            return
        behind = self.pieces[-1].token_ids[-1] if self.pieces else None
        together = Together(tuple(pending.fragment for pending in texts), not self.pieces, behind)
        token_lists = self.chat.tokens.encode(together.fragments, begins=together.begins, behind=behind)
        for place, (pending, ids) in enumerate(zip(texts, token_lists, strict=True)):
            part = self.stretches[pending.stretch].part
            self.stretches[pending.stretch] = Stretch(part, together, place, len(ids))
            self._add(replace(pending.piece, token_ids=tuple(ids)), begins=pending.begins)
            self.ends[part] = self.position

    def _schema_text(self, part: SchemaText) -> None:
        extent = self.layout.extent(part.node)
        if extent is not None:
            self._laid_out(part.node, "text", extent)

    def _laid_out(self, node: object, mark: Mark, extent: Extent) -> None:
        """Adds schema text from the layout."""
        if extent.hi > extent.lo:
            self._cached_slice(self.layout.runs[extent.run], extent.lo, extent.hi)
        together, place = self.layout.together.get((id(node), mark), (None, 0))
        self.stretches.append(Stretch(self.part, together, place, extent.hi - extent.lo))

    def _alone(self, text: str, tokens: int) -> None:
        """Records a text that was tokenized on its own."""
        self.stretches.append(Stretch(self.part, Together((Fragment(text),)), 0, tokens))

    def _argument(self, part: ArgumentText) -> None:
        self._settle()
        ids = self.chat.tokens.plain(part.text)
        name, length = part.param.name, part.param.length
        if len(ids) > length and (part.module, name) not in self.too_long:
            self.too_long.add((part.module, name))
            text = f"argument {name!r} of module {part.module!r}" if part.given else f"default of {name!r}"
            self._fault(
                "E501",
                f"{text} is {len(ids)} tokens long; the schema reserves {length}; shorten it, or raise the "
                f"parameter's len to {len(ids)}",
                part.span,
                "",
                _longer(part.param, len(ids)),
            )
        slot = self.layout.extent(part.param)
        if slot is not None:
            self._reach(self.layout.runs[slot.run].start + slot.lo)
        self._alone(part.text, len(ids))
        self._new("argument", f"{part.module}:{name}", ids)
        self.reached = max(self.reached, self.position)

    def _trimmed(self, part: Part, cut: Cut) -> None:
        """Adds a text that loses characters; the segment still serves tokens shared with the whole text."""
        text = part_text(part)
        remaining = text[cut[0] : len(text) - cut[1]]
        if isinstance(part, ArgumentText):
            self._argument(replace(part, text=remaining))
        elif not isinstance(part, SchemaText) or self._stale(part.module):
            self._rewritten(part, remaining)
        elif (extent := self.layout.extent(part.node)) is not None:
            self._settle()
            run = self.layout.runs[extent.run]
            self._reach(run.start + extent.lo)
            tokenize = self.chat.tokens.plain
            left = remnant(text, cut, run.token_ids[extent.lo : extent.hi], tokenize)
            kind: Kind = "module" if run.path else "anonymous"
            self._alone(remaining, len(left.before) + left.kept + len(left.after))
            if not left.kept or (self.placement == "schema" and left.moved):
                self._new(kind, run.path, tokenize(remaining))
            else:
                self._new(kind, run.path, left.before)
                lo = extent.lo + left.lo
                self._cached_slice(run, lo, lo + left.kept)
                self._new(kind, run.path, left.after)
            if remaining:
                self.ends[self.part] = self.position

    def _reach(self, position: int) -> None:
        """In schema placement, advances to a position of the schema unless it is passed."""
        if self.placement == "compact":
            return
        if position < self.position and not self.crowded:
            self.crowded = True
            if position < self.reached:
                self._fault(
                    "E506",
                    "the imports have another order than the schema, which schema placement requires",
                    None,
                    "import in the order of the schema, or use compact placement",
                )
            else:
                text, room = self.position - self.reached, position - self.reached
                self._fault(
                    "E507",
                    f"the prompt has a text of {text} tokens between two modules, but the schema has "
                    f"room for {room}",
                    None,
                    "write it at the end of the prompt, or use compact placement",
                )
        self.position = max(self.position, position)

    def _cached_slice(self, run: TextRun, lo: int, hi: int) -> None:
        self._settle()
        self._reach(run.start + lo)
        last = self.pieces[-1] if self.pieces else None
        ids = run.token_ids[lo:hi]
        together = last is not None and last.run is run and last.lo + last.tokens == lo
        if last is not None and together and last.start + last.tokens == self.position:
            self.pieces[-1] = Piece(last.kind, last.path, last.start, last.token_ids + ids, run, last.lo)
        else:
            kind: Kind = "module" if run.path else "anonymous"
            self.pieces.append(Piece(kind, run.path, self.position, ids, run, lo))
        self.position += len(ids)
        self.reached = self.ends[self.part] = self.position

    def _new(self, kind: Kind, path: str, ids: list[int]) -> None:
        self._add(Piece(kind, path, 0, tuple(ids)))

    def _add(self, made: Piece, *, begins: bool = False) -> None:
        """Appends computed tokens, and merges them with the last piece if both have one origin."""
        if not made.tokens:
            return
        made = replace(made, start=self.position)
        self.position += made.tokens
        last = self.pieces[-1] if self.pieces else None
        touch = last is not None and not begins and last.start + last.tokens == made.start
        if last is not None and touch and replace(made, start=last.start, token_ids=last.token_ids) == last:
            self.pieces[-1] = replace(last, token_ids=last.token_ids + made.token_ids)
        else:
            self.pieces.append(made)

    def _recompute_last(self) -> None:
        """Makes the last token computed, because the first token of the answer depends on its logits."""
        if not self.pieces:
            self._fault("E503", "the prompt has no tokens", None, "import a module or write some text")
            return
        last = self.pieces[-1]
        if last.cached:
            self.pieces.pop()
            if last.tokens > 1:
                self.pieces.append(
                    Piece(last.kind, last.path, last.start, last.token_ids[:-1], last.run, last.lo)
                )
            start = last.start + last.tokens - 1
            self.pieces.append(Piece(last.kind, last.path, start, last.token_ids[-1:]))

    def _fault(
        self, code: str, message: str, span: Span | None, hint: str, choices: tuple[Fix, ...] = ()
    ) -> None:
        place = span or self.prompt.span
        self.faults.append(make(code, message, place, self.prompt.lines, hint, choices=choices))


def _longer(param: Param, tokens: int) -> tuple[Fix, ...]:
    """Returns the fix that raises the length of a parameter in the schema."""
    place = param.length_span
    title = f'Write len="{tokens}" for {param.name} in the schema'
    return (Fix(title, (Edit(place, str(tokens)),), of_schema=True),) if place else ()


def _origin(part: Part) -> tuple[Kind, str]:
    if isinstance(part, SchemaText):
        return ("module" if part.module else "anonymous"), part.module
    return (
        ("argument", f"{part.module}:{part.param.name}") if isinstance(part, ArgumentText) else ("text", "")
    )


def _earlier_turns(parts: tuple[Part, ...]) -> range:
    """The places of the turns that the prompt adds, without its last turn."""
    last = max((at for at, part in enumerate(parts) if isinstance(part, RoleOpen) and part.new), default=0)
    place = len(parts)
    while place and (isinstance(parts[place - 1], NewText) or getattr(parts[place - 1], "new", False)):
        place -= 1
    if place and isinstance(parts[place - 1], RoleClose):  # text that joins the schema's last turn
        place -= 1
        while place and isinstance(parts[place - 1], NewText):
            place -= 1
    return range(place, last)
