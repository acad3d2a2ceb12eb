"""Speeds up the start of a process by deferring unused imports. Only for programs that own their process.

To import a model, transformers imports a compiler, distributed tensors and the table of all its models, which
are never used here. Two techniques avoid that without changing results:

- The `__init__` of a package in `LATE` runs only when one of its own names is used. Its submodules are
  imported without it.
- When transformers checks whether a part of torch is available, the answer is no, as in builds without it.

If a new version of these libraries does not support this, it is imported normally, which is slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)

LATE = ("torch._dynamo", "transformers", "transformers.models")
COMPILER = "torch._dynamo"
MARKS = ("allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph")
"""Decorators for the compiler, which do nothing without it."""
NEEDED = ("modeling_utils", "models.auto.modeling_auto", "models.auto.tokenization_auto")
UNUSED = ("is_torch_distributed_available", "is_torch_flex_attn_available")
STUBS = "gradio.component_meta"
SPINS = "1000"
"""Spins of a waiting thread, some 10 µs. If another program uses a core, the default of 300,000 makes a
step 2 to 20 times as long.
"""
_WAITS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
ITSELF = "direct_transformers_import"  # the function with which transformers runs its own `__init__` again
OPTIONAL = "pandas"  # a library checks for it, but only needs it for inputs that are never used here


class LatePackage(ModuleType):
    """A placeholder for a package until one of its own names is used."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__path__ = spec.submodule_search_locations or []
        self.__spec__ = spec
        self.__file__ = spec.origin
        self.__package__ = spec.name

    def __getattr__(self, name: str) -> Any:
        """Returns the package's own attribute, and imports the package for it."""
        if name == "__version__":
            from importlib.metadata import version

            return version(self.__name__)
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self.__name__ == COMPILER and name in MARKS:
            return _unmarked
        whole = f"{self.__name__}.{name}"
        if PathFinder.find_spec(whole, self.__path__) is not None:
            return importlib.import_module(whole)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            parent, _, own = self.__name__.rpartition(".")
            if vars(sys.modules.get(parent, self)).get(own) is self:
                delattr(sys.modules[parent], own)
        return importlib.import_module(self.__name__)


@contextlib.contextmanager
def without_stubs() -> Iterator[None]:
    """Imports Gradio without generating type stubs, which is half of its import time.

    Gradio skips a class if it cannot find its file.
    """
    original = inspect.getfile

    def file_of(kind: Any) -> str:
        if sys._getframe(1).f_globals.get("__name__") == STUBS:
            raise OSError("no stub is wanted")
        return original(kind)

    setattr(inspect, "getfile", file_of)  # noqa: B010 - its stub has a narrower type
    try:
        yield
    finally:
        inspect.getfile = original


def wait_briefly() -> None:
    """Shortens the spinning of torch's waiting threads, unless the user configured it.

    GNU's OpenMP library reads the setting when it is loaded. So this function loads it and then restores the
    environment, so that child processes are not affected.
    """
    spec = None if any(name in os.environ for name in _WAITS) else importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return
    os.environ[_WAITS[0]] = SPINS
    try:
        for path in Path(spec.origin).parent.glob("lib/libgomp*.so*"):
            ctypes.CDLL(os.fspath(path))
    except OSError as error:
        log.info("threads wait as long as they do by default: %s", error)
    finally:
        del os.environ[_WAITS[0]]


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return _unmarked if function is None else function


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Loads the engine's libraries, and excludes their objects from garbage collection."""
    gc.disable()
    try:
        if "transformers" not in sys.modules:
            import torch

            torch_path = torch.__path__
            try:
                _defer(torch_path)
            except (ImportError, AttributeError) as error:
                log.info("the libraries are imported whole: %r", error)
                _take_back()
        yield
    finally:
        gc.freeze()
        gc.enable()


def _defer(torch_path: Any) -> None:
    """Imports only the parts of transformers that a model needs."""
    places: Any = {"": None, "torch": torch_path}
    for name in LATE:
        parent, _, own = name.rpartition(".")
        spec = PathFinder.find_spec(name, places[parent])
        if spec is None or name in sys.modules:
            continue
        late = sys.modules[name] = LatePackage(spec)
        places[name] = late.__path__
        if parent:
            setattr(sys.modules[parent], own, late)
    utilities = [importlib.import_module(f"transformers.utils{part}") for part in ("", ".import_utils")]
    for module in utilities:
        for name in UNUSED:
            setattr(module, name, _no)
        setattr(module, ITSELF, _itself)
    for part in NEEDED:
        importlib.import_module(f"transformers.{part}")
    with _hidden(OPTIONAL):
        importlib.import_module("sqlite_utils")


def _take_back() -> None:
    for name in list(sys.modules):
        if name.startswith(tuple(f"{late}." for late in LATE)) or name in LATE:
            parent, _, own = name.rpartition(".")
            vars(sys.modules.get(parent, sys)).pop(own, None)
            del sys.modules[name]


def _no() -> bool:
    return False


def _itself(*_: Any) -> ModuleType:
    return sys.modules["transformers"]


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hides a package that is not imported yet, as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
