"""Questions about the rows of a batch, in place of texts to generate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import SIDES, Listener
from engine.decisions.questions import Option, Question
from engine.decisions.readout import Decision, Readout

if TYPE_CHECKING:
    from engine import PreparedPrompt
    from engine.inference.run_settings import RunSettings


class Answered(TypedDict):
    """An answer to a question: see `engine.decisions.readout.Decision`."""

    probabilities: list[float]
    order_flips: float


Decided = dict[str, list[Answered]]
"""The answers of each side, in the order of the questions."""


@dataclass(frozen=True)
class Deciding:
    """The questions about each row.

    Attributes:
        questions: the questions.
        readout: how the probabilities are read.
    """

    questions: tuple[Question, ...]
    readout: Readout

    def to_json(self) -> dict[str, Any]:
        """Returns the questions and the readout as JSON."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Deciding:
        """Reads what `to_json` returned.

        Raises:
            SettingsError: a value of the readout is out of range.
        """
        questions = (
            Question(**{**one, "options": tuple(Option(**option) for option in one["options"])})
            for one in stored["questions"]
        )
        return cls(tuple(questions), Readout(**stored["readout"]))

    def answers(
        self,
        prompts: Iterator[tuple[PreparedPrompt, RunSettings] | Exception],
        listener: Listener,
        *,
        both: bool,
    ) -> Iterator[tuple[int, Decided | Exception]]:
        """Yields the number of each prompt with its decisions or its error. A cancelled prompt ends it."""
        for number, given in enumerate(prompts):
            outcome: Decided | Exception
            if isinstance(given, Exception):
                outcome = given
            else:
                try:
                    outcome = self._decide(*given, listener, both=both)
                except CancelledError:
                    return
                except PromptCacheError as error:
                    outcome = error
            yield number, outcome

    def as_row(self, decided: Decided) -> dict[str, Any]:
        """Returns the decisions as `pml decide --batch` writes them."""
        return {
            side: {
                "answers": [
                    Decision(question, tuple(answer["probabilities"]), (), answer["order_flips"]).to_json()
                    for question, answer in zip(self.questions, answers, strict=True)
                ]
            }
            for side, answers in decided.items()
        }

    def _decide(
        self, prompt: PreparedPrompt, settings: RunSettings, listener: Listener, *, both: bool
    ) -> Decided:
        decided: Decided = {}
        for side in SIDES if both else SIDES[:1]:
            found = prompt.decide(self.questions, self.readout, settings, mode=side, listener=listener)
            decided[side] = [
                {"probabilities": list(one.probabilities), "order_flips": one.order_flips}
                for one in found.answers
            ]
        return decided
