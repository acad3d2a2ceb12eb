"""What reuse did to an answer, measured in a thread of its own while the page asks how far it is."""

from __future__ import annotations

import threading
from typing import Any

from app.studio.jobs import Job
from engine import Fidelity, PreparedPrompt, RunSettings
from engine.errors import PromptCacheError

KEPT = 8


class Explanations:
    """Measurements of this session, by the keys that the page gave them. They take their turns with runs."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, key: str, prompt: PreparedPrompt, settings: RunSettings) -> None:
        """Begins to measure a prompt; the oldest measurements are forgotten."""

        def measure(job: Job) -> Fidelity:
            return prompt.fidelity(settings, job.progress)

        with self._lock:
            self._jobs[key] = Job(measure, "explain", "waiting for a run to end")
            while len(self._jobs) > KEPT:
                self._jobs.pop(next(iter(self._jobs))).stop()

    def state(self, key: str) -> dict[str, Any]:
        """How far a measurement is, or what came of it.

        Raises:
            PromptCacheError: it is not known any more.
        """
        job = self._jobs.get(key)
        if job is None:
            raise PromptCacheError("That measurement is not kept any more. Measure again.")
        return job.state()

    def stop(self, key: str) -> None:
        """Stops a measurement at its next step."""
        job = self._jobs.get(key)
        if job is not None:
            job.stop()
