"""Work followed by a thread, as the server follows it for a page."""

from __future__ import annotations

import threading
from collections.abc import Generator

from app.studio.web.jobs import Job
from app.studio.web.json_answers import JobState, Json


def follow(job: Job) -> Generator[JobState[Json], None, None]:
    """Yields the states of work as they change, the last one included; the work stops when it is closed."""
    changed = threading.Event()
    with job.followed(changed.set):
        over = False
        while not over:
            changed.clear()
            state = job.state()
            over = state["over"]
            yield state
            if not over:
                changed.wait()
