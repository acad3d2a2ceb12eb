"""Loading a model by name: the bundled one, random weights, a local folder, or the Hugging Face hub.

Only safetensors and GGUF are read, into memory of our own, and no code of a model is run. What cannot be used
is refused in words, where the configuration tells already before any weights are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.generation.configuration_utils import GenerationConfig
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.utils import logging as transformers_logging

from engine.base.choices import QUANTIZATIONS, RANDOM, Quantize, Weights
from engine.base.errors import ModelError
from engine.checkpoint import hub
from engine.checkpoint import synthetic as random_models
from engine.checkpoint.checkpoint import DEMO_FOLDER, Checkpoint, Signature
from engine.checkpoint.configuration import OWN_ATTENTION, network_class, read_configuration, usable
from engine.checkpoint.fetching import get
from engine.checkpoint.fingerprint import Progress, fingerprint, quantized_fingerprint
from engine.checkpoint.load_report import require_experts, require_whole
from engine.checkpoint.model_catalogue import CATALOGUE
from engine.checkpoint.weight_files import WeightFiles, listed
from engine.checkpoint.weight_files import Weights as StoredWeights
from engine.files.places import user_cache
from engine.gguf.model import GgufModel
from engine.model.devices import candidates, first_that_holds, held_format
from engine.model.model import DTYPES, Model
from engine.model.model_files import stored
from engine.model.probe_cache import Memory
from engine.model.thread_pool import release_thread_pool
from engine.prompt.template.tokenizer import Tokenizer
from engine.quantize.packed_weights import pack_weights
from engine.quantize.quantized_weights import quantize_weights, require_quantizable

log = logging.getLogger(__name__)

_ATTEMPTS = 2
_DRAWS = frozenset({"normal_", "uniform_"})
T = TypeVar("T")


def load(
    name: str = "demo",
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    progress: Progress | None = None,
) -> Model:
    """Loads a model by name.

    Args:
        name: "demo" (bundled), "random:SHAPE", a local folder or GGUF file, or a Hugging Face id, of a GGUF
            file there with ":" and its name.
        device: "auto", "cpu", "cuda" or "mps"; auto is a GPU where there is one, else that of a Mac if the
            probe holds on it, else the CPU.
        dtype: "auto", "fp32", "bf16" or "fp16"; auto is the model's own on a GPU. On the CPU it is fp32
            below 1B parameters and where bf16 is slow and there is room; else the model's own.
        weights: "plain", "packed" for the processor, or "auto": packed where they win when they are measured.
        quantize: "int8" or "int4" to round weights, which are then computed with in bf16 on the processor.
        progress: called with (bytes done, bytes in all, what) while files are fetched, large ones are read
            for the first time, and weights are loaded.

    Raises:
        ModelError: there is no such model, it cannot be read, or segments do not reproduce it; it
            cannot be quantized, or not on this device or in this number format.
    """
    devices = candidates(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use one of auto, {', '.join(DTYPES)}.")
    if quantize not in QUANTIZATIONS:
        raise ModelError(f"quantize {quantize!r} is unknown; use one of {', '.join(QUANTIZATIONS)}.")
    wanted = DTYPES.get(dtype)
    if quantize != "none":
        require_quantizable(quantize, devices[0], dtype)
        wanted = torch.bfloat16
    if name.startswith(RANDOM):
        network, tokenizer, identity = random_models.build(name, wanted)
        model = _probed(name, network, tokenizer, identity, devices, network.dtype, quantize)
    else:
        folder = DEMO_FOLDER if name == "demo" else _folder(name, progress)
        quiet: Any = transformers_logging
        quiet.set_verbosity_error()
        quiet.disable_progress_bar()
        model = _load_folder(name, folder, devices, wanted, quantize, progress)
        log.info("loaded %s from %s on %s", name, folder, model.device)
        for note in model.notes:
            log.warning("%s", note)
    pack_weights(model.network.module, weights)
    release_thread_pool()  # its answers may be computed by other threads
    return model


def load_tokenizer(name: str = "demo") -> Tokenizer:
    """Loads the tokenizer of a model, and no weights.

    Args:
        name: as for `load`.

    Raises:
        ModelError: there is no such model, or its tokenizer cannot be read.
    """
    if name.startswith(RANDOM):
        return Tokenizer(random_models.byte_tokenizer())
    folder = DEMO_FOLDER if name == "demo" else _folder(name)
    checkpoint = Checkpoint.of(name, folder)
    if checkpoint.gguf:
        return Tokenizer(guarded(name, lambda: GgufModel(name, checkpoint.paths).tokenizer))
    return Tokenizer(guarded(name, lambda: _tokenizer(folder)))


def _tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _probed(
    name: str,
    network: Any,
    tokenizer: Any,
    found: str,
    devices: Sequence[torch.device],
    dtype: torch.dtype | None,
    quantize: Quantize,
) -> Model:
    """The model on the first device on which its probe holds, its weights rounded before that."""
    if quantize != "none":
        quantize_weights(name, network, quantize)
    memory = Memory(user_cache() / "probes.json")
    own = quantized_fingerprint(found, quantize)
    return first_that_holds(name, network, tokenizer, own, devices, dtype, memory)


def _folder(name: str, progress: Progress | None = None) -> Path:
    """A local folder or file as it is; a Hugging Face id is downloaded into the hub's own cache."""
    return hub.local_files(name) or (get if name in CATALOGUE else hub.fetch)(name, progress)


def _load_folder(
    name: str,
    folder: Path,
    devices: Sequence[torch.device],
    dtype: torch.dtype | None,
    quantize: Quantize,
    progress: Progress | None,
) -> Model:
    """Reads files that must not change meanwhile: what is computed is stored under their digest.

    Raises:
        ModelError: it is no usable model, it cannot be quantized, or its files changed twice while they were
            read.
    """
    digests = user_cache() / "fingerprints.json"
    for attempt in range(_ATTEMPTS):
        checkpoint = Checkpoint.of(name, folder)
        before = checkpoint.signature(name)
        try:
            files = guarded(name, partial(GgufModel, name, checkpoint.paths)) if checkpoint.gguf else None
            if files is not None:
                files.require_roundable(quantize)
            config = guarded(name, partial(_configuration, name, folder, files))
            found = fingerprint(checkpoint, digests, progress)
            reading = (
                partial(read_checkpoint, name, checkpoint, config, dtype, progress)
                if files is None
                else partial(read_gguf, name, files, config, devices[0], dtype, progress)
            )
            network, tokenizer, notes = guarded(name, reading)
        except ModelError:
            if attempt + 1 == _ATTEMPTS or _unchanged(name, checkpoint, before):
                raise
            continue
        except OSError as error:
            raise ModelError(
                f"model {name!r}: {error.filename!r} cannot be read: {error.strerror}."
            ) from error
        if _unchanged(name, checkpoint, before, found):
            held = dtype if files is None else network.dtype
            model = _probed(name, network, tokenizer, found, devices, held, quantize)
            model.stored = stored(name, checkpoint, files)
            model.notes = (*notes, *model.notes)
            return model
        log.info("files of %s changed while they were read", name)
    raise ModelError(
        f"files of model {name!r} in {folder} change while they are read. Wait until whatever writes them is "
        "done, and load the model again."
    )


def _configuration(name: str, folder: Path, files: GgufModel | None) -> Any:
    return read_configuration(name, folder) if files is None else usable(name, files.configuration)


def _unchanged(name: str, checkpoint: Checkpoint, before: Signature, found: str | None = None) -> bool:
    """Whether the files are still the same: by their stamps, or by their bytes where those say too little.

    A stamp says too little where it is so new that a change may bear it too, and where device, inode and time
    of entry change by themselves, as on some network folders.
    """
    try:
        again = Checkpoint.of(name, checkpoint.place)
        after = again.signature(name)
        if again != checkpoint or after.contents != before.contents:
            return False
        if after.stamps == before.stamps and (before.settled or found is None):
            return True
        return found is not None and fingerprint(again) == found
    except (ModelError, OSError):
        return False


def guarded(name: str, read: Callable[[], T]) -> T:
    """Returns what is read of a model's files.

    Raises:
        ModelError: in the place of whatever transformers raises.
    """
    try:
        return read()
    except ModelError:
        raise
    except Exception as error:  # transformers raises many kinds; all mean that this folder is no usable model
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, KeyError):
            first_line = f"{first_line} is missing in its files, or transformers does not know it."
        raise ModelError(
            f"model {name!r} cannot be loaded: {first_line} Models that need code of their own are not run; "
            "files that were cut short must be fetched again."
        ) from error


def read_checkpoint(
    name: str,
    checkpoint: Checkpoint,
    config: Any,
    dtype: torch.dtype | None,
    progress: Progress | None = None,
) -> tuple[Any, Any, tuple[str, ...]]:
    """The network of a folder, the tokenizer, and what was left out and changes no answer, in words.

    Weights are read, not mapped: a file that is overwritten later must not change a model that is running.
    """
    folder = checkpoint.folder
    tokenizer = _tokenizer(folder)
    with ExitStack() as files:
        weights = WeightFiles(name, checkpoint, files, _told(name, progress))
        require_experts(name, weights.tensors)
        network, notes = _filled(name, config, weights, dtype)
    if (folder / "generation_config.json").is_file():
        network.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return network.eval(), tokenizer, (*notes, *_other_files(name, checkpoint))


def read_gguf(
    name: str,
    model: GgufModel,
    config: Any,
    device: torch.device,
    dtype: torch.dtype | None,
    progress: Progress | None = None,
) -> tuple[Any, Any, tuple[str, ...]]:
    """The network of GGUF files, the tokenizer, and what of the files was left out, in words.

    Blocks of four bits stay as they are where the processor computes with them.
    """
    tokenizer = model.tokenizer
    held = held_format(dtype, device, config.dtype, model.parameters, model.in_four_bits)
    weights = model.tensors(_told(name, progress))
    if model.keeps_blocks(device, held):
        weights.keep()
    network, notes = _filled(name, config, weights, held)
    with torch.inference_mode():
        weights.keep_blocks(network)
    network.generation_config = model.generation
    return network.eval(), tokenizer, (*model.notes, *notes)


def _told(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(done, total, f"loading {name}")


def _filled(
    name: str, config: Any, weights: StoredWeights, dtype: torch.dtype | None
) -> tuple[Any, tuple[str, ...]]:
    """The network with its weights, and what of these was left out, in words."""
    made, own_config = network_class(config)
    with Unfilled():
        network, found = made.from_pretrained(
            None,
            config=own_config,
            state_dict=dict(weights.tensors),
            dtype=dtype or getattr(own_config, "dtype", None) or torch.float32,
            attn_implementation=OWN_ATTENTION,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are refused by name
            output_loading_info=True,
        )
    return network, require_whole(name, network, config, found, weights, _targets(network, weights))


def _targets(network: Any, weights: StoredWeights) -> Iterator[tuple[str, str]]:
    """The names of tensors that were read, with the one weight that transformers makes of each.

    Of tensors that are put together, as those of experts, the first one stands for all.
    """
    changes = get_model_conversion_mapping(network)
    renamed = [one for one in changes if isinstance(one, WeightRenaming)]
    made = [one for one in changes if isinstance(one, WeightConverter)]
    prefix, own, together = network.base_model_prefix, network.state_dict(), set[str]()
    for key in (key for key, one in weights.tensors.items() if one.was_read):
        target, pattern = rename_source_key(key, renamed, made, prefix, own)
        if target not in own and key in own:
            target, pattern = key, None
        if pattern is None or target not in together:
            yield key, target
        if pattern is not None:
            together.add(target)


def _other_files(name: str, checkpoint: Checkpoint) -> tuple[str, ...]:
    others = checkpoint.others
    if not others:
        return ()
    return (
        f"the weights of model {name!r} are those of {listed(checkpoint.weights)}; {listed(others)} in the "
        f"same folder {'is' if len(others) == 1 else 'are'} not read. Remove the files that you do not mean",
    )


class Unfilled(TorchFunctionMode):
    """Spares the building of a network what torch computes of tensors without memory, in Python.

    For that it loads an algebra system, which takes longer than to read a small model. Random numbers that
    weights replace are not drawn. Ranges, of which tables are made, are real ones, until they meet what has
    no memory.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        if name in _DRAWS:
            drawn: Tensor = given["tensor"] if "tensor" in given else args[0]
            if drawn.is_meta:
                return drawn
        if name == "arange" and str(given.get("device")) == "meta":
            given = {**given, "device": "cpu"}
        try:
            return func(*args, **given)
        except RuntimeError:  # transformers computes such a table again behind the weights
            found = [one.is_meta for one in tree_leaves((args, given)) if isinstance(one, Tensor)]
            if len(set(found)) < 2:
                raise
            args, given = tree_map_only(Tensor, lambda one: one.to("meta"), (args, given))
            return func(*args, **given)
