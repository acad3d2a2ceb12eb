"""Schema + tokenizer → token ids and positions. Pure integers: no tensors, no files.

A *run* is the text of one module (or of the anonymous module) between two places where other modules may
stand. It is what a segment is computed from. A run's *context* is the earlier text that every prompt with
this run contains: for the scope `anchored`, the anonymous text before it and its ancestors' text before
it; for `isolated`, only earlier text of the same module.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Literal

from engine.pml import Module, Param, Role, Schema, Text, Union
from engine.prompt.chat_template import ChatFormat
from engine.prompt.tokenizer import Fragment, Together
from engine.prompt.turn_marks import TurnMarks, fixed_turns, turn_marks

Mark = Literal["open", "close", "text"]


@dataclass(frozen=True)
class TextRun:
    """Consecutive tokens of one module.

    Attributes:
        index: its place among the schema's runs, in document order.
        path: the path of the module, "" for the anonymous one.
        token_ids: with a parameter's slot filled by its stand-in tokens.
        cacheable: False for `cache="false"`, for what the end of the conversation decides, and for the token
            that begins a prompt where the schema says nothing.
        start: position of the first token under the schema's own positions.
        seam: how many tokens at its end are a seam, which some prompts do not read.
        turn: which of the schema's turns it stands in, -1 outside of turns.
    """

    index: int
    path: str
    token_ids: tuple[int, ...]
    cacheable: bool
    start: int = 0
    seam: int = 0
    turn: int = -1

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return len(self.token_ids)


@dataclass(frozen=True)
class Extent:
    """Where a node of the schema stands: tokens `lo..hi` of a run."""

    run: int
    lo: int
    hi: int


@dataclass(frozen=True)
class ModuleExtent:
    """Positions and size of one module under the schema's own positions (paper, section 3.3).

    Attributes:
        start: its first position; members of a union start at the same one.
        tokens: how many tokens its own text has, slots included.
        total_tokens: with nested modules, and the longest member of each union.
        params: length of each parameter, in tokens.
    """

    path: str
    start: int
    tokens: int
    total_tokens: int
    params: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SchemaLayout:
    """All tokens of a schema.

    Attributes:
        schema: the tree that the layout was made from; `where` is keyed by its very nodes.
        runs: in document order.
        modules: in document order.
        total_positions: how many positions the whole schema takes.
        roles: the roles of the turns that no module brings, in order.
        day: the date that the chat template may write.
        marks: what stands round the turns.
        where: place of every node, by its identity; what begins the text stands at the schema's own place.
        together: with what each text of it was tokenized, and its place among them, keyed like `where`.
    """

    schema: Schema
    runs: tuple[TextRun, ...]
    modules: tuple[ModuleExtent, ...]
    total_positions: int
    roles: tuple[str, ...]
    day: datetime.date
    marks: TurnMarks
    where: dict[tuple[int, Mark], Extent] = field(repr=False)
    together: dict[tuple[int, Mark], tuple[Together, int]] = field(default_factory=dict, repr=False)

    def extent(self, node: object, mark: Mark = "text") -> Extent | None:
        """Where a node stands; None for a node that is not of this schema."""
        return self.where.get((id(node), mark))

    @property
    def anonymous_tokens(self) -> int:
        """Tokens of the anonymous module."""
        return sum(run.tokens for run in self.runs if not run.path)

    def context(self, run: TextRun, scope: Literal["isolated", "anchored"]) -> tuple[TextRun, ...]:
        """Returns the earlier runs that `run` sees while it is encoded, in document order."""
        seen = ancestors(run.path) | {""} if scope == "anchored" else {run.path}
        return tuple(r for r in self.runs[: run.index] if r.path in seen and r.cacheable)

    def seen_of(self, earlier: TextRun, run: TextRun) -> int:
        """How many tokens of an earlier run every prompt with both has read before `run`.

        The seam at the end of anonymous text is not read where nothing follows in its turn.
        """
        return earlier.tokens - (earlier.seam if not earlier.path and earlier.turn != run.turn else 0)


def ancestors(path: str) -> set[str]:
    """The path itself and every path above it: a/b/c → {a, a/b, a/b/c}."""
    parts = path.split("/") if path else []
    return {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}


Encoded = dict[Together, list[list[int]]]
"""Tokens of texts that stand side by side, by these texts and where they stand."""


def lay_out(
    schema: Schema,
    chat: ChatFormat,
    stand_in: int,
    marks: TurnMarks | None = None,
    *,
    day: datetime.date | None = None,
    encoded: Encoded | None = None,
    apart: bool = False,
) -> SchemaLayout:
    """Tokenizes a schema and gives every node its place.

    What always stands together is tokenized as one: the text of a module up to a parameter or to where
    another module may stand, and the text around turns with the anonymous text beside it. A seam is tokenized
    by itself, so that what is beside it has the same tokens where it is not read.

    Args:
        schema: a tree without errors.
        chat: what stands around turns, and the tokenizer.
        stand_in: the token that fills a parameter's slot.
        marks: what stands round the turns; None for those of a prompt without the turns of any module.
        day: the date that the marks are of; None for the one in force.
        encoded: what other layouts of this schema have tokenized; takes what is new.
        apart: whether a module's text is tokenized as in the midst of a prompt, whatever stands before it in
            the schema: so it has the same tokens in any order of the modules.

    Raises:
        ChatError: without marks, the chat template refuses the schema's roles.
    """
    day = day or chat.today()
    marks = turn_marks(schema, chat, day) if marks is None else marks
    return _Builder(schema, chat, stand_in, marks, day, encoded, apart).build()


class _Builder:
    def __init__(
        self,
        schema: Schema,
        chat: ChatFormat,
        stand_in: int,
        marks: TurnMarks,
        day: datetime.date,
        encoded: Encoded | None,
        apart: bool,
    ) -> None:
        self.apart = apart
        self.schema, self.chat, self.stand_in, self.marks = schema, chat, stand_in, marks
        self.day, self.encoded = day, encoded
        self.number = {id(turn): place for place, (turn, _) in enumerate(schema.index.turns)}
        self.runs: list[TextRun] = []
        self.where: dict[tuple[int, Mark], Extent] = {}
        self.together: dict[tuple[int, Mark], tuple[Together, int]] = {}
        self.modules: dict[str, ModuleExtent] = {}
        self.texts: list[tuple[object, Mark, Fragment]] = []  # side by side, not yet tokenized
        self.pending: list[int] = []
        self.owner: tuple[str, bool] = ("", bool(schema.children))  # of nothing there is nothing to reuse
        self.last: int | None = None  # the token before what comes next
        self.seam = 0  # tokens of the seam that ends what is not yet a run
        self.turn = -1
        self.position = self.beginning = 0

    def build(self) -> SchemaLayout:
        if self.marks.begin is not None:
            self._say(self.schema, "open", self.chat.tokens.rendered(self.marks.begin))
        elif self.chat.bos is not None:
            self._add(self.schema, [self.chat.bos], "open")
            self.beginning = 1
        for child in self.schema.children:
            self._place(child)
        self._flush()
        order = [module.path for module in self.schema.modules()]
        return SchemaLayout(
            self.schema,
            tuple(self.runs),
            tuple(self.modules[path] for path in order),
            self.position,
            tuple(turn.role for turn in fixed_turns(self.schema)),
            self.day,
            self.marks,
            self.where,
            self.together,
        )

    def _place_turn(self, role: Role) -> None:
        turn = self.number[id(role)]
        self.turn = turn
        mark = self.marks.marks[turn]
        if mark is None:  # no prompt of this layout has it
            for child in role.children:
                self._place(child)
            self.turn = -1
            return
        self._say(role, "open", self.chat.tokens.rendered(mark.open))
        for place, child in enumerate(role.children):
            sides = (place == 0, place == len(role.children) - 1)
            apart = isinstance(child, Text) and _stripped(child.text, role.role, sides, mark.trims)
            if apart:
                self._settle()
            self._place(child)
            if apart:
                self._settle()
        unfinished = turn == self.marks.unfinished
        if unfinished:  # what ends the last turn depends on what the prompt adds
            self._enter("", cacheable=False)
        self._say(role, "close", self.chat.tokens.rendered(mark.close))
        if unfinished:
            self._enter("")
        self.turn = -1

    def _place(self, node: Text | Param | Module | Union | Role) -> None:
        """Places one node and all below it (the parser bounds how deeply documents nest)."""
        if isinstance(node, Text) and node.seam:
            self._settle()
            self._say(node, "text", Fragment(node.text))
            self._settle()
            self.seam = len(self.pending) - self.where[id(node), "text"].lo
        elif isinstance(node, Text):
            self._say(node, "text", Fragment(node.text))
        elif isinstance(node, Param):
            self._settle()
            self._add(node, slot_ids(node, self.chat, self.stand_in), "text")
        elif isinstance(node, Union):
            self._place_union(node)
        elif isinstance(node, Role):
            self._place_turn(node)
        else:
            self._place_module(node)

    def _place_union(self, union: Union) -> None:
        self._settle()
        start = longest = self.position
        before = self.last
        for member in union.members:
            self.position, self.last = start, before
            self._place(member)
            longest = max(longest, self.position)
        self.position = longest

    def _place_module(self, module: Module) -> None:
        outer = self.owner
        self._enter(module.path, cacheable=module.cache and outer[1])
        start, first_run = self.position, len(self.runs)
        for child in module.children:
            self._place(child)
        self._flush()
        own = sum(run.tokens for run in self.runs[first_run:] if run.path == module.path)
        params = {param.name: param.length for param in module.params()}
        self.modules[module.path] = ModuleExtent(module.path, start, own, self.position - start, params)
        self._enter(*outer)

    def _enter(self, path: str, cacheable: bool = True) -> None:
        self._flush()
        self.owner = (path, cacheable)

    def _say(self, node: object, mark: Mark, fragment: Fragment) -> None:
        self.texts.append((node, mark, fragment))

    def _settle(self) -> None:
        """Tokenizes the texts that stand side by side; what comes next is tokenized apart from them."""
        texts, self.texts = self.texts, []
        if not texts:
            return
        begins, behind = self.position == self.beginning, self.last
        if self.apart and self.owner[0]:
            begins, behind = False, None
        together = Together(tuple(fragment for _, _, fragment in texts), begins, behind)
        found = self._encode(together)
        for place, ((node, mark, _), ids) in enumerate(zip(texts, found, strict=True)):
            self.together[id(node), mark] = together, place
            self._add(node, ids, mark)

    def _encode(self, texts: Together) -> list[list[int]]:
        encode = self.chat.tokens.encode
        if self.encoded is None:
            return encode(texts.fragments, begins=texts.begins, behind=texts.behind)
        if texts not in self.encoded:
            self.encoded[texts] = encode(texts.fragments, begins=texts.begins, behind=texts.behind)
        return self.encoded[texts]

    def _add(self, node: object, ids: list[int], mark: Mark) -> None:
        lo = len(self.pending)
        self.pending.extend(ids)
        self.seam = 0
        self.where[id(node), mark] = Extent(len(self.runs), lo, len(self.pending))
        self.position += len(ids)
        self.last = ids[-1] if ids else self.last

    def _flush(self) -> None:
        self._settle()
        if self.pending:
            path, cacheable = self.owner
            start = self.position - len(self.pending)
            ids = tuple(self.pending)
            self.runs.append(TextRun(len(self.runs), path, ids, cacheable, start, self.seam, self.turn))
            self.pending, self.seam = [], 0


def slot_ids(param: Param, chat: ChatFormat, stand_in: int) -> list[int]:
    """The `length` tokens that stand for an argument while its module is encoded."""
    ids = chat.tokens.plain(param.scaffold)[: param.length] if param.scaffold else []
    return ids + [stand_in] * (param.length - len(ids))


def _stripped(text: str, role: str, sides: tuple[bool, bool], trims: tuple[bool, bool]) -> bool:
    """Whether the chat template may strip a part of this text, at the sides where it ends a turn."""
    starts, ends = (at_side and trim for at_side, trim in zip(sides, trims, strict=True))
    thought = role == "assistant" and "</think>" in text
    return thought or (starts and text[:1].isspace()) or (ends and text[-1:].isspace())
