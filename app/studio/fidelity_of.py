"""What reuse did to an answer, with what that was measured of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict

from app.studio.answers import Json, JsonOf
from app.studio.run_frame import Belongs, ModelOfRun

if TYPE_CHECKING:
    from engine.inference.findings import Fidelity


class MeasuredFidelity(TypedDict):
    """What was found, and the texts, settings and model that it belongs to; `schema` is the schema's name."""

    schema: str
    of: Belongs
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    model: ModelOfRun
    found: Annotated[Json, JsonOf(named="engine.inference.findings:Fidelity")]


@dataclass(frozen=True)
class FidelityOf:
    """What comes of a measurement."""

    schema: str
    of: Belongs
    settings: Json
    model: ModelOfRun
    found: Fidelity

    def to_json(self) -> dict[str, Any]:
        """Returns it for the page."""
        told: MeasuredFidelity = {
            "schema": self.schema,
            "of": self.of,
            "settings": self.settings,
            "model": self.model,
            "found": self.found.to_json(),
        }
        return dict(told)
