"""What a process does without, so that it starts soon. Only a program that owns its process asks for it.

To import one model, transformers imports a compiler, tensors that are spread over machines, and the table of
all its models; none of them is ever used here. Two means, and neither changes what is computed:

- The `__init__` of a package in `LATE` is run when something is asked for that it defines; its submodules
  are imported without it, as it does not matter to them.
- Where transformers asks whether a part of torch is there, the answer is no, as on builds without it.

A version of these libraries that takes it otherwise is imported as it wants to be, and starts later.
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
"""Decorators that tell the compiler about a function; without a compiler they leave it as it is."""
NEEDED = ("modeling_utils", "models.auto.modeling_auto", "models.auto.tokenization_auto")
UNUSED = ("is_torch_distributed_available", "is_torch_flex_attn_available")
STUBS = "gradio.component_meta"
SPINS = "1000"
"""Turns of a thread that waits, some 10 µs. With another program on a core, the default of 300,000 makes a
step 2 to 20 times as long."""
_WAITS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
ITSELF = "direct_transformers_import"
"""By which transformers runs its own `__init__` once more."""
OPTIONAL = "pandas"
"""Looked for by a library that has no other use for it than rows of a kind that nobody gives it."""


class LatePackage(ModuleType):
    """Stands for a package until one of its own names is asked for.

    Args:
        spec: of the package.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__path__ = spec.submodule_search_locations or []
        self.__spec__ = spec
        self.__file__ = spec.origin
        self.__package__ = spec.name

    def __getattr__(self, name: str) -> Any:
        """Returns what the package itself has under the name, which is loaded for it."""
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
    """Imports Gradio without the type stubs that it compares with, or writes beside, each of its sources.

    That is half of its import. It leaves out a class whose file it cannot find.
    """
    found = inspect.getfile

    def file_of(kind: Any) -> str:
        if sys._getframe(1).f_globals.get("__name__") == STUBS:
            raise OSError("no stub is wanted")
        return found(kind)

    setattr(inspect, "getfile", file_of)  # noqa: B010 - its stub has a narrower type
    try:
        yield
    finally:
        inspect.getfile = found


def wait_briefly() -> None:
    """Has threads of torch that wait for one another leave the processor soon, unless the user has set that.

    GNU's OpenMP library reads how long they spin when it is loaded. So it is loaded here, and the environment
    stays as it was: programs that are started from here wait as they please.
    """
    spec = None if any(one in os.environ for one in _WAITS) else importlib.util.find_spec("torch")
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
    """Loads the engine's libraries; what is imported meanwhile stays, and the collector passes it by."""
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
    """Imports what a model needs of transformers, and no more.

    Raises:
        ImportError: it cannot be imported so.
        AttributeError: the same.
    """
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
    """Has a package that was not imported yet look as if it were not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
