"""Writes the held-out prompts that `python -m benchmarks quality` runs over, one file for each world.

    python -m training.questions benchmarks/questions

Drawn from the grammars of the training texts with another seed; names they invent are of those that training
does not draw (`HeldOut`), which not every question has (`training.overlap`). Each prompt is written as a
schema and a prompt in PML that bind to the pieces of the drawn example.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from training.corpus import draw
from training.seams import LINE, seamed
from training.worlds.example import CLOSE, OPEN, Example, Turn
from training.worlds.words import HeldOut

SEED = 24_680_135
# documents in a prompt → questions; eight is what the goals speak of
DOCUMENTS = {1: 20, 2: 20, 4: 30, 8: 60, 16: 30}
CHOSEN_ON = 8  # documents in the questions by which the bundled weights were chosen among others
OTHERS = 40  # prompts of each other world
SLOT = 24  # tokens that an argument may have
ROLE = re.compile(re.escape(OPEN).replace(r"\{\}", "(system|user|assistant)"))
Record = dict[str, object]


def schema_of(example: Example) -> str:
    """The schema whose modules are the modules of an example, a line break for each seam.

    Args:
        example: whose questions open a turn of their own.
    """
    parts = ['<schema name="questions">']
    role, path = "", ""

    def leave(for_path: str) -> None:
        nonlocal path
        while path and not f"{for_path}/".startswith(f"{path}/"):
            parts.append("</module>")
            path = path.rpartition("/")[0]

    pieces = seamed(example, lambda: LINE)
    for index, piece in enumerate(pieces):
        if piece.seam:  # stands behind the end tags of the modules that end here
            leave(pieces[index + 1].path)
            parts.append(piece.text)
            continue
        leave(piece.path)
        opened = ROLE.fullmatch(piece.text)
        if opened:
            role = opened[1]
            parts.append(f"<{role}>")
        elif piece.text == CLOSE:
            parts.append(f"</{role}>")
        else:
            while path != piece.path:
                name = piece.path[len(path) :].lstrip("/").split("/")[0]
                parts.append(f"<module name={quoteattr(name)}>")
                path = f"{path}/{name}".lstrip("/")
            parts.append(
                f'<param name="value" len="{SLOT}"/>' if piece.kind == "argument" else escape(piece.text)
            )
    return "".join([*parts, "</schema>"])


def prompt_of(example: Example, question: str) -> str:
    """The prompt that imports every module of an example and asks."""
    paths = list(dict.fromkeys(p.path for p in example.pieces if p.path))
    values = {p.path: p.text for p in example.pieces if p.kind == "argument"}

    def imported(parent: str) -> str:
        below = [p for p in paths if p.startswith(f"{parent}/" if parent else "")]
        names = dict.fromkeys(p[len(parent) :].lstrip("/").split("/")[0] for p in below)
        text = ""
        for name in names:
            path = f"{parent}/{name}".lstrip("/")
            value = f" value={quoteattr(values[path])}" if path in values else ""
            text += f"<{name}{value}>{imported(path)}</{name}>"
        return text

    return f'<prompt schema="questions">{imported("")}<user>{escape(question)}</user></prompt>'


def record(example: Example, turn: Turn, name: str, metric: str, answer: str, documents: int) -> Record:
    """One line of a file."""
    return {
        "_id": name,
        "schema": schema_of(example),
        "prompt": prompt_of(example, turn.question),
        "answers": [answer],
        "metric": metric,
        "kind": turn.topic,
        "documents": documents,
        "position": turn.place / documents if turn.place >= 0 else None,
    }


def documents(r: HeldOut) -> Iterator[Record]:
    """Questions to documents, by how many there are."""
    for count, wanted in DOCUMENTS.items():
        kept = 0
        while kept < wanted:
            example = draw(r, 3 if count > 2 else 1, 1, "documents")
            modules = {p.path for p in example.pieces if p.path}
            if len(modules) != count or example.open_user:
                continue
            kept += 1
            turn = example.turns[0]
            made = record(example, turn, f"documents-{count}-{kept}", "exact", turn.answer, count)
            yield made | {"chosen_on": count == CHOSEN_ON}


def plans(r: HeldOut, world: str) -> Iterator[Record]:
    """Plans for trips or lessons, with what such a plan has to say."""
    kept = 0
    while kept < OTHERS:
        example = draw(r, r.randint(2, 3), 1, world)
        turn = example.turns[0]
        if example.open_user or not turn.wanted:
            continue
        kept += 1
        modules = len({p.path for p in example.pieces if p.path})
        yield record(example, turn, f"{world}-{kept}", "mentions", "\n".join(turn.wanted), modules)


def programs(r: HeldOut) -> Iterator[Record]:
    """Questions to source files."""
    kept = 0
    while kept < OTHERS:
        example = draw(r, r.randint(1, 3), 1, "code")
        if example.open_user:
            continue
        kept += 1
        modules, turn = len({p.path for p in example.pieces if p.path}), example.turns[0]
        yield record(example, turn, f"code-{kept}", "exact", turn.answer, modules)


def questions(world: str) -> list[Record]:
    """The held-out prompts of a world; "documents", "travel", "learning" or "code"."""
    r = HeldOut(f"{SEED} {world}")
    if world == "documents":
        return list(documents(r))
    return list(programs(r) if world == "code" else plans(r, world))


def lines(world: str) -> str:
    """The text of a world's file."""
    return "".join(json.dumps(found, ensure_ascii=False) + "\n" for found in questions(world))


if __name__ == "__main__":
    for name in ("documents", "travel", "learning", "code"):
        (Path(sys.argv[1]) / f"{name}.jsonl").write_text(lines(name), encoding="utf-8")
