"""The tasks: pairs of sentences with scores, and messages with intents. Each is judged from embeddings."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.quality.decide import read
from engine.base.errors import PromptCacheError
from engine.embeddings.embedder import Vectors
from engine.embeddings.similarity import cosines, spearman
from engine.files.text_files import read_text_file


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences; the quality is Spearman's ρ of their cosine similarities and the scores."""

    name: str
    pairs: list[tuple[str, str, float]]
    examples: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        return [text for one, other, _ in self.pairs for text in (one, other)]

    def quality(self, vectors: Vectors, _examples: Vectors) -> float:
        found = spearman(cosines(vectors[::2], vectors[1::2]), [score for *_, score in self.pairs])
        return 0.0 if found is None else found


@dataclass(frozen=True)
class Labelled:
    """Messages; the quality is the accuracy of the nearest mean of examples, read without stored maps."""

    name: str
    tests: list[tuple[str, str]]
    labels: tuple[str, ...]  # of the examples
    examples: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.tests]

    def quality(self, vectors: Vectors, examples: Vectors) -> float:
        names = sorted({*self.labels})
        of = np.array(self.labels)
        means = np.stack([examples[of == name].mean(0) for name in names])
        scaled = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, means)]
        best = (scaled[0] @ scaled[1].T).argmax(1)
        return float(np.mean([names[at] == label for at, (_, label) in zip(best, self.tests, strict=True)]))


Task = Pairs | Labelled


def _picked(rows: Sequence[tuple[str, str, float]], limit: int) -> list[tuple[str, str, float]]:
    return random.Random(0).sample(rows, min(limit, len(rows)))


def sts(path: str, limit: int) -> Pairs:
    """Reads a CSV file with two sentences and a score in each row, without a header."""
    rows = list(csv.reader(read_text_file(Path(path)).splitlines()))
    try:
        return Pairs("STS-B", _picked([(row[0], row[1], float(row[2])) for row in rows if row], limit))
    except (IndexError, ValueError) as error:
        raise PromptCacheError(f"{path} has a row without two sentences and a score: {error}.") from error


def sick(path: str, limit: int) -> Pairs:
    """Reads the tab-separated test file of SICK."""
    lines = read_text_file(Path(path)).splitlines()
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        found = [(row["sentence_A"], row["sentence_B"], float(row["relatedness_score"])) for row in rows]
    except (KeyError, ValueError) as error:
        raise PromptCacheError(f"{path} is not a file of SICK: {error}.") from error
    return Pairs("SICK", _picked(found, limit))


def clinc(path: str, limit: int) -> Labelled:
    """Reads JSONL with `split`, `text` and `label`."""
    rows = read(path, limit)
    examples = [(label, text) for label, texts in rows.examples.items() for text in texts]
    labels, texts = zip(*examples, strict=True)
    return Labelled("CLINC", rows.tests, labels, texts)


def corpus(path: str, tasks: Sequence[Task], count: int) -> list[str]:
    """Returns texts to store: examples of the tasks, then sentences of a CSV file, in random order."""
    sentences = [text for one, other, _ in sts(path, 1 << 30).pairs for text in (one, other)]
    random.Random(0).shuffle(sentences)
    examples = [text for task in tasks for text in task.examples]
    return [*dict.fromkeys([*examples, *sentences])][:count]
