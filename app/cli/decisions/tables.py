"""Decisions as tables with bars."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from app.batch.decided_rows import best
from app.cli.base.output import counted, inline, table
from engine.base.stopwatch import milliseconds
from engine.decisions.questions import Question

_WIDTH = 20  # characters of a full bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


def in_words(questions: Sequence[Question], by_side: Mapping[str, Any]) -> str:
    """Returns a table for each question, and a summary.

    Args:
        questions: the questions.
        by_side: `Decisions.to_json` of each side.
    """
    blocks = [
        _block(question, [side["answers"][at] for side in by_side.values()], list(by_side))
        for at, question in enumerate(questions)
    ]
    return "\n\n".join([*blocks, _summary(by_side)])


def _block(question: Question, answers: Sequence[Mapping[str, Any]], sides: Sequence[str]) -> str:
    head = f"{question.name}: {question.instructions}" if question.name else question.instructions
    rows = []
    for label in question.labels:
        shares = [answer["probabilities"][label] for answer in answers]
        rows.append([label, *(cell for share in shares for cell in (f"{share:.1%}", bar(share)))])
    heads = ["", *(cell for side in sides for cell in (side, ""))]
    lines = [inline(head), table(heads, rows)]
    if question.kind == "score":
        levels = " and ".join(
            f"{answer['score']:.2f}{f' {side}' if len(sides) > 1 else ''}"
            for answer, side in zip(answers, sides, strict=True)
        )
        lines.append(f"expected level: {levels} (0 is {inline(question.labels[0])})")
    flips = max(answer["order_flips"] for answer in answers)
    if flips:
        lines.append(f"{flips:.0%} of the other orders of options give another answer")
    return "\n".join(lines)


def bar(share: float) -> str:
    """Returns a bar for a share, padded to its full width."""
    eighths = round(share * _WIDTH * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(_WIDTH)


def agreement(by_side: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how far both sides agree.

    It has the equal answers, the largest difference of a probability, and the mean KL divergence of the
    second side from the first, in nats.
    """
    pairs = list(zip(*(side["answers"] for side in by_side.values()), strict=True))
    differences = [
        abs(one["probabilities"][label] - other["probabilities"][label])
        for one, other in pairs
        for label in one["probabilities"]
    ]
    same = sum(best(one) == best(other) for one, other in pairs)
    kl = sum(_kl(other["probabilities"], one["probabilities"]) for one, other in pairs) / len(pairs)
    return {"same": same, "questions": len(pairs), "largest_difference": max(differences), "kl": kl}


def _kl(true: Mapping[str, float], found: Mapping[str, float]) -> float:
    return sum(p * math.log(p / max(found[label], sys.float_info.min)) for label, p in true.items() if p > 0)


def _summary(by_side: Mapping[str, Any]) -> str:
    times = ", ".join(f"{side} {milliseconds(one['ms'])}" for side, one in by_side.items())
    if len(by_side) == 1:
        return f"Time: {times}."
    found = agreement(by_side)
    which = "Both sides give the same answer" if found["same"] == found["questions"] else "The sides differ"
    if found["questions"] > 1:
        which = f"Both sides give the same answer to {found['same']} of {found['questions']} questions"
    return f"{which}; probabilities differ by at most {found['largest_difference']:.1%}. Time: {times}."


def confusion_table(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> str:
    """Returns the counts of rows by right label and answer, without labels that occur nowhere."""
    used = [at for at in range(len(labels)) if sum(confusion[at]) or sum(row[at] for row in confusion)]
    rows = [[labels[at], *(str(confusion[at][other]) for other in used)] for at in used]
    return table(
        [f"gold \\ answer ({counted(sum(map(sum, confusion)), 'row')})", *(labels[at] for at in used)], rows
    )
