"""Seeded training examples, and how they become rows of tokens with masks and positions.

Every piece is tokenised alone, as the engine does it, and so is the seam between two. A row holds several
examples; each example is one context followed by branches (a question and its answer) that do not see each
other. The mask of a context is plain (all of it is causal) or that of cached modules, and either may have
random gaps between positions of pieces. Under the mask of the scope `anchored` a module sees only the
anonymous text and its parents' text before it, under that of `isolated` only itself, and under both nothing
but new text sees an argument.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from training.seams import LINE, NOTHING, SPACE, seam_texts, seamed
from training.worlds.chat import small_talk
from training.worlds.code import code
from training.worlds.documents import documents
from training.worlds.example import Example, question_pieces
from training.worlds.learning import learning
from training.worlds.travel import travel

WORLDS: dict[str, tuple[Callable[[random.Random, int, int], Example], float]] = {
    "travel": (travel, 0.30),
    "documents": (documents, 0.46),
    "learning": (learning, 0.10),
    "code": (code, 0.14),
}
END = "<|im_end|>"
CONTEXT_WEIGHT = 0.05
MAX_POSITIONS = 8192
SMALL_TALK = 0.02  # of the turns of every world
ISOLATED = 0.3  # of the contexts under the mask of cached modules; the others are anchored


def draw(r: random.Random, size: int, turns: int, world: str = "") -> Example:
    """Draws one example; of a world by its share unless one is named."""
    names = list(WORLDS)
    name = world or r.choices(names, [WORLDS[n][1] for n in names])[0]
    example = WORLDS[name][0](r, size, turns)
    if not world:
        example.turns = [small_talk(r) if r.random() < SMALL_TALK else turn for turn in example.turns]
    return example


def texts(seed: int, count: int) -> Iterator[str]:
    """Plain texts for the tokenizer."""
    r = random.Random(seed)
    for _ in range(count):
        example = draw(r, r.randint(0, 3), 3)
        yield from (p.text for p in example.pieces)
        for turn in example.turns:
            yield from (turn.question, turn.answer)


@dataclass
class Block:
    """One tokenised example: `segments[i]` is the piece of token i, `sees[a][b]` says that a sees b."""

    ids: list[int]
    positions: list[int]
    weights: list[float]
    segments: list[int]
    sees: list[list[bool]]


def block(
    example: Example, tokenizer: Tokenizer, r: random.Random, blocked: float, gaps: float, limit: int
) -> Block | None:
    """Tokenises an example under a drawn mask; None where the context alone is longer than `limit`."""
    ids, positions, weights, segments = [1], [0], [0.0], [0]
    kinds: list[tuple[str, str]] = [("anonymous", "")]
    scope, gap = "", r.random() < gaps
    if r.random() < blocked:
        scope = "isolated" if r.random() < ISOLATED else "anchored"
    room = MAX_POSITIONS - 1200
    position = r.randint(0, room) if gap and r.random() < 0.2 else 1
    most = room // (2 * len(example.pieces)) if gap else 0
    pieces = seamed(example, seam_texts(r, example))
    # what the prompt writes before a question that continues a turn; counts where no module brings a seam
    lead = r.choice((LINE, SPACE)) if example.open_user and not pieces[-1].seam else NOTHING
    for piece in pieces:
        tokens = tokenizer.encode(piece.text, add_special_tokens=False).ids
        if most and piece.kind == "module" and not piece.seam and position < room:
            position += r.randint(0, r.randint(0, most))
        kinds.append((piece.kind, piece.path))
        ids += tokens
        positions += range(position, position + len(tokens))
        weights += [CONTEXT_WEIGHT] * len(tokens)
        segments += [len(kinds) - 1] * len(tokens)
        position += len(tokens)
    if len(ids) > limit - 40 or position > MAX_POSITIONS - 300:
        return None
    context = len(kinds)
    for turn in example.turns:
        question = [
            i
            for t in (lead, *question_pieces(example, turn.question))
            for i in tokenizer.encode(t, add_special_tokens=False).ids
        ]
        answer = tokenizer.encode(turn.answer + END, add_special_tokens=False).ids
        if len(ids) + len(question) + len(answer) > limit:
            continue
        kinds.append(("branch", ""))
        ids += question + answer
        positions += range(position, position + len(question) + len(answer))
        weights += [0.0] * len(question) + [1.0] * len(answer)
        segments += [len(kinds) - 1] * (len(question) + len(answer))
    if len(kinds) == context:
        return None
    return Block(
        ids,
        positions,
        weights,
        segments,
        [[_sees(kinds, a, b, scope) for b in range(len(kinds))] for a in range(len(kinds))],
    )


def _sees(kinds: list[tuple[str, str]], a: int, b: int, scope: str) -> bool:
    """Whether piece a sees the earlier piece b, as segments of the scope do; "" is a plain causal context."""
    (kind, path), (other, other_path) = kinds[a], kinds[b]
    if a == b:
        return True
    if other == "branch":
        return False
    if kind in ("branch", "argument") or not scope:
        return True
    if scope == "isolated":
        return other != "argument" and path == other_path
    if other == "anonymous":
        return True
    if other == "argument" or kind == "anonymous":
        return False
    return path == other_path or path.startswith(other_path + "/")


@dataclass
class Batch:
    """Rows of tokens: ids, positions, weights [B, L]; mask bool [B, 1, L, L], true where a row may look.

    `examples` holds where the examples of each row begin and end; nothing looks across.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    weights: torch.Tensor
    mask: torch.Tensor
    examples: list[list[tuple[int, int]]]

    def to(self, device: str) -> Batch:
        """The batch on a device."""
        return Batch(
            self.ids.to(device),
            self.positions.to(device),
            self.weights.to(device),
            self.mask.to(device),
            self.examples,
        )


@dataclass(frozen=True)
class Stage:
    """A step of the curriculum.

    `sizes` weighs the example sizes 0..3; `blocked` and `gaps` are shares of the contexts.
    """

    length: int
    rows: int
    sizes: tuple[float, float, float, float]
    turns: tuple[int, int]
    blocked: float
    gaps: float


def batch(stage: Stage, tokenizer: Tokenizer, r: random.Random) -> Batch:
    """Draws and packs one batch."""
    rows: list[list[Block]] = [[] for _ in range(stage.rows)]
    used = [0] * stage.rows
    misses = 0
    while misses < 6:
        size = r.choices(range(4), stage.sizes)[0]
        made = block(
            draw(r, size, r.randint(*stage.turns)), tokenizer, r, stage.blocked, stage.gaps, stage.length
        )
        if made is None:
            continue
        fitting = [i for i in range(stage.rows) if used[i] + len(made.ids) <= stage.length]
        if not fitting:
            misses += 1
            continue
        row = max(fitting, key=lambda i: used[i])
        rows[row].append(made)
        used[row] += len(made.ids)
    ids = torch.zeros(stage.rows, stage.length, dtype=torch.long)
    positions, weights = torch.zeros_like(ids), torch.zeros(stage.rows, stage.length)
    mask = torch.zeros(stage.rows, 1, stage.length, stage.length, dtype=torch.bool)
    causal = torch.ones(stage.length, stage.length, dtype=torch.bool).tril()
    examples: list[list[tuple[int, int]]] = []
    for index, blocks in enumerate(rows):
        start, spans = 0, []
        for made in blocks:
            end = start + len(made.ids)
            ids[index, start:end] = torch.tensor(made.ids)
            positions[index, start:end] = torch.tensor(made.positions)
            weights[index, start:end] = torch.tensor(made.weights)
            segment = torch.tensor(made.segments)
            mask[index, 0, start:end, start:end] = torch.tensor(made.sees)[segment][:, segment]
            spans.append((start, end))
            start = end
        examples.append([*spans, (start, stage.length)] if start < stage.length else spans)
    mask &= causal
    mask |= torch.eye(stage.length, dtype=torch.bool)
    return Batch(ids, positions, weights, mask, examples)
