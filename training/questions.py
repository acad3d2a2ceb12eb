"""Writes the document questions that `pml bench quality` runs over by default.

    python -m training.questions benchmarks/questions/documents.jsonl

Drawn from the same grammars as the training texts with a seed of their own; names of people, companies and
places are invented anew for each, so none was seen in training.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from training.corpus import draw

SEED = 24_680_135
COUNTS = {8: 120, 2: 60}  # documents → questions


def questions() -> list[dict[str, object]]:
    """The questions, those with most documents first."""
    r = random.Random(SEED)
    found: list[dict[str, object]] = []
    for documents, count in COUNTS.items():
        kept = 0
        while kept < count:
            example = draw(r, 3 if documents > 4 else 1, 1, "documents")
            texts = [piece.text.strip() for piece in example.pieces if piece.kind == "module"]
            turn = example.turns[0]
            if len(texts) != documents:
                continue
            kept += 1
            found.append(
                {
                    "_id": f"{documents}-{kept}",
                    "system": "You give short answers from the documents below.",
                    "documents": texts,
                    "input": turn.question,
                    "answers": [turn.answer],
                    "metric": "exact",
                }
            )
    return found


if __name__ == "__main__":
    lines = [json.dumps(question, ensure_ascii=False) for question in questions()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
