"""What evaluation and training have in common: names, and sentences of the bundled samples.

    python -m training.overlap [--draws 20000]

Prints how many held-out prompts hold a name that training does not draw, and how many sentences of the
bundled samples stand in so many drawn training examples (in the shares in which training draws them).
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator

from benchmarks.quality.tasks import Task, read_tasks, suite
from engine.pml import Module, NewText, Role, Schema, Text, Union, bind, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation
from sample_schemas import samples
from training.corpus import draw
from training.worlds.words import reserved

SEED = 1
_WORD = re.compile(r"[A-Z][a-z]{4,}")
_END = re.compile(r"(?<=[.!?])\s+|\n+")


def held_out_names(text: str, known: set[str]) -> set[str]:
    """Names in a text that are kept for evaluation; no word that training knows."""
    return {word for word in _WORD.findall(text) if reserved(word) and word.lower() not in known}


def asked(task: Task) -> str:
    """The question and the right answers."""
    turns = conversation(bind(task.schema, task.prompt).parts)
    return " ".join([turns[-1].text, *task.answers])


def names(known: set[str]) -> dict[str, dict[str, int]]:
    """By world: prompts, those that hold at least one such name, and those whose question or answer does.

    Args:
        known: lower-case words of drawn training texts; some ordinary ones have the checksum of a name.
    """
    found = {}
    for world, path in suite("demo").items():
        tasks = read_tasks(path)
        whole = [" ".join(t.text for t in conversation(bind(k.schema, k.prompt).parts)) for k in tasks]
        found[world] = {
            "prompts": len(tasks),
            "with_a_held_out_name": sum(bool(held_out_names(text, known)) for text in whole),
            "asked_or_answered_with_one": sum(bool(held_out_names(asked(task), known)) for task in tasks),
        }
    return found


def sentences(text: str) -> set[str]:
    """The sentences of a text with at least three words, white space made one."""
    return {s for part in _END.split(text) if len((s := " ".join(part.split())).split()) > 2}


def sample_sentences() -> dict[str, set[str]]:
    """By sample: the sentences of its schema and its prompts."""
    found: dict[str, set[str]] = {}
    for sample in samples():
        schema = parse_schema(sample.schema_path.read_text(encoding="utf-8")).tree
        assert schema is not None
        texts = list(_texts(schema))
        for path in sample.prompts:
            prompt = parse_prompt(path.read_text(encoding="utf-8")).tree
            assert prompt is not None
            texts += [part.text for part in bind(schema, prompt).parts if isinstance(part, NewText)]
        found[sample.name] = {s for text in texts for s in sentences(text)}
    return found


def _texts(node: Schema | Module | Union | Role) -> Iterator[str]:
    for child in node.children if not isinstance(node, Union) else node.members:
        if isinstance(child, Text):
            yield child.text
        elif isinstance(child, Module | Union | Role):
            yield from _texts(child)


def drawn_sentences(draws: int, seed: int = SEED) -> set[str]:
    """The sentences of drawn training examples: contexts, questions and answers."""
    r, found = random.Random(seed), set[str]()
    for _ in range(draws):
        example = draw(r, r.randint(0, 3), r.randint(2, 18))
        for piece in example.pieces:
            found |= sentences(piece.text)
        for turn in example.turns:
            found |= sentences(turn.question) | sentences(turn.answer)
    return found


def main() -> None:
    """Prints both as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20_000)
    given = parser.parse_args()
    drawn = drawn_sentences(given.draws)
    known = {word.lower() for sentence in drawn for word in re.findall(r"[A-Za-z]+", sentence)}
    shared = {name: sorted(found & drawn) for name, found in sample_sentences().items()}
    totals = {name: len(found) for name, found in sample_sentences().items()}
    report = {
        "names": names(known),
        "draws": given.draws,
        "sample_sentences": totals,
        "of_these_drawn": {name: len(found) for name, found in shared.items()},
        "drawn": shared,
    }
    print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
