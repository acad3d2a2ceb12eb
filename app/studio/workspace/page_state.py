"""The parts that the studio's pages share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.studio.database import UserDatabase
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

CHOSEN_FOLDER = "folder"  # the form with the folder that the user chose on the page


@dataclass(frozen=True)
class Parts:
    """The parts that the studio's pages share.

    Attributes:
        opening: the engine, possibly still loading.
        database: the user's database.
        drafts: the user's workspaces.
        library: the samples and the user's folder.
        documents: parsed schemas.
        jobs: background jobs.
        runs: the runs of this session.
        kept: the user's stored runs.
        tokenizing: a lock around tokenization, so that checks do not slow each other.
        desk: opens workspaces and documents.
        api: answers other programs.
        recent: the recent documents.
        switching: switches the model.
    """

    opening: Opening
    database: UserDatabase
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
    def of(cls, opening: Opening, database: UserDatabase, library: Library, api: Api | None = None) -> Parts:
        """Returns the parts of a studio; without `api`, one that no client can reach.

        Raises:
            PromptCacheError: the database cannot be used.
        """
        jobs, tokenizing, store = Jobs(), threading.Lock(), RunStore(database)
        switching = Switching(opening, jobs, tokenizing, RecentModels(database))
        drafts, recent = Drafts(database), Recent(database)
        chosen = str(drafts.form(CHOSEN_FOLDER).get("path", ""))
        if library.folder.path is None and Path(chosen).is_absolute() and Path(chosen).is_dir():
            library.folder.choose(chosen)
        return cls(
            opening=opening,
            database=database,
            drafts=drafts,
            library=library,
            documents=Documents(),
            jobs=jobs,
            runs=Runs(jobs, store),
            kept=store,
            tokenizing=tokenizing,
            switching=switching,
            recent=recent,
            desk=Desk(drafts, library, recent),
            api=api or Api(Offer()),
        )

    @contextmanager
    def taken(self) -> Iterator[Engine]:
        """Yields the engine to start work with.

        A model switch happens before or after it, then waits for the work or stops it. Work never changes its
        model.

        Raises:
            PromptCacheError: the model is still loading.
        """
        with self.tokenizing:
            yield self.engine

    @property
    def engine(self) -> Engine:
        """The current engine.

        Raises:
            PromptCacheError: the model is still loading.
        """
        return self.opening.engine
