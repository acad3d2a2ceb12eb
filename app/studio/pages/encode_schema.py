"""Every module of a schema, encoded as work that the page follows and stops."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app.studio.web.jobs import Job, StoppedError
from engine.base.choices import Scope
from engine.base.errors import CancelledError
from engine.base.events import Listener

if TYPE_CHECKING:
    from engine import EncodeReport, PreparedSchema


@dataclass(frozen=True)
class EncodedAll:
    """What encoding a schema took, as work tells it."""

    report: EncodeReport

    def to_json(self) -> dict[str, Any]:
        """Returns the report for the page."""
        return {**asdict(self.report), "warnings": list(self.report.warnings)}


def encode_all(job: Job, schema: PreparedSchema, scope: Scope) -> EncodedAll:
    """Computes and stores every segment of a schema that is not there yet.

    Args:
        job: is told how far it is, and stops it.
        schema: the schema to encode.
        scope: what modules see while they are encoded.

    Raises:
        StoppedError: somebody asked the work to stop; what was computed before stays.
        PromptError: a module does not fit the context window.
        SettingsError: under the scope `scaffold` nothing can be encoded without a prompt.
    """
    listener = Listener(stopped=lambda: job.stopping)
    try:
        return EncodedAll(schema.encode(scope=scope, progress=job.progress, listener=listener))
    except CancelledError:
        raise StoppedError from None
