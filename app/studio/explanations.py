"""What reuse did to an answer, measured in a thread of its own while the page asks how far it is."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from engine import Engine, Fidelity, RunSettings
from engine.errors import StudioError
from engine.pml import Prompt, Schema, parse_schema

logger = logging.getLogger(__name__)

KEPT = 8


@dataclass
class _Job:
    what: str = "waiting for a run to end"
    done: int = 0
    total: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    result: Fidelity | None = None
    error: str = ""
    over: bool = False


class Explanations:
    """Measurements of this session, by the keys that the page gave them.

    Args:
        engine: measures; it takes its turn with runs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def start(self, key: str, schema: Schema, prompt: Prompt, settings: RunSettings) -> None:
        """Begin to measure a prompt; the oldest measurements are forgotten."""
        job = _Job()
        with self._lock:
            self._jobs[key] = job
            while len(self._jobs) > KEPT:
                self._jobs.pop(next(iter(self._jobs))).stop.set()
        worker = threading.Thread(
            target=self._work, args=(job, schema, prompt, settings), name="explain", daemon=True
        )
        worker.start()

    def state(self, key: str) -> dict[str, Any]:
        """How far a measurement is, or what came of it.

        Raises:
            StudioError: it is not known any more.
        """
        job = self._jobs.get(key)
        if job is None:
            raise StudioError("That measurement is not kept any more. Measure again.")
        return {
            "what": job.what,
            "done": job.done,
            "total": job.total,
            "over": job.over,
            "error": job.error,
            "result": job.result.to_json() if job.result else None,
        }

    def stop(self, key: str) -> None:
        """Stop a measurement at its next step."""
        job = self._jobs.get(key)
        if job is not None:
            job.stop.set()

    def _work(self, job: _Job, schema: Schema, prompt: Prompt, settings: RunSettings) -> None:
        try:
            steps = self._engine.fidelity(schema, prompt, settings)
            while not job.stop.is_set():
                step = next(steps)
                job.what, job.done, job.total = step.what, step.done, step.total
            steps.close()
            job.error = "Stopped."
        except StopIteration as end:
            job.result = end.value
        except StudioError as error:
            job.error = str(error)
        except Exception as error:  # the page shows it; the thread has nobody else to tell
            logger.exception("A measurement failed")
            job.error = f"The measurement failed: {error!r}. The terminal of the studio shows the details."
        finally:
            job.over = True


def with_scaffold(source: str, modules: list[str]) -> str:
    """The text of a schema with one more scaffold at its end.

    Raises:
        StudioError: the schema has errors, lacks a module, or has this scaffold already.
    """
    parsed = parse_schema(source)
    schema = parsed.tree
    if schema is None or any(
        d.severity == "error" and d.code[:2] in ("E1", "E2") for d in parsed.diagnostics
    ):
        raise StudioError("The schema has errors. Mend them first, then add the scaffold.")
    missing = [path for path in modules if schema.module(path) is None]
    if missing:
        raise StudioError(f"The schema has no module {missing[0]!r} any more. Measure again.")
    if any(set(scaffold.modules) == set(modules) for scaffold in schema.scaffolds):
        raise StudioError("The schema has this scaffold already.")
    end = source.rindex("</schema")
    before = source[:end].rstrip(" \t")
    indent = "" if before.endswith("\n") else "\n"
    first = re.search(r"<schema\b[^>]*>\s*?\n([ \t]+)<", source)
    deep = first[1] if first else "  "
    return f'{before}{indent}{deep}<scaffold modules="{" ".join(modules)}"/>\n{source[end:]}'
