"""The user's drafts on disk: the open workspace, and earlier versions."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from app.base.safe_write import write_text
from engine.base.errors import PromptCacheError
from engine.files.places import broken_link

logger = logging.getLogger(__name__)

SHELF_SIZE = 50
PATIENCE_SECONDS = 10.0  # waits for another studio that writes to the same folder
_STEP_SECONDS = 0.01
_STAMPS = "%Y%m%dT%H%M%S.%f"


@dataclass(frozen=True)
class Workspace:
    """One schema and one prompt in the editors.

    Attributes:
        name: the workspace's name on the page.
        origin: the schema's source: ``sample:NAME``, ``file:PATH``, ``browser:NAME``, or "". Old drafts store
            only a file's name.
        settings: the run settings as the page sent them.
        prompt_origin: the prompt's source in the same form.
        files: the stamps of the files that ``schema`` and ``prompt`` were read from or written to.
        revision: the number of saves; a save must name the revision that it started from.
        saved: the time of the last save, as ISO 8601 in UTC.
    """

    name: str
    schema: str
    prompt: str
    origin: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0
    saved: str = ""
    prompt_origin: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)

    def same_text(self, other: Workspace) -> bool:
        """Whether both have the same documents."""
        return (self.schema, self.prompt) == (other.schema, other.prompt)


class StaleDraftError(PromptCacheError):
    """Another tab replaced the revision that a save started from."""

    def __init__(self, current: Workspace) -> None:
        super().__init__(
            "This workspace was changed in another tab or window. Load that text, or keep the text "
            "of this one."
        )
        self.current = current


class Drafts:
    """The drafts in one folder. Safe to use from several threads and several studios.

    Args:
        folder: created if missing.

    Attributes:
        folder: the folder.

    Raises:
        PromptCacheError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open_file = folder / "workspace.json"
        self._shelf = folder / "shelf"
        self._lock = threading.Lock()
        try:
            self._shelf.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # drafts are private
        except OSError as error:
            link = broken_link(folder)
            why = (
                f"{link}. Connect that disk"
                if link
                else f"{error.strerror}. Make it a folder that you can write"
            )
            raise PromptCacheError(f"The drafts folder {str(folder)!r} cannot be used: {why}.") from error

    def load(self) -> Workspace | None:
        """Returns the open workspace, or None on the first start. A damaged file is set aside."""
        with self._alone():
            return self._read_open()

    def save(self, workspace: Workspace, *, base: int, force: bool = False) -> Workspace:
        """Saves `workspace` as the open one.

        Args:
            workspace: the texts and settings on the page.
            base: the revision that the edit started from.
            force: also replace a newer revision, which becomes a version.

        Returns:
            The workspace with its new revision.

        Raises:
            StaleDraftError: there is a newer revision with another text.
            PromptCacheError: the file cannot be written.
        """
        with self._alone():
            current = self._read_open()
            if current is not None and current.revision != base and not current.same_text(workspace):
                if not force:
                    raise StaleDraftError(current)
                self._shelve(current)
            return self._write_open(workspace, current)

    def replace(self, workspace: Workspace) -> Workspace:
        """Opens `workspace`; the previous one becomes a version."""
        with self._alone():
            current = self._read_open()
            if current is not None and not current.same_text(workspace):
                self._shelve(current)
            return self._write_open(workspace, current)

    def shelve(self, workspace: Workspace) -> str | None:
        """Saves `workspace` as a version without opening it; returns its key, or None if it is the open one.

        Raises:
            PromptCacheError: the file cannot be written.
        """
        with self._alone():
            current = self._read_open()
            if current is not None and current.same_text(workspace):
                return None
            return self._shelve(replace(workspace, saved=_now().isoformat(timespec="seconds")))

    def keep_version(self) -> None:
        """Saves the open workspace as a version, unless it is the latest version.

        Raises:
            PromptCacheError: the file cannot be written.
        """
        with self._alone():
            current = self._read_open()
            if current is not None:
                self._shelve(current)

    def shelf(self) -> tuple[tuple[str, Workspace], ...]:
        """Returns the versions, latest first, each with its key for `shelved`."""
        versions = []
        for path in sorted(self._shelf.glob("*.json"), reverse=True):
            try:
                workspace = _read(path)
            except OSError as error:
                logger.warning("The version %s cannot be read: %s", path, error)
                continue
            if workspace is not None:
                versions.append((path.stem, workspace))
        return tuple(versions)

    def shelved(self, key: str) -> Workspace:
        """Returns one version.

        Raises:
            PromptCacheError: there is no version with this key.
        """
        version = dict(self.shelf()).get(key)
        if version is None:
            raise PromptCacheError(f"There is no version {key!r}. Choose another from the list.")
        return version

    def form(self, name: str) -> dict[str, Any]:
        """Returns a page's form values; empty if they cannot be read."""
        try:
            form = json.loads(self._form_file(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return form if isinstance(form, dict) else {}

    def keep_form(self, name: str, form: Mapping[str, Any]) -> None:
        """Saves a page's form values.

        Raises:
            PromptCacheError: the file cannot be written.
        """
        with self._alone():
            try:
                write_text(self._form_file(name), json.dumps(form))
            except OSError as error:
                raise PromptCacheError(
                    f"Your input on this page cannot be saved: {error.strerror}. The page still has it."
                ) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks out other threads and studios; only threads if the system has no file locks."""
        with self._lock, contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # the write reports a read-only folder
                descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
                stack.callback(os.close, descriptor)
                until = time.monotonic() + PATIENCE_SECONDS
                while not lock_descriptor(descriptor, blocking=False):
                    if time.monotonic() > until:
                        raise PromptCacheError(
                            f"Another studio has locked the drafts in {str(self.folder)!r}. The page "
                            "still has your text; stop that studio, then save again."
                        )
                    time.sleep(_STEP_SECONDS)
            yield

    def _form_file(self, name: str) -> Path:
        return self._open_file.with_name(f"form-{name}.json")

    def _read_open(self) -> Workspace | None:
        if not self._open_file.exists():
            return None
        try:
            workspace = _read(self._open_file)
        except OSError as error:
            raise PromptCacheError(
                f"The draft {str(self._open_file)!r} cannot be read: {error.strerror or error}. The "
                "file is unchanged. Fix the problem and reload the page."
            ) from error
        if workspace is None:
            aside = self._open_file.with_name(f"workspace.damaged-{_stamp()}.json")
            self._open_file.replace(aside)
            logger.warning("The saved workspace could not be read; it was renamed to %s", aside)
        return workspace

    def _write_open(self, workspace: Workspace, current: Workspace | None) -> Workspace:
        revision = max(workspace.revision, current.revision if current else 0) + 1
        draft = replace(workspace, revision=revision, saved=_now().isoformat(timespec="seconds"))
        _write(self._open_file, draft)
        return draft

    def _shelve(self, workspace: Workspace) -> str:
        paths = sorted(self._shelf.glob("*.json"))
        latest = None
        with contextlib.suppress(OSError):  # the next save writes it again
            latest = _read(paths[-1]) if paths else None
        if latest is not None and latest.same_text(workspace):
            return paths[-1].stem
        key = _stamp(behind=paths[-1].stem if paths else "")
        _write(self._shelf / f"{key}.json", workspace)
        for path in paths[: max(0, len(paths) + 1 - SHELF_SIZE)]:
            path.unlink(missing_ok=True)
        return key


def _now() -> datetime:
    return datetime.now(UTC)


def _stamp(behind: str = "") -> str:
    """Returns a key that sorts after another one, even if the clock went back."""
    now = _now()
    with contextlib.suppress(ValueError, OverflowError):
        now = max(now, datetime.strptime(behind, _STAMPS).replace(tzinfo=UTC) + timedelta(microseconds=1))
    return now.strftime(_STAMPS)


def _read(path: Path) -> Workspace | None:
    """Returns a workspace, or None if the file has none.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    try:
        workspace = Workspace(**json.loads(data.decode("utf-8")))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (workspace.name, workspace.schema, workspace.prompt, workspace.saved)
    origins = (workspace.origin, workspace.prompt_origin)
    whole = all(isinstance(text, str) for text in texts + origins) and isinstance(workspace.revision, int)
    return (
        workspace
        if whole and isinstance(workspace.settings, dict) and isinstance(workspace.files, dict)
        else None
    )


def _write(path: Path, workspace: Workspace) -> None:
    try:
        write_text(path, json.dumps(asdict(workspace), indent=1))
    except OSError as error:
        raise PromptCacheError(
            f"The draft cannot be saved in {str(path.parent)!r}: {error.strerror}. The page still has it."
        ) from error
