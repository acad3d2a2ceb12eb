"""Loads a model by name: the bundled one, random weights, a local folder, or the Hugging Face hub.

Only safetensors and GGUF are read, into private memory, and no code of a model runs. Unusable models are
refused with a reason, before any weights are read if the configuration shows it.
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
        name: "demo" (bundled), "random:SHAPE", a local folder or GGUF file, or a Hugging Face id. A GGUF file
            of a repository is ID:FILE.
        device: "auto", "cpu", "cuda" or "mps"; auto is a GPU if there is one, else a Mac's GPU if the probe
            succeeds on it, else the CPU.
        dtype: "auto", "fp32", "bf16" or "fp16"; auto is the model's own on a GPU. On the CPU it is fp32 below
            1B parameters, or if bf16 is slow and there is enough memory; else the model's own.
        weights: "plain", "packed" for the processor, or "auto": packed if a measurement favours it.
        quantize: "int8" or "int4" to round weights; the processor then computes in bf16.
        progress: called with (bytes done, total bytes, label) during fetching, first reading and loading;
            (0, 0, label) before the probe and the measurement of packed weights.

    Raises:
        ModelError: the model does not exist, cannot be read, is not reproduced by segments, or cannot be
            quantized with this device or dtype.
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
    if progress is not None:
        progress(0, 0, f"measuring {name}")
    pack_weights(model.network.module, weights)
    release_thread_pool()  # other threads may compute its answers
    return model


def load_tokenizer(name: str = "demo") -> Tokenizer:
    """Loads the tokenizer of a model without its weights, by a name as for `load`.

    Raises:
        ModelError: the model does not exist, or its tokenizer cannot be read.
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
    """Rounds the weights and returns the model on the first device on which its probe succeeds."""
    if quantize != "none":
        quantize_weights(name, network, quantize)
    memory = Memory(user_cache() / "probes.json")
    own = quantized_fingerprint(found, quantize)
    return first_that_holds(name, network, tokenizer, own, devices, dtype, memory)


def _folder(name: str, progress: Progress | None = None) -> Path:
    """Returns a local folder or file, or downloads a Hugging Face id into the hub's own cache."""
    return hub.local_files(name) or (get if name in CATALOGUE else hub.fetch)(name, progress)


def _load_folder(
    name: str,
    folder: Path,
    devices: Sequence[torch.device],
    dtype: torch.dtype | None,
    quantize: Quantize,
    progress: Progress | None,
) -> Model:
    """Reads files and checks that they stay unchanged, because results are stored under their digest.

    Raises:
        ModelError: the model is unusable, cannot be quantized, or its files changed twice during reading.
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
            digest = fingerprint(checkpoint, digests, progress)
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
        if _unchanged(name, checkpoint, before, digest):
            loaded_dtype = dtype if files is None else network.dtype
            if progress is not None:
                progress(0, 0, f"probing {name}")
            model = _probed(name, network, tokenizer, digest, devices, loaded_dtype, quantize)
            model.stored = stored(name, checkpoint, files)
            model.notes = (*notes, *model.notes)
            return model
        log.info("files of %s changed while they were read", name)
    raise ModelError(
        f"files of model {name!r} in {folder} change during loading. Wait for the program that writes "
        "them, then load the model again."
    )


def _configuration(name: str, folder: Path, files: GgufModel | None) -> Any:
    return read_configuration(name, folder) if files is None else usable(name, files.configuration)


def _unchanged(name: str, checkpoint: Checkpoint, before: Signature, found: str | None = None) -> bool:
    """Whether the files are unchanged, by their stamps, or by their bytes if stamps are inconclusive.

    A stamp is inconclusive if it is so recent that a change could have the same one. Some network folders
    change device, inode and entry time without a change of the file.
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
    """Calls a reader of a model's files; turns any error of transformers into a ModelError."""
    try:
        return read()
    except ModelError:
        raise
    except Exception as error:  # transformers raises many kinds; all mean that the folder has no usable model
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, KeyError):
            first_line = f"{first_line} is missing in its files, or transformers does not support it."
        raise ModelError(
            f"model {name!r} cannot be loaded: {first_line} Models with custom code are not supported. "
            "Fetch incomplete files again."
        ) from error


def read_checkpoint(
    name: str,
    checkpoint: Checkpoint,
    config: Any,
    dtype: torch.dtype | None,
    progress: Progress | None = None,
) -> tuple[Any, Any, tuple[str, ...]]:
    """Returns the network of a folder, its tokenizer, and notes on parts that were left out.

    Weights are read, not mapped: overwriting a file must not change a running model.
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
    """Returns the same as `read_checkpoint` from GGUF files; four-bit blocks stay packed if possible."""
    tokenizer = model.tokenizer
    loaded_dtype = held_format(dtype, device, config.dtype, model.parameters, model.in_four_bits)
    weights = model.tensors(_told(name, progress))
    if model.keeps_blocks(device, loaded_dtype):
        weights.keep()
    network, notes = _filled(name, config, weights, loaded_dtype)
    with torch.inference_mode():
        weights.keep_blocks(network)
    network.generation_config = model.generation
    return network.eval(), tokenizer, (*model.notes, *notes)


def _told(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(done, total, f"loading {name}")


def _filled(
    name: str, config: Any, weights: StoredWeights, dtype: torch.dtype | None
) -> tuple[Any, tuple[str, ...]]:
    """Returns the network with its weights, and notes on weights that were left out."""
    made, own_config = network_class(config)
    with Unfilled():
        network, report = made.from_pretrained(
            None,
            config=own_config,
            state_dict=dict(weights.tensors),
            dtype=dtype or getattr(own_config, "dtype", None) or torch.float32,
            attn_implementation=OWN_ATTENTION,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are refused by name later
            output_loading_info=True,
        )
    return network, require_whole(name, network, config, report, weights, _targets(network, weights))


def _targets(network: Any, weights: StoredWeights) -> Iterator[tuple[str, str]]:
    """Yields the name of each tensor that was read, with its weight in transformers.

    If several tensors form one weight, like experts, the first stands for all.
    """
    changes = get_model_conversion_mapping(network)
    renamed = [change for change in changes if isinstance(change, WeightRenaming)]
    made = [change for change in changes if isinstance(change, WeightConverter)]
    prefix, own, together = network.base_model_prefix, network.state_dict(), set[str]()
    for key in (key for key, change in weights.tensors.items() if change.was_read):
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
    """Speeds up building a network without weights.

    torch computes with meta tensors in Python and loads an algebra system for it, which takes longer than
    reading a small model. This mode skips random initial weights. It makes ranges, the base of tables, real
    tensors until they meet meta tensors.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "")
        if name in _DRAWS:
            drawn: Tensor = options["tensor"] if "tensor" in options else args[0]
            if drawn.is_meta:
                return drawn
        if name == "arange" and str(options.get("device")) == "meta":
            options = {**options, "device": "cpu"}
        try:
            return func(*args, **options)
        except RuntimeError:  # transformers recomputes such a table after it loads the weights
            metas = [tensor.is_meta for tensor in tree_leaves((args, options)) if isinstance(tensor, Tensor)]
            if len(set(metas)) < 2:
                raise
            args, options = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, options))
            return func(*args, **options)
