"""`pml run --batch --judge`: a model grades the answers of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.base.errors import PromptCacheError
from engine.pml import Schema

if TYPE_CHECKING:
    from app.studio.batches.batch import Grade
    from engine import Engine


@dataclass(frozen=True)
class Judging:
    """A judge and its prompt.

    Attributes:
        judge: `model` for the loaded model, or the URL of a server on this machine.
        model: the server's model; "" for its first one.
        template: the judge's prompt; None for the usual one.
    """

    judge: str
    model: str
    template: str | None

    def require(self) -> None:
        """Checks the judge's prompt and URL; raises PromptCacheError."""
        from app.studio.batches.judge import require_template, server_judge

        if self.template is not None:
            require_template(self.template)
        if self.judge != "model":
            server_judge(self.judge, self.model)

    def grades(
        self, engine: Engine, schema: Schema, question: str, source: str, line: Mapping[str, Any]
    ) -> dict[str, Grade]:
        """Returns the grade of each side of an answered row. Equal answers are graded once.

        Args:
            engine: the loaded model.
            schema: the schema of the prompt.
            question: what the row asks.
            source: the prompt that was answered.
            line: the row's answers by side.
        """
        from app.studio.batches.judge import TEMPLATE, grade_of, judge_prompt, model_judge, server_judge

        judge = model_judge(engine) if self.judge == "model" else server_judge(self.judge, self.model)
        answers = {side: line[side]["text"] for side in ("cached", "uncached") if side in line}
        grades: dict[str, Grade] = {}
        for answer in set(answers.values()):
            text = judge_prompt(self.template or TEMPLATE, question, schema, source, answer)
            try:
                ((_, reply),) = judge([text], lambda: False)
            except PromptCacheError as error:
                reply = error
            grades[answer] = grade_of(reply)
        return {side: grades[answer] for side, answer in answers.items()}
