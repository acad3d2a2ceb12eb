"""Answers questions about a prompt: one prefill, then all questions and labels as trees of rows after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.base.errors import SettingsError
from engine.base.events import Event, Side, Working
from engine.base.segment import Placement
from engine.base.stopwatch import Stopwatch
from engine.cache.segment_cache import SegmentCache
from engine.decisions.asked import (
    Asked,
    QuestionTooLongError,
    ask,
    ask_content_free,
    asked,
    label_tokens,
    overlap,
    paths,
    require_text,
)
from engine.decisions.calibrations import Calibrations, key_of
from engine.decisions.questions import Question, orders, require_questions, wording
from engine.decisions.readout import Decisions, Readout, decision
from engine.decisions.row_tree import Path, RowTree, packed
from engine.inference.distributions import require_numbers
from engine.inference.generate import Answering
from engine.inference.prefill import Prefill
from engine.inference.run_settings import RunSettings
from engine.inference.submission import Submission
from engine.kv_cache.protocol import KVCache
from engine.maps.reuse import MapReuse
from engine.model.model import Model
from engine.prompt.pieces import PromptPlan
from engine.prompt.tokenized import Planned, TokenizedPrompt
from engine.prompt.window import TooLongError

MOST_ROWS = 512  # of a pass: more rows attend to many rows of other questions in vain
MOST_LOGITS = 1 << 26  # numbers
_ANY_QUESTION = "N/A"  # plans the prompt, so that no question changes the answers to the others
TOGETHER = 256  # rows of the prompt that share a pass with the first questions


Paths = Mapping[int, Path] | Sequence[Path]
"""Paths by their index."""


@dataclass(frozen=True)
class _Asking:
    """A question in one order of its options: the tokens of the prompt, and of the labels in that order."""

    asked: Asked
    token_ids: Sequence[int]
    positions: Sequence[int]
    labels: Sequence[Sequence[int]]
    ends: bool

    def rows_from(self, shared: int) -> list[tuple[int, int]]:
        """Returns (token, position) of each row after the shared ones."""
        return list(zip(self.token_ids[shared:], self.positions[shared:], strict=True))


@dataclass(frozen=True)
class _Group:
    """Paths that follow common rows, which have a pass of their own: (token, position) of each."""

    rows: Sequence[tuple[int, int]]
    paths: dict[int, Path]


def ask_all(prompt: TokenizedPrompt, questions: Sequence[Question], readout: Readout) -> list[Asked]:
    """Returns each question in each order of its options, as prompts."""
    return [
        asked(prompt, number, question, order, list_options=readout.list_options)
        for number, question in enumerate(questions)
        for order in _orders(question, readout)
    ]


def _orders(question: Question, readout: Readout) -> list[tuple[int, ...]]:
    return orders(len(question.options), readout.permutations if readout.list_options else 1)


def deciding(
    cache: SegmentCache,
    calibrations: Calibrations,
    prompt: TokenizedPrompt,
    questions: Sequence[Question],
    readout: Readout,
    settings: RunSettings,
    submit: Callable[[TokenizedPrompt], Submission],
    clock: Stopwatch,
    maps: MapReuse | None = None,
    keep_modules: bool = True,
) -> Generator[Event, None, Decisions]:
    """Answers questions about a prompt.

    Args:
        cache: segments and the model.
        calibrations: scores of prompts without content, from earlier calls.
        prompt: the prompt.
        questions: the questions.
        readout: how probabilities are read.
        settings: the placement, and whether earlier turns become segments.
        submit: plans one side of the prompt with a text for any question; its segments serve all questions.
        clock: the stopwatch.
        maps: stored attention maps; each question with a label is then a text of its own. None for none.
        keep_modules: whether a prompt without content keeps its modules.

    Yields:
        Working, before each pass.

    Raises:
        ModelError: the model computes logits that are not numbers.
        PromptError: the prompt has no text, or does not fit the context window.
        QuestionTooLongError: the prompt fits, and does not with a question.
        SettingsError: the questions cannot be asked, or there are maps for a prompt with modules.
    """
    require_questions(questions)
    require_text(prompt)
    all_asked = ask_all(prompt, questions, readout)
    first = submit(ask(prompt, _ANY_QUESTION))
    planned = [_planned(one, settings) for one in all_asked]
    if first.side != "cached":
        maps = None
    if maps is not None and any(first.planned.slices):
        raise SettingsError(
            "Attention maps serve prompts of plain text, and this one reads segments of modules. Write its "
            "text into the prompt, or use no maps."
        )
    before = None if maps is None else replace(maps.used)
    clock.lap("plan")
    model = cache.model
    work = Answering(cache, first)
    try:
        new = yield from work.prepare()
        clock.parts |= {part: ms for part, ms in work.clock.parts.items() if part != "plan"}
        clock.restart()
        asking = [_asking(one, plan, questions) for one, plan in zip(all_asked, planned, strict=True)]
        reader = _Reader(model, first.side, asking, first.planned.plan, maps)
        scores = yield from reader.read(new, readout)
        clock.lap("questions")
        if readout.calibrate:
            free = _content_free(prompt, all_asked, questions, readout, settings, keep_modules=keep_modules)
            plain = ask_content_free(prompt, _ANY_QUESTION, keep_modules=keep_modules)
            key = _key(first.side, free, readout, settings)
            alone = calibrations.find(key)
            if alone is None:
                alone = yield from _alone(cache, submit(plain), free, readout)
                calibrations.keep(key, alone)
            scores = [
                [one - other for one, other in zip(ours, theirs, strict=True)]
                for ours, theirs in zip(scores, alone, strict=True)
            ]
            clock.lap("calibration")
        saved = work.save()
        counts = {
            "prompt": reader.shared + reader.rows,
            "from_cache": sum(placement.tokens - len(placement.hidden) for placement in reader.placements),
            "encoded": new.encoded,
            "prompt_computed": len(reader.prompt_rows),
            "question_rows": reader.rows,
            "written": saved.written,
        }
        if maps is not None and before is not None:
            counts |= {"map_texts": maps.used.texts - before.texts, "map_hits": maps.used.hits - before.hits}
        warnings = (*work.notes, *saved.warnings)
    finally:
        work.close()
    by_order = [_in_question_order(one.order, row) for one, row in zip(all_asked, scores, strict=True)]
    answers = tuple(
        decision(
            question,
            [row for one, row in zip(all_asked, by_order, strict=True) if one.number == number],
            readout.temperature,
        )
        for number, question in enumerate(questions)
    )
    return Decisions(first.side, answers, clock.total, dict(clock.parts), counts, saved.segments, warnings)


def _planned(one: Asked, settings: RunSettings) -> Planned:
    try:
        return one.prompt.planned(None, settings.placement, turns_held=settings.turns_held)
    except TooLongError as error:
        raise QuestionTooLongError(one.number, error.tokens, error.most) from None


def _asking(one: Asked, planned: Planned, questions: Sequence[Question]) -> _Asking:
    labels = label_tokens(one.prompt, questions[one.number])
    plan = planned.plan
    in_order = [labels[place] for place in one.order]
    return _Asking(one, plan.token_ids, plan.positions, in_order, overlap(labels))


def _in_question_order(order: Sequence[int], scores: Sequence[float]) -> list[float]:
    placed = dict(zip(order, scores, strict=True))
    return [placed[place] for place in range(len(order))]


def _content_free(
    prompt: TokenizedPrompt,
    all_asked: Sequence[Asked],
    questions: Sequence[Question],
    readout: Readout,
    settings: RunSettings,
    *,
    keep_modules: bool,
) -> list[_Asking]:
    """The same questions, if the prompt has no content of its own."""
    asking = []
    for one in all_asked:
        text = wording(questions[one.number], one.order, list_options=readout.list_options)
        alone = replace(one, prompt=ask_content_free(prompt, text, keep_modules=keep_modules))
        asking.append(_asking(alone, _planned(alone, settings), questions))
    return asking


def _key(side: Side, asking: Sequence[_Asking], readout: Readout, settings: RunSettings) -> str:
    """The key of scores without content, which each side computes once for all prompts alike."""
    tokens = [row for one in asking for row in (one.token_ids, one.positions, *one.labels)]
    how = [side, readout.per_token, settings.scope, settings.repair]
    return key_of([*how, *((len(one.labels), one.ends) for one in asking)], tokens)


def _alone(
    cache: SegmentCache, submission: Submission, asking: Sequence[_Asking], readout: Readout
) -> Generator[Event, None, list[list[float]]]:
    """The scores of questions without content. The cached side reads the segments of modules."""
    work = Answering(cache, submission)
    try:
        new = yield from work.prepare()
        reader = _Reader(cache.model, submission.side, asking, submission.planned.plan)
        return (yield from reader.read(new, readout))
    finally:
        work.close()


class _Reader:
    """Reads the scores of labels after prompts that share their first tokens, also with a planned prompt.

    Attributes:
        shared: tokens that all prompts begin with.
        prompt_rows: (token, position) of the computed ones of these.
        placements: the segments that are read.
        rows: rows of questions and labels.
    """

    def __init__(
        self,
        model: Model,
        side: Side,
        asking: Sequence[_Asking],
        planned: PromptPlan | None = None,
        maps: MapReuse | None = None,
    ) -> None:
        self._model, self._side, self._asking, self._maps = model, side, asking, maps
        self.shared = 0 if maps is not None else _shared([*asking, planned] if planned else asking)
        self.prompt_rows: list[tuple[int, int]] = []
        self.placements: list[Placement] = []
        self.rows = 0
        self._ends = torch.tensor(sorted(model.end_tokens), dtype=torch.int64)

    def read(self, new: Prefill, readout: Readout) -> Generator[Event, None, list[list[float]]]:
        """Returns for each prompt the scores of its labels, in the order read."""
        border = self._asking[0].positions[self.shared]
        rows = zip(new.token_ids, new.positions, strict=True)
        self.prompt_rows = [(token, place) for token, place in rows if place < border]
        self.placements = [cut for placement in new.placements if (cut := _before(placement, border)).tokens]
        all_paths = [
            path
            for one in self._asking
            for path in paths(one.rows_from(self.shared), one.labels, ends=one.ends)
        ]
        ends = [one.ends for one in self._asking for _ in one.labels]
        if self._maps is None:
            sums = yield from self._sums(all_paths, ends)
        else:
            sums = yield from self._mapped_sums(self._maps, all_paths, ends)
        if readout.per_token:
            sums = [
                total / (len(path.scored) + end)
                for total, path, end in zip(sums, all_paths, ends, strict=True)
            ]
        values = iter(sums)
        return [[next(values) for _ in one.labels] for one in self._asking]

    def _sums(self, all_paths: list[Path], ends: list[bool]) -> Generator[Event, None, list[float]]:
        network, sums = self._model.network, [0.0] * len(all_paths)
        most = max(1, min(MOST_ROWS, MOST_LOGITS // max(1, network.config.vocab_size)))
        packs = network.setup.path == "segments"
        groups = self._groups(all_paths, most // 2 if packs else 1)
        trees = [(group, tree) for group in groups for tree in packed(group.paths, most if packs else 0)]
        before = len(self.prompt_rows)
        longest = max(len(group.rows) + len(tree) for group, tree in trees)
        kv = network.kv_cache(self.placements, before + longest)
        if before > TOGETHER or (before and (groups[0].rows or not packs)):
            yield self._working(0, len(trees))
            self._compute(kv, self.prompt_rows)
        last = None
        for number, (group, tree) in enumerate(trees):
            yield self._working(number, len(trees))
            if group is not last and group.rows:
                kv.truncate(before)
                self._compute(kv, group.rows)
                self.rows += len(group.rows)
            last = group
            if packs:
                self._read_tree(kv, tree, group.paths, ends, sums)
            else:
                logits = network.forward(tree.token_ids, tree.positions, kv, keep=len(tree))
                sums_of_tree = self._of_paths(logits, tree.paths, group.paths, ends)
                for index, total in sums_of_tree.items():
                    sums[index] = total
            kv.truncate(before + len(group.rows))
            self.rows += len(tree)
        return sums

    def _groups(self, all_paths: list[Path], least: int) -> list[_Group]:
        """The paths, and on their own those of a question with at least so many rows before its labels."""
        together, apart, start = _Group([], {}), [], 0
        for one in self._asking:
            rows = one.rows_from(self.shared)[:-1]  # the last one scores the first token of each label
            own = {start + number: all_paths[start + number] for number in range(len(one.labels))}
            start += len(own)
            if len(rows) < least:
                together.paths.update(own)
            else:
                apart.append(_Group(rows, {index: path.after(len(rows)) for index, path in own.items()}))
        return [*([together] if together.paths else []), *apart]

    def _mapped_sums(
        self, maps: MapReuse, all_paths: list[Path], ends: list[bool]
    ) -> Generator[Event, None, list[float]]:
        """The sums of whole texts, some of which read stored maps; equal ones share a pass."""
        network, sums = self._model.network, [0.0] * len(all_paths)
        texts: dict[tuple[int, ...], list[int]] = {}
        for index, path in enumerate(all_paths):
            texts.setdefault(path.token_ids, []).append(index)
        for number, (tokens, indices) in enumerate(texts.items()):
            yield self._working(number, len(texts))
            every = range(len(tokens))
            first = min(row for index in indices for row in _scored(all_paths[index], every, end=ends[index]))
            kept = every[first:]
            if (found := maps.maps(tokens)) is None:
                kv = network.kv_cache((), len(tokens))
                logits = network.forward(tokens, all_paths[indices[0]].positions, kv, len(kept))
            else:
                logits = maps.passes.mapped_logits(tokens, found, kept)
            rows_of = [(index, [row - first for row in every]) for index in indices]
            for index, total in self._of_paths(logits, rows_of, all_paths, ends).items():
                sums[index] = total
            self.rows += len(tokens)
        return sums

    def _working(self, done: int, total: int) -> Working:
        return Working(self._side, "questions", done, total)

    def _compute(self, kv: KVCache, rows: Sequence[tuple[int, int]]) -> None:
        tokens, places = zip(*rows, strict=True)
        self._model.network.forward(tokens, places, kv, keep=0)

    def _read_tree(
        self, kv: KVCache, tree: RowTree, all_paths: Paths, ends: list[bool], sums: list[float]
    ) -> None:
        """Runs a tree of rows, together with the prompt's own rows if they are not computed yet."""
        order, unseen = tree.by_position()
        place = {row: index for index, row in enumerate(order)}
        first = [] if kv.length else self.prompt_rows
        if first:
            count = len(first)
            whole_mask = torch.zeros(count + len(order), count + len(order), dtype=torch.bool)
            whole_mask[:count] = torch.ones_like(whole_mask[:count]).triu(1)
            whole_mask[count:, count:] = unseen
            unseen = whole_mask
        tokens = [*(token for token, _ in first), *(tree.token_ids[row] for row in order)]
        places = [*(position for _, position in first), *(tree.positions[row] for row in order)]
        wanted = sorted(
            {
                place[row]
                for index, rows in tree.paths
                for row in _scored(all_paths[index], rows, end=ends[index])
            }
        )
        logits = self._model.network.forward_tree(
            tokens, places, kv, unseen, [len(first) + row for row in wanted]
        )
        at = {row: index for index, row in enumerate(wanted)}
        in_logits = [(index, tuple(at.get(place[row], -1) for row in rows)) for index, rows in tree.paths]
        for index, total in self._of_paths(logits, in_logits, all_paths, ends).items():
            sums[index] = total

    def _of_paths(
        self,
        logits: Tensor,
        rows_of: Sequence[tuple[int, Sequence[int]]],
        all_paths: Paths,
        ends: list[bool],
    ) -> dict[int, float]:
        """Sums the log-probabilities of each path's label from logits [rows, vocabulary]."""
        require_numbers(logits)
        parts = [row.logsumexp(-1) for row in torch.split(logits.float(), 64)]
        total = torch.cat(parts)
        rows, tokens, owners = [], [], []
        for index, own in rows_of:
            for before, token in all_paths[index].scored:
                rows.append(own[before - 1])
                tokens.append(token)
                owners.append(index)
        picked = (logits[rows, tokens].float() - total[rows]).tolist()
        sums = dict.fromkeys((index for index, _ in rows_of), 0.0)
        for owner, value in zip(owners, picked, strict=True):
            sums[owner] += value
        closing = [(index, own[-1]) for index, own in rows_of if ends[index]]
        if closing and len(self._ends):
            at = [row for _, row in closing]
            over = logits[at][:, self._ends.to(logits.device)].float().logsumexp(-1) - total[at]
            for (index, _), value in zip(closing, over.tolist(), strict=True):
                sums[index] += value
        return sums


def _scored(path: Path, rows: Sequence[int], *, end: bool) -> Iterator[int]:
    """The rows of a path whose logits are needed."""
    for before, _ in path.scored:
        yield rows[before - 1]
    if end:
        yield rows[-1]


def _shared(asking: Sequence[_Asking | PromptPlan]) -> int:
    """The number of tokens that all prompts begin with, at the same positions; each has at least one more."""
    first, shared = asking[0], min(len(one.token_ids) for one in asking) - 1
    for one in asking[1:]:
        pairs = zip(first.token_ids, one.token_ids, first.positions, one.positions, strict=False)
        same = (token == other and at == there for token, other, at, there in pairs)
        shared = next((place for place, equal in enumerate(same) if place == shared or not equal), shared)
    return shared


def _before(placement: Placement, border: int) -> Placement:
    """The part of a placement before a position."""
    end = max(placement.lo, min(placement.hi, placement.lo + border - placement.start))
    hidden = tuple(place for place in placement.hidden if place < end)
    return replace(placement, hi=end, hidden=hidden)
