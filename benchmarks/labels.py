"""Labelled texts as few-shot classification: a module with the examples of each label, a prompt for a text.

A line of the file has `split` (`train` or `test`), `text` and `label`. All prompts import all modules.
Like LongBench (arXiv 2308.14508) does for few-shot examples, it uses no chat template: a model that is asked
in a conversation answers in sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.pml import Prompt, Schema, parse_prompt, parse_schema
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Labelled:
    """A text with its label, and the number of its line."""

    number: int
    text: str
    label: str


class Labels:
    """Labelled texts, read line by line."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = {}
        self._tests: dict[str, list[Labelled]] = {}

    @staticmethod
    def are_in(record: Any) -> bool:
        """Whether a line is a labelled text."""
        return isinstance(record, dict) and "label" in record and "text" in record and "split" in record

    def take(self, record: dict[str, Any], number: int) -> None:
        """Reads a line.

        Raises:
            KeyError: a field is missing.
            ValueError: it is of no known split.
        """
        text, label, split = str(record["text"]), str(record["label"]), record["split"]
        if split not in SPLITS:
            raise ValueError(f"the split is {split!r}; it must be 'train' or 'test'")
        if split == "train":
            self._examples.setdefault(label, []).append(text)
        else:
            self._tests.setdefault(label, []).append(Labelled(number, text, label))

    @property
    def names(self) -> tuple[str, ...]:
        """All labels that have examples."""
        return tuple(self._examples)

    def asked(self) -> Iterator[Labelled]:
        """The texts to ask about: one of each label, then another of each, so that any number is spread.

        Raises:
            ValueError: one has a label without examples.
        """
        for label in self._tests:
            if label not in self._examples:
                raise ValueError(f"the label {label!r} has no example of the split 'train'")
        for of_each in itertools.zip_longest(*self._tests.values()):
            yield from (one for one in of_each if one is not None)

    def schema(self) -> Schema:
        """A module for each label, with its examples. It has no roles: the model goes on with the text."""
        modules = "\n".join(
            f'<module name="label-{n}" xml:space="preserve">{escaped(_examples(label, texts))}</module>'
            for n, (label, texts) in enumerate(self._examples.items(), 1)
        )
        parsed = parse_schema(f'<schema name="labels">{modules}</schema>')
        assert parsed.tree is not None, parsed.diagnostics
        return parsed.tree

    def prompt(self, text: str) -> Prompt:
        """Asks for the label of a text, where the text of the examples ends."""
        imports = "".join(f"<label-{n}/>" for n in range(1, len(self._examples) + 1))
        question = escaped(f"Sentence: {text}\nLabel:")
        parsed = parse_prompt(f'<prompt schema="labels" xml:space="preserve">{imports}{question}</prompt>')
        assert parsed.tree is not None, parsed.diagnostics
        return parsed.tree


def _examples(label: str, texts: Sequence[str]) -> str:
    return "".join(f"Sentence: {text}\nLabel: {label}\n\n" for text in texts)


def escaped(text: str) -> str:
    """Text as PML, without the characters that no document may have."""
    while (found := forbidden_character(text)) is not None:
        text = text.replace(found[0], " ")
    return escaped_text(text)
