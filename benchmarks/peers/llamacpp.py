"""llama.cpp by `llama-cpp-python`, at the level of its C functions: no Python between tokens but the choice.

The weights are those of our model, written as GGUF in the same format. The cache of keys and values is in
fp16, as llama.cpp has it by default. Flash attention is faster for some ways and slower for others: the first
run of a way is made with and without it, and the faster one is timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.drawn import drawn_tokens
from benchmarks.peers.gguf_file import write_gguf
from benchmarks.peers.network import own_network
from benchmarks.peers.peer import Contender, Opened, Peer, Shape
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError

NAME = "llama.cpp"
KINDS = ("full", "prefix", "state_file", "decode", "answer")
_INSTALL = "pip install llama-cpp-python gguf (it is built from source, which takes ten minutes)"
ATTENTION = {False: "without flash attention", True: "with flash attention"}


def peer() -> Peer:
    """Returns this peer, which is here where the extra `peers` is installed."""
    absent = missing()
    return Peer(NAME, "" if absent else version(), absent, opened)


@contextlib.contextmanager
def opened(shape: Shape, *, cache_format: str = "F16") -> Iterator[Opened]:
    """Writes the weights to a folder of its own, and loads them.

    Args:
        shape: what is asked.
        cache_format: of keys and values, "F16" or "F32".

    Raises:
        PromptCacheError: it is absent, or the shape is not a plain llama.
    """
    if absent := missing():
        raise PromptCacheError(absent)
    import llama_cpp

    with Weights.loaded(shape) as weights:
        tokens = drawn_tokens(weights.vocabulary, shape.cached + shape.new, shape.seed)
        sides = []
        for flash in ATTENTION:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = shape.longest
            params.n_batch = shape.cached + shape.new
            context = weights.context(params, shape.threads, flash, cache_format)
            state = weights.folder / f"state-{flash:d}"
            sides.append(Context(shape, context, tokens, weights.vocabulary, state))
        yield FasterOfTwo(*sides)


@dataclass(frozen=True)
class Weights:
    """Weights of ours, loaded by llama.cpp.

    Attributes:
        model: of the C library.
        vocabulary: how many logits there are.
        folder: for files, as long as these are loaded.
        _stack: frees what was made.
    """

    model: Any
    vocabulary: int
    folder: Path
    _stack: contextlib.ExitStack

    @classmethod
    @contextlib.contextmanager
    def loaded(cls, shape: Shape) -> Iterator[Weights]:
        """Writes the weights of a shape to a folder of their own, and loads them.

        Raises:
            PromptCacheError: llama.cpp is absent, or the shape is not a plain llama.
        """
        if absent := missing():
            raise PromptCacheError(absent)
        import llama_cpp

        logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL + 1)  # what fails is raised
        with tempfile.TemporaryDirectory(prefix="pml-bench-") as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            vocabulary = _written(folder / "model.gguf", shape)
            llama_cpp.llama_backend_init()
            params = llama_cpp.llama_model_default_params()
            params.n_gpu_layers = 0
            model = llama_cpp.llama_model_load_from_file(str(folder / "model.gguf").encode(), params)
            if not model:
                raise PromptCacheError("llama.cpp cannot load the weights that were written for it.")
            stack.callback(llama_cpp.llama_model_free, model)
            yield cls(model, vocabulary, folder, stack)

    def context(self, params: Any, threads: int, flash: bool, cache_format: str) -> Any:
        """Returns a context of the C library, as long as the weights are loaded.

        Args:
            params: of it, with how many tokens there may be.
            threads: of the processor.
            flash: with flash attention.
            cache_format: of keys and values, "F16" or "F32".

        Raises:
            PromptCacheError: it cannot be made.
        """
        import llama_cpp

        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash)
        params.type_k = params.type_v = getattr(llama_cpp, f"GGML_TYPE_{cache_format}")
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise PromptCacheError("llama.cpp cannot make a context for these tokens; ask for fewer.")
        self._stack.callback(llama_cpp.llama_free, context)
        return context


class Context(Contender):
    """A context of llama.cpp; whatever was computed last, its first cells are the prefix.

    Args:
        shape: what is asked.
        context: of the C library.
        tokens: cached and new ones.
        vocabulary: how many logits there are.
        state: the file of the prefix's state, not yet there.
    """

    def __init__(
        self, shape: Shape, context: Any, tokens: Sequence[int], vocabulary: int, state: Path
    ) -> None:
        super().__init__(NAME, shape, KINDS)
        import llama_cpp

        self._c, self._context, self._state = llama_cpp, context, state
        self._memory = llama_cpp.llama_get_memory(context)
        self._vocabulary, self._held = vocabulary, False
        self._all = _array(tokens)
        self._cached, self._new = _array(tokens[: shape.cached]), _array(tokens[shape.cached :])
        self._next = _array([0])
        self._decode(self._next)  # brings all weights into memory

    def full(self) -> None:
        """Computes the whole prompt."""
        self._c.llama_memory_clear(self._memory, False)
        self._decode(self._all)
        self._held = True

    def rewind(self) -> None:
        """Leaves the prefix alone, and has its state in the file."""
        if not self._held:
            self._c.llama_memory_clear(self._memory, False)
            self._decode(self._cached)
            self._held = True
        if not self._c.llama_memory_seq_rm(self._memory, 0, self.shape.cached, -1):
            raise PromptCacheError("llama.cpp cannot take tokens off the end of its cache.")
        if not self._state.exists() and not self._c.llama_state_seq_save_file(
            self._context, str(self._state).encode(), 0, self._cached, len(self._cached)
        ):
            raise PromptCacheError(f"llama.cpp cannot write the state of {self.shape.cached} tokens.")

    def prefix(self) -> None:
        """Computes the new tokens after the prefix."""
        self._decode(self._new)

    def state_file(self) -> None:
        """Reads the state of the prefix from its file, and computes the new tokens."""
        self._c.llama_memory_clear(self._memory, False)
        count = ctypes.c_size_t()
        read = self._c.llama_state_seq_load_file(
            self._context,
            str(self._state).encode(),
            0,
            self._cached,
            len(self._cached),
            ctypes.byref(count),
        )
        if not read or count.value != self.shape.cached:
            raise PromptCacheError("llama.cpp cannot read the state that it wrote.")
        self._decode(self._new)

    def step(self) -> None:
        """Takes the likeliest token of the last logits, and computes the logits after it."""
        self._next[0] = self.likeliest()
        self._decode(self._next)

    def logits(self) -> Any:
        """The last logits: an array [vocabulary], valid until the next tokens are computed."""
        import numpy

        found = self._c.llama_get_logits_ith(self._context, -1)
        return numpy.ctypeslib.as_array(found, (self._vocabulary,))

    def _decode(self, tokens: Any) -> None:
        """Tokens after those that are held; logits of the last one."""
        if failed := self._c.llama_decode(self._context, self._c.llama_batch_get_one(tokens, len(tokens))):
            raise PromptCacheError(f"llama.cpp cannot compute {len(tokens)} tokens (its code: {failed}).")


class FasterOfTwo:
    """The same ways without flash attention and with it; each is timed as the faster one.

    Args:
        without: has it off.
        flash: has it on.
    """

    def __init__(self, without: Contender, flash: Contender) -> None:
        self.sides = {False: without, True: flash}
        self._chosen: dict[str, str] = {}

    def ways(self) -> list[Way]:
        """Everything it can do, named `llama.cpp:what`."""
        pairs = zip(*(side.ways() for side in self.sides.values()), strict=True)
        return [self._faster(*pair) for pair in pairs]

    def answer(self, tokens: int) -> Way:
        """`llama.cpp:answer` of so many tokens."""
        return self._faster(*(side.answer(tokens) for side in self.sides.values()))

    def settings(self) -> Mapping[str, str]:
        """With or without flash attention, by the name of each way that was run."""
        return dict(self._chosen)

    def _faster(self, without: Way, flash: Way) -> Way:
        def told(on: bool) -> None:
            self._chosen[without.name] = ATTENTION[on]

        return faster({False: without, True: flash}, told)


def faster(sides: Mapping[bool, Way], told: Callable[[bool], None]) -> Way:
    """Returns a way without flash attention or with it, whichever is faster when both run for the first time.

    Args:
        sides: of one name.
        told: of which it is, once it is known.
    """
    chosen: list[Way] = []

    def prepare() -> None:
        if chosen:
            chosen[0].prepare()

    def run() -> float:
        if chosen:
            return chosen[0].run()
        taken = {on: _settled(way) for on, way in sides.items()}
        on = min(taken, key=lambda side: taken[side])
        chosen.append(sides[on])
        told(on)
        return taken[on]

    return Way(sides[False].name, run, prepare)


def _settled(way: Way) -> float:
    """The least of three runs in milliseconds, or the first alone where that is long."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < _LONG_MS:
        way.prepare()
        times.append(way.run())
    return min(times)


_LONG_MS = 5000.0


def _written(path: Path, shape: Shape) -> int:
    """Writes the weights of a shape, which are in memory no longer; returns the vocabulary's size."""
    network = own_network(shape)
    write_gguf(path, network)
    return int(network.config.vocab_size)


def _array(tokens: Sequence[int]) -> Any:
    make: Callable[..., Any] = ctypes.c_int32 * len(tokens)
    return make(*tokens)


def version() -> str:
    """The version of llama.cpp, and what of the processor the library was built to use."""
    import llama_cpp

    told = bytes(llama_cpp.llama_print_system_info()).decode(errors="replace").partition(":")[2]
    parts = [part.partition("=") for part in told.split("|")]
    used = ", ".join(name.strip() for name, _, value in parts if value.strip() == "1")
    return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')} ({used})"


def missing() -> str:
    """Why llama.cpp cannot be used here, and what installs it; "" where it can."""
    try:
        import gguf  # noqa: F401
        import llama_cpp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        return f"llama.cpp cannot be used here: {error}. Install it with {_INSTALL}."
    return ""
