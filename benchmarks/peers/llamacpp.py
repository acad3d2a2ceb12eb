"""llama.cpp by the C functions of `llama-cpp-python`, with the weights of our model as GGUF.

The cache of keys and values is in fp16, and flash attention is automatic: the defaults of llama.cpp.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from app.studio.sweeps.drawn import drawn_tokens
from benchmarks.base.case import Size
from benchmarks.peers.gguf_file import write_gguf
from benchmarks.peers.peer import Contender, Opened, Peer, longest
from benchmarks.peers.torch_peers import own_network
from engine.base.errors import PromptCacheError

NAME = "llama.cpp"
KINDS = ("full", "prefix", "state_file", "decode")
_INSTALL = "pip install llama-cpp-python gguf (it is built from source, which takes ten minutes)"


def peer() -> Peer:
    """llama.cpp, present with the extra `peers`."""
    absent = missing()
    version = "" if absent else f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
    return Peer(NAME, version, absent, opened)


def missing() -> str:
    """Why llama.cpp cannot be used, and the command that installs it; "" if it can."""
    try:
        import gguf  # noqa: F401
        import llama_cpp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        return f"llama.cpp cannot be used here: {error}. Install it with {_INSTALL}."
    return ""


@contextlib.contextmanager
def opened(size: Size, cache_format: str = "F16") -> Iterator[Opened]:
    """Writes the weights to a temporary folder, and loads them."""
    if absent := missing():
        raise PromptCacheError(absent)
    import llama_cpp

    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        network = own_network(size)
        vocabulary = int(network.config.vocab_size)
        write_gguf(folder / "model.gguf", network)
        del network
        llama_cpp.llama_backend_init()
        given = llama_cpp.llama_model_default_params()
        given.n_gpu_layers = 0
        model = llama_cpp.llama_model_load_from_file(str(folder / "model.gguf").encode(), given)
        if not model:
            raise PromptCacheError("llama.cpp cannot load the weights that were written for it.")
        stack.callback(llama_cpp.llama_model_free, model)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch = longest(size), size.cached + size.new
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        params.type_k = params.type_v = getattr(llama_cpp, f"GGML_TYPE_{cache_format}")
        context = llama_cpp.llama_init_from_model(model, params)
        if not context:
            raise PromptCacheError("llama.cpp cannot make a context for these tokens; ask for fewer.")
        stack.callback(llama_cpp.llama_free, context)
        yield Context(size, context, vocabulary, folder / "state")


class Context(Contender):
    """A context of llama.cpp. Its first cells are always the prefix."""

    def __init__(self, size: Size, context: Any, vocabulary: int, state: Path) -> None:
        super().__init__(NAME, size, KINDS)
        import llama_cpp

        self._c, self._context, self._state = llama_cpp, context, str(state).encode()
        self._memory = llama_cpp.llama_get_memory(context)
        self._vocabulary, self._held = vocabulary, False
        tokens = drawn_tokens(vocabulary, size.cached + size.new, size.seed)
        self._all, self._next = _array(tokens), _array([0])
        self._cached, self._new = _array(tokens[: size.cached]), _array(tokens[size.cached :])
        self._decode(self._next)  # brings all weights into memory

    def full(self) -> None:
        self._c.llama_memory_clear(self._memory, False)
        self._decode(self._all)
        self._held = True

    def rewind(self) -> None:
        """Leaves only the prefix in memory, with its state in the file."""
        if not self._held:
            self._c.llama_memory_clear(self._memory, False)
            self._decode(self._cached)
            self._held = True
        given = (self._context, self._state, 0, self._cached, len(self._cached))
        if not self._c.llama_memory_seq_rm(self._memory, 0, self.size.cached, -1):
            raise PromptCacheError("llama.cpp cannot take tokens off the end of its cache.")
        if not Path(self._state.decode()).exists() and not self._c.llama_state_seq_save_file(*given):
            raise PromptCacheError(f"llama.cpp cannot write the state of {self.size.cached} tokens.")

    def prefix(self) -> None:
        self._decode(self._new)

    def state_file(self) -> None:
        self._c.llama_memory_clear(self._memory, False)
        count = ctypes.c_size_t()
        given = (self._context, self._state, 0, self._cached, len(self._cached), ctypes.byref(count))
        if not self._c.llama_state_seq_load_file(*given) or count.value != self.size.cached:
            raise PromptCacheError("llama.cpp cannot read the state that it wrote.")
        self._decode(self._new)

    def step(self) -> None:
        self._next[0] = self.likeliest()
        self._decode(self._next)

    def logits(self) -> Any:
        import numpy

        found = self._c.llama_get_logits_ith(self._context, -1)
        return numpy.ctypeslib.as_array(found, (self._vocabulary,))

    def _decode(self, tokens: Any) -> None:
        if failed := self._c.llama_decode(self._context, self._c.llama_batch_get_one(tokens, len(tokens))):
            raise PromptCacheError(f"llama.cpp cannot compute {len(tokens)} tokens (its code: {failed}).")


def _array(tokens: Sequence[int]) -> Any:
    make: Callable[..., Any] = ctypes.c_int32 * len(tokens)
    return make(*tokens)
