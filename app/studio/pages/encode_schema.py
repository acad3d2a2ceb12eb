"""Encodes every module of a schema as a background job."""

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
    """The result of encoding a schema."""

    report: EncodeReport

    def to_json(self) -> dict[str, Any]:
        """Returns the report for the page."""
        return {**asdict(self.report), "warnings": list(self.report.warnings)}


def encode_all(job: Job, schema: PreparedSchema, scope: Scope) -> EncodedAll:
    """Computes and stores every missing segment of a schema.

    Args:
        job: reports progress and stops the work.
        schema: the schema to encode.
        scope: the attention scope of modules.

    Raises:
        StoppedError: the job was stopped; finished segments remain.
        PromptError: a module does not fit the context window.
        SettingsError: the scope `scaffold` needs a prompt.
    """
    listener = Listener(stopped=lambda: job.stopping)
    try:
        return EncodedAll(schema.encode(scope=scope, progress=job.progress, listener=listener))
    except CancelledError:
        raise StoppedError from None
