"""Systems that lack what Linux has, played on Linux by taking it away.

`python -m tests.engine.cache.lesser_system NAME FOLDER NUMBER...` plays one from the first import on,
in as many processes as there are numbers.
"""

from __future__ import annotations

import errno
import importlib
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Protocol

UNIX_ONLY = ("fcntl", "resource", "pwd", "grp", "termios")


class Patch(Protocol):
    """What takes away and puts in place, as pytest's own does."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...
    def delattr(self, target: Any, name: str) -> None: ...


class ForGood:
    """Takes away until the process ends."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def delattr(self, target: Any, name: str) -> None:
        delattr(target, name)


def without(*names: str) -> Callable[[Patch], None]:
    """A system whose `os` has no such names."""

    def take(patch: Patch) -> None:
        for name in names:
            patch.delattr(os, name)

    return take


def without_folder_descriptors(patch: Patch) -> None:
    """Folders cannot be opened, and nothing is looked up from them."""
    plain = os.open

    def by_path_only(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):  # noqa: PTH112
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return plain(path, flags, mode)

    patch.setattr(os, "open", by_path_only)
    patch.setattr(os, "supports_dir_fd", set())
    patch.setattr(os, "supports_fd", set())


def without_folder_flushes(patch: Patch) -> None:
    """Folders cannot be flushed."""
    plain = os.fsync

    def files_only(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        plain(descriptor)

    patch.setattr(os, "fsync", files_only)


def without_names_of_descriptors(patch: Patch) -> None:
    """There is no /dev/fd, so what is open cannot be opened again by a name."""
    plain = os.path.exists
    patch.setattr(os.path, "exists", lambda path: not str(path).startswith("/dev/fd/") and plain(path))


def without_hard_links(patch: Patch) -> None:
    """The file system knows no second names."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    patch.setattr(os, "link", refuse)


def without_locks(patch: Patch) -> None:
    """The library finds nothing to lock with."""
    from engine.store.blobs import locks

    def refuse(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSYS, "fcntl is unavailable")

    patch.setattr(locks, "lock_descriptor", refuse)


def in_use(path: Any) -> bool:
    """Whether this process has a file open or mapped."""
    try:
        wanted = os.stat(path)  # noqa: PTH116
    except OSError:
        return False
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if os.path.samestat(wanted, os.stat(f"/proc/self/fd/{descriptor}")):  # noqa: PTH116
                return True
        except OSError:
            continue
    return f" {path}\n" in Path("/proc/self/maps").read_text(encoding="utf-8")


def with_files_that_stay_while_open(patch: Patch) -> None:
    """What is open or mapped is neither deleted nor renamed, by any path."""
    from engine.files import directory

    without_folder_descriptors(patch)

    aside = Path(tempfile.gettempdir())  # Python's own temporary files go another way there

    def guarded(call: Callable[..., None], *, replaces: bool = True) -> Callable[..., None]:
        def only_what_is_free(*paths: Any) -> None:
            if any(in_use(path) for path in paths if Path(path).parent != aside):
                raise PermissionError(errno.EACCES, "it is used by another process", str(paths[0]))
            if not replaces and os.path.lexists(paths[-1]):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(paths[-1]))
            call(*paths)

        return only_what_is_free

    patch.setattr(directory, "OPEN_FILES_STAY", True)
    patch.setattr(os, "unlink", guarded(os.unlink))
    patch.setattr(os, "replace", guarded(os.replace))
    patch.setattr(os, "rename", guarded(os.rename, replaces=False))


def like_windows(patch: Patch) -> None:
    """All that the store ever asks for and Windows lacks; its locks are the library's."""
    without("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "posix_fadvise", "fchmod")(patch)
    without("pread", "preadv", "geteuid", "getuid", "getgid", "chown", "mkfifo")(patch)
    without_names_of_descriptors(patch)
    with_files_that_stay_while_open(patch)


def like_a_mac(patch: Patch) -> None:
    """No hints to read ahead, no list of mounts, and modules that other systems have."""
    without("posix_fadvise", "POSIX_FADV_WILLNEED", "POSIX_FADV_DONTNEED")(patch)


LESSER: dict[str, Callable[[Patch], None]] = {
    "no hints": like_a_mac,
    "no flags": without("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"),
    "no owners": without("geteuid", "getuid", "fchmod"),
    "no reading at a place": without("pread", "preadv"),
    "no folder descriptors": without_folder_descriptors,
    "no flushing of folders": without_folder_flushes,
    "no names of descriptors": without_names_of_descriptors,
    "no hard links": without_hard_links,
    "no locks": without_locks,
    "files that stay while open": with_files_that_stay_while_open,
    "like Windows": like_windows,
}


class Refusing:
    """Refuses to import what only Unix has."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name in UNIX_ONLY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def play(folder: Path) -> None:
    """Opens a store, writes, finds, verifies, moves, evicts."""
    import torch

    from engine.store import Store
    from tests.engine.cache.segments import ORIGIN, segment

    keys = [f"{number:040x}" for number in range(4)]
    store = Store.open(folder / "store")
    for number, key in enumerate(keys):
        with store.disk.compute_lock(key, 60) as waited:
            assert not waited
            store.save(segment(key, 20, number), ORIGIN, scheme="int8" if number == 3 else "plain")
    store.close()
    store = Store.open(folder / "store")
    store.expect_soon(keys)
    for number, key in enumerate(keys[:3]):
        read = store.load(key, range(20))
        assert read is not None
        assert torch.equal(read.keys, segment(key, 20, number).keys)
    del read
    found = store.verify()
    assert found.clean, found
    assert found.foreign == ()
    store.export(folder / "all.tar")
    there = Store.open(folder / "there", verify="always")
    assert there.import_(folder / "all.tar").segments == 4
    assert there.load(keys[0], range(20)) is not None
    there.close()
    size = store.stats().bytes
    store.prune(max_bytes=size // 2)
    assert 0 < store.stats().segments < 4
    assert len(list(store.files.iterdir())) == store.stats().segments
    assert list((folder / "store" / "locks").iterdir()) == []
    store.close()


def write_and_prune(folder: Path, number: int, rounds: int = 60) -> None:
    """Writes, reads, evicts, beside others that do; fails where something wrong is served."""
    import torch

    from engine.store import Store
    from tests.engine.cache.segments import ORIGIN, segment

    store, draw = Store.open(folder), random.Random(number)
    for _ in range(rounds):
        what = draw.randrange(8)
        made = segment(f"k{what}", 20 + what, what)
        read = store.load(made.key, made.token_ids)
        if read is None:
            with store.disk.compute_lock(made.key, 60):
                store.save(made, ORIGIN)
        else:
            assert torch.equal(read.keys, made.keys)
        if draw.random() < 0.2:
            store.prune(max_bytes=draw.randrange(60_000))
    assert store.verify().index == ""
    store.close()


def main() -> None:
    """Plays a system, and has processes of it write and prune one store at once."""
    name, folder, *numbers = sys.argv[1:]
    if name != "no locks":
        for library in ("torch", "filelock", "platformdirs", "safetensors.torch", "sqlite_utils"):
            importlib.import_module(library)  # libraries have ways of their own, chosen by the system's name
    sys.meta_path.insert(0, Refusing())  # type: ignore[arg-type]
    for module in UNIX_ONLY:
        sys.modules.pop(module, None)
    if name in LESSER and name != "no locks":
        LESSER[name](ForGood())
    from engine.store import Store  # noqa: F401 - loaded once for all

    workers = [work for number in numbers if (work := forked(Path(folder), int(number)))]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) != 0 for worker in workers))


def forked(folder: Path, number: int) -> int:
    """The id of another process, which writes and prunes."""
    worker = os.fork()
    if worker == 0:
        status = 1
        try:
            write_and_prune(folder, number)
            assert not {*UNIX_ONLY} & {*sys.modules}
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    return worker


if __name__ == "__main__":
    main()
