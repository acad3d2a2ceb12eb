"""Long work in a thread of its own, which the page asks about and can stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from engine.errors import PromptCacheError

logger = logging.getLogger(__name__)


class StoppedError(Exception):
    """Somebody asked the work to stop."""


class Job:
    """One piece of work: how far it is, and what came of it.

    Args:
        work: is called with this job, tells it how far it is by `progress`, and returns the result.
        name: of the thread.
        waiting: what to say before the first step.
    """

    def __init__(self, work: Callable[[Job], Any], name: str, waiting: str = "") -> None:
        self.what, self.done, self.total = waiting, 0, 0
        self.over, self.error = False, ""
        self.result: Any = None
        self._work, self._stop = work, threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def progress(self, done: int, total: int, what: str) -> None:
        """Says how far the work is.

        Raises:
            StoppedError: it is to stop here.
        """
        self.done, self.total, self.what = done, total, what
        if self._stop.is_set():
            raise StoppedError

    def stop(self) -> None:
        """Has the work stop at its next step."""
        self._stop.set()

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "what": self.what,
            "done": self.done,
            "total": self.total,
            "over": self.over,
            "error": self.error,
            "result": self.result.to_json() if self.result is not None else None,
        }

    def _run(self) -> None:
        try:
            self.result = self._work(self)
        except StoppedError:
            self.error = "Stopped."
        except (PromptCacheError, OSError) as error:
            self.error = str(error)
        except Exception as error:  # the page shows it; the thread has nobody else to tell
            logger.exception("Work in the background failed")
            self.error = f"The work failed: {error!r}. The terminal of the studio shows the details."
        finally:
            self.over = True
