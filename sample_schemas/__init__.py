"""The schemas that are bundled with the studio, each with prompts to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Sample", "samples"]

FOLDER = Path(__file__).parent
DESCRIPTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "travel",
        "Travel",
        "A trip plan with a duration, and ten places to go. Pick one and ask for a plan.",
    ),
    (
        "personalization",
        "Personalization",
        "A learner described by six traits, each chosen from a few. The plan follows what was picked.",
    ),
    (
        "code-generation",
        "Code generation",
        "Five source files of a small game. Pick those that a program needs and ask for a main.",
    ),
    (
        "documents",
        "Documents",
        "Eight notes about the people, towns and things of a valley. Pick some and ask a question.",
    ),
)


@dataclass(frozen=True)
class Sample:
    """A bundled schema and its prompts.

    Attributes:
        name: The schema's name and the stem of its files.
        title: The name as it is shown.
        description: Two sentences on what it is.
        schema_path: The schema's file.
        prompts: The prompts' files, in the order in which they are offered.
    """

    name: str
    title: str
    description: str
    schema_path: Path
    prompts: tuple[Path, ...]


def samples() -> tuple[Sample, ...]:
    """The bundled samples, in the order in which they are offered."""
    return tuple(
        Sample(
            name,
            title,
            description,
            FOLDER / f"{name}.pml",
            tuple(sorted(FOLDER.glob(f"{name}.prompt.*.pml"))),
        )
        for name, title, description in DESCRIPTIONS
    )
