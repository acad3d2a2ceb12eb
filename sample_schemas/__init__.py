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
        "A trip plan with a duration, and ten places to go: pick one and ask for a plan. "
        "A new place needs one other module; the rest of the prompt comes from the cache.",
    ),
    (
        "personalization",
        "Personalization",
        "A learner described by six traits, each chosen from a few: the plan follows what was picked. "
        "Every profile mixes the same modules, so soon only the question is computed.",
    ),
    (
        "code-generation",
        "Code generation",
        "Five source files of a small game: pick those that a program needs and ask for a main function. "
        "Each file is computed once, for every choice and order of files.",
    ),
    (
        "documents",
        "Documents",
        "Eight notes about the people, towns and things of a valley: pick some and ask a question. "
        "The longer the documents, the more the cache saves.",
    ),
    (
        "few-shot",
        "Few-shot examples",
        "Documents, and fifteen answered questions, each a module of two turns. "
        "Examples from the cache can be tried in any choice and order.",
    ),
    (
        "citybreak",
        "From a Python program",
        "A function whose branches became modules and whose arguments became parameters; see it below. "
        "Both branches of an if are cached, so a prompt is fast with either.",
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

    @property
    def program_path(self) -> Path | None:
        """The Python program that the schema was made from, if there is one."""
        path = self.schema_path.with_suffix(".py")
        return path if path.is_file() else None


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
