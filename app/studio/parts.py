"""What the pages of a studio share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.studio.documents import Documents
from app.studio.drafts import Drafts
from app.studio.jobs import Jobs
from app.studio.opening import Opening
from app.studio.runs import Runs
from app.studio.samples import Library

if TYPE_CHECKING:
    from engine import Engine


@dataclass(frozen=True)
class Parts:
    """What the pages of a studio share.

    Attributes:
        opening: the engine, or one to come: it is there when the model is loaded.
        drafts: the user's workspaces, kept on disk.
        library: the samples and the user's folder.
        documents: parsed schemas.
        jobs: long work.
        runs: the runs of this session.
        tokenizing: a lock held while texts are tokenized, so that one check does not slow another.
    """

    opening: Opening
    drafts: Drafts
    library: Library
    documents: Documents
    jobs: Jobs
    runs: Runs
    tokenizing: threading.Lock

    @classmethod
    def of(cls, opening: Opening, drafts: Drafts, library: Library) -> Parts:
        """Returns the parts of a studio over these."""
        jobs = Jobs()
        return cls(opening, drafts, library, Documents(), jobs, Runs(opening, jobs), threading.Lock())

    @property
    def engine(self) -> Engine:
        """The engine that answers prompts.

        Raises:
            PromptCacheError: the model is still being loaded.
        """
        return self.opening.engine
