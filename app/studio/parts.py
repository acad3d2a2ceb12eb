"""What the pages of a studio share."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from app.studio.documents import Documents
from app.studio.drafts import Drafts
from app.studio.jobs import Jobs
from app.studio.runs import Runs
from app.studio.samples import Library
from engine import Engine


@dataclass(frozen=True)
class Parts:
    """What the pages of a studio share.

    Attributes:
        engine: the engine that answers prompts.
        drafts: the user's workspaces, kept on disk.
        library: the samples and the user's folder.
        documents: parsed schemas.
        jobs: long work.
        runs: the runs of this session.
        tokenizing: a lock held while texts are tokenized, so that one check does not slow another.
    """

    engine: Engine
    drafts: Drafts
    library: Library
    documents: Documents
    jobs: Jobs
    runs: Runs
    tokenizing: threading.Lock

    @classmethod
    def of(cls, engine: Engine, drafts: Drafts, library: Library) -> Parts:
        """Returns the parts of a studio over these."""
        jobs = Jobs()
        return cls(engine, drafts, library, Documents(), jobs, Runs(engine, jobs), threading.Lock())
