"""Scores of an answer against reference answers, 0 to 1, after LongBench (arXiv 2308.14508, appendix).

Each metric takes the best score over the references. ROUGE-L is over whole texts; LongBench splits them into
sentences first, so long summaries may score a little differently.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

Metric = Callable[[str, str, Sequence[str]], float]
"""Answer, reference, and all classes (for classification) → score."""


def exact(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """1 if the texts agree without white space at their ends."""
    return float(answer.strip() == reference.strip())


def f1(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """F-measure of common words, without case, punctuation and articles."""
    found, wanted = _words(answer), _words(reference)
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def rouge_l(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """F-measure of the longest common subsequence of words."""
    found, wanted = answer.split(), reference.split()
    common = _common_subsequence(found, wanted)
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def accuracy(answer: str, reference: str, classes: Sequence[str] = ()) -> float:
    """1 ÷ the number of named classes, if the right one is among them."""
    named = [name for name in classes if name in answer]
    named = [name for name in named if name == reference or name not in reference]
    return 1 / len(named) if reference in named else 0.0


def numbers(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """Share of the numbers in the answer that equal the reference's first number."""
    wanted = re.search(r"\d+", reference)
    found = re.findall(r"\d+", answer)
    return sum(n == wanted[0] for n in found) / len(found) if wanted and found else 0.0


def edit_similarity(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """Similarity of the first line of code: 1 - insertions and deletions ÷ both lengths."""
    lines = answer.lstrip("\n").split("\n")
    code = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    length = len(code) + len(reference)
    return 2 * _common_subsequence(code, reference) / length if length else 1.0


def mentions(answer: str, reference: str, _classes: Sequence[str] = ()) -> float:
    """1 if every line of the reference is somewhere in the answer."""
    return float(all(line in answer for line in reference.split("\n")))


METRICS: dict[str, Metric] = {
    "exact": exact,
    "f1": f1,
    "rouge-l": rouge_l,
    "accuracy": accuracy,
    "numbers": numbers,
    "edit-similarity": edit_similarity,
    "mentions": mentions,
}

# Metric by LongBench's data set. Few-shot answers count up to the end of their first line.
DATASETS: dict[str, str] = {
    **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"), "f1"),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), "rouge-l"),
    **dict.fromkeys(("lcc", "repobench-p"), "edit-similarity"),
    **dict.fromkeys(("passage_count", "passage_retrieval_en"), "numbers"),
    "triviaqa": "f1",
    "trec": "accuracy",
}
LABELS = "labels"  # the data set of labelled texts
FIRST_LINE = frozenset({"trec", "triviaqa", "samsum", LABELS})


def score(
    metric: str, answer: str, references: Sequence[str], *, classes: Sequence[str] = (), dataset: str = ""
) -> float:
    """The best score of an answer over its references."""
    if dataset in FIRST_LINE:
        answer = answer.lstrip("\n").split("\n")[0]
    return max(METRICS[metric](answer, reference, classes) for reference in references)


def _words(text: str) -> list[str]:
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def _common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for left in one:
        before = 0
        for place, right in enumerate(other, 1):
            before, row[place] = row[place], before + 1 if left == right else max(row[place], row[place - 1])
    return row[-1]
