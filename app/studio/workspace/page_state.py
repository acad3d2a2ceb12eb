"""What the pages of a studio share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.studio.documents.documents import Documents
from app.studio.documents.drafts import Drafts
from app.studio.documents.recent import Recent
from app.studio.documents.samples import Library
from app.studio.documents.workspace_opener import Desk
from app.studio.history import RunStore
from app.studio.history.runner import Runs
from app.studio.model.api import Api, Offer
from app.studio.model.engine_loader import Opening
from app.studio.model.model_switcher import Switching
from app.studio.model.recent_models import RecentModels
from app.studio.web.jobs import Jobs

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
        kept: the runs of this user, on disk.
        tokenizing: a lock held while texts are tokenized, so that one check does not slow another.
        desk: opens workspaces and documents.
        api: answers other programs beside the page.
        recent: which documents were used last.
        switching: puts another model in the place of the one that answers.
    """

    opening: Opening
    drafts: Drafts
    library: Library
    documents: Documents
    jobs: Jobs
    runs: Runs
    kept: RunStore
    tokenizing: threading.Lock
    switching: Switching
    recent: Recent
    desk: Desk
    api: Api

    @classmethod
    def of(cls, opening: Opening, drafts: Drafts, library: Library, api: Api | None = None) -> Parts:
        """Returns the parts of a studio over these; without an `api` over one that nobody reaches."""
        jobs, tokenizing, kept = Jobs(), threading.Lock(), RunStore(drafts.folder)
        switching = Switching(opening, jobs, tokenizing, RecentModels(drafts.folder))
        recent = Recent(drafts.folder / "recent.json")
        return cls(
            opening=opening,
            drafts=drafts,
            library=library,
            documents=Documents(),
            jobs=jobs,
            runs=Runs(jobs, kept),
            kept=kept,
            tokenizing=tokenizing,
            switching=switching,
            recent=recent,
            desk=Desk(drafts, library, recent),
            api=api or Api(Offer()),
        )

    @contextmanager
    def taken(self) -> Iterator[Engine]:
        """The engine for work that is begun within.

        Another model takes its place before that or after it, and then waits for the work or stops it: work
        computes to its end with the model that it names.

        Raises:
            PromptCacheError: the model is still being loaded.
        """
        with self.tokenizing:
            yield self.engine

    @property
    def engine(self) -> Engine:
        """The engine that answers prompts.

        Raises:
            PromptCacheError: the model is still being loaded.
        """
        return self.opening.engine
