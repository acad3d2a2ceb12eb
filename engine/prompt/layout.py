"""Tokenizes a schema and assigns positions. No tensors, no files.

A *run* is the text of one module (or of the anonymous module) between two places where other modules may
stand. Each segment is computed from a run. A run's *context* is the earlier text that every prompt with this
run contains. For the scope `anchored`, that is the anonymous text and its ancestors' text before it. For
`isolated`, it is only earlier text of the same module.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Literal

from engine.pml import Module, Param, Role, Schema, Text, Union
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tokenizer import Fragment, Together
from engine.prompt.template.turn_marks import TurnMarks, fixed_turns, turn_marks

Mark = Literal["open", "close", "text"]


@dataclass(frozen=True)
class TextRun:
    """Consecutive tokens of one module.

    Attributes:
        index: its index among the schema's runs, in document order.
        path: the path of the module, "" for the anonymous one.
        token_ids: the tokens; stand-in tokens fill the slots of parameters.
        cacheable: False for `cache="false"`, for text that depends on the end of the conversation, and for
            the token that begins a prompt if the schema has no text.
        start: position of the first token under the schema's own positions.
        seam: number of separator tokens at its end, which some prompts skip.
        turn: index of its turn in the schema, -1 outside turns.
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
        """The number of tokens."""
        return len(self.token_ids)


@dataclass(frozen=True)
class Extent:
    """Tokens `lo..hi` of a run, the place of a schema node."""

    run: int
    lo: int
    hi: int


@dataclass(frozen=True)
class ModuleExtent:
    """Positions and size of one module under the schema's own positions (paper, section 3.3).

    Attributes:
        start: its first position; members of a union share it.
        tokens: number of tokens of its own text, including slots.
        total_tokens: also counts nested modules, and the longest member of each union.
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
        schema: the tree of this layout; keys of `where` are the identities of its nodes.
        runs: in document order.
        modules: in document order.
        total_positions: number of positions of the whole schema.
        roles: the roles of turns outside modules, in order.
        day: the date that the chat template may write.
        marks: the text around the turns.
        where: the extent of each node, by its identity; the schema's own entry is the token that begins the
            text.
        together: for each text, the texts tokenized with it and its index among them; keys as in `where`.
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
        """Returns the extent of a node, or None for a node of another schema."""
        return self.where.get((id(node), mark))

    @property
    def anonymous_tokens(self) -> int:
        """The number of tokens outside modules."""
        return sum(run.tokens for run in self.runs if not run.path)

    def context(self, run: TextRun, scope: Literal["isolated", "anchored"]) -> tuple[TextRun, ...]:
        """Returns the earlier runs that `run` attends to while it is encoded, in document order."""
        seen = ancestors(run.path) | {""} if scope == "anchored" else {run.path}
        return tuple(r for r in self.runs[: run.index] if r.path in seen and r.cacheable)

    def seen_of(self, earlier: TextRun, run: TextRun) -> int:
        """Returns how many tokens of `earlier` every prompt with both runs reads before `run`.

        Prompts skip the separator at the end of anonymous text if nothing follows in its turn.
        """
        return earlier.tokens - (earlier.seam if not earlier.path and earlier.turn != run.turn else 0)


def ancestors(path: str) -> set[str]:
    """Returns the path itself and every path above it: a/b/c → {a, a/b, a/b/c}."""
    parts = path.split("/") if path else []
    return {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}


Encoded = dict[Together, list[list[int]]]  # token lists of adjacent texts


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

    Adjacent texts that always occur together are tokenized together: the text of a module up to a parameter
    or a possible module, and the text around turns with the anonymous text next to it. A separator is
    tokenized on its own, so that its neighbours have the same tokens if a prompt skips it.

    Args:
        schema: a tree without errors.
        chat: the chat template and the tokenizer.
        stand_in: the token that fills a parameter's slot.
        marks: the text around the turns; None for a prompt that imports no module with turns.
        day: the date of the marks; None for the current one.
        encoded: token cache shared by layouts of this schema; new texts are added.
        apart: tokenizes each module as if other text precedes it, so its tokens never depend on the order of
            modules.

    Raises:
        ChatError: without marks, if the chat template refuses the schema's roles.
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
        self.texts: list[tuple[object, Mark, Fragment]] = []  # adjacent texts, not yet tokenized
        self.pending: list[int] = []
        self.owner: tuple[str, bool] = ("", bool(schema.children))  # an empty schema has nothing to reuse
        self.last: int | None = None  # the previous token
        self.seam = 0  # separator tokens at the end of the current run
        self.turn = -1
        self.position = self.beginning = 0

    def build(self) -> SchemaLayout:
        if self.marks.begin is not None:
            self._say(self.schema, "open", self.chat.tokens.rendered(self.marks.begin))
        elif (bos := self.chat.begins(self.schema)) is not None:
            self._add(self.schema, [bos], "open")
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
        if mark is None:  # no prompt of this layout has the turn
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
        if unfinished:  # the end of the last turn depends on the prompt's additions
            self._enter("", cacheable=False)
        self._say(role, "close", self.chat.tokens.rendered(mark.close))
        if unfinished:
            self._enter("")
        self.turn = -1

    def _place(self, node: Text | Param | Module | Union | Role) -> None:
        """Places a node and all below it (the parser limits the depth of documents)."""
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
        size = sum(run.tokens for run in self.runs[first_run:] if run.path == module.path)
        params = {param.name: param.length for param in module.params()}
        self.modules[module.path] = ModuleExtent(module.path, start, size, self.position - start, params)
        self._enter(*outer)

    def _enter(self, path: str, cacheable: bool = True) -> None:
        self._flush()
        self.owner = (path, cacheable)

    def _say(self, node: object, mark: Mark, fragment: Fragment) -> None:
        self.texts.append((node, mark, fragment))

    def _settle(self) -> None:
        """Tokenizes the pending adjacent texts, independently of later text."""
        texts, self.texts = self.texts, []
        if not texts:
            return
        begins, behind = self.position == self.beginning, self.last
        if self.apart and self.owner[0]:
            begins, behind = False, None
        together = Together(tuple(fragment for _, _, fragment in texts), begins, behind)
        encoded_texts = self._encode(together)
        for place, ((node, mark, _), ids) in enumerate(zip(texts, encoded_texts, strict=True)):
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
    """Returns the `length` tokens that stand for an argument while its module is encoded."""
    ids = chat.tokens.plain(param.scaffold)[: param.length] if param.scaffold else []
    return ids + [stand_in] * (param.length - len(ids))


def _stripped(text: str, role: str, sides: tuple[bool, bool], trims: tuple[bool, bool]) -> bool:
    """Whether the chat template may strip part of this text at the ends of a turn."""
    starts, ends = (at_side and trim for at_side, trim in zip(sides, trims, strict=True))
    thought = role == "assistant" and "</think>" in text
    return thought or (starts and text[:1].isspace()) or (ends and text[-1:].isspace())
