"""What reuse did to an answer, measured in a thread of its own while the page asks how far it is."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import Any

from app.studio.jobs import Job
from engine import Engine, Fidelity, RunSettings
from engine.errors import StudioError
from engine.pml import Prompt, Schema, parse_schema

KEPT = 8


class Explanations:
    """Measurements of this session, by the keys that the page gave them.

    Args:
        engine: measures; it takes its turn with runs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, key: str, schema: Schema, prompt: Prompt, settings: RunSettings) -> None:
        """Begin to measure a prompt; the oldest measurements are forgotten."""

        def measure(job: Job) -> Fidelity:
            with contextlib.closing(self._engine.fidelity(schema, prompt, settings)) as steps:
                while True:
                    try:
                        step = next(steps)
                    except StopIteration as end:
                        found: Fidelity = end.value
                        return found
                    job.progress(step.done, step.total, step.what)

        with self._lock:
            self._jobs[key] = Job(measure, "explain", "waiting for a run to end")
            while len(self._jobs) > KEPT:
                self._jobs.pop(next(iter(self._jobs))).stop()

    def state(self, key: str) -> dict[str, Any]:
        """How far a measurement is, or what came of it.

        Raises:
            StudioError: it is not known any more.
        """
        job = self._jobs.get(key)
        if job is None:
            raise StudioError("That measurement is not kept any more. Measure again.")
        return job.state()

    def stop(self, key: str) -> None:
        """Stop a measurement at its next step."""
        job = self._jobs.get(key)
        if job is not None:
            job.stop()


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
