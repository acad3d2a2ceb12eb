"""Loading a model by name: the bundled one, random weights, a local folder, or the Hugging Face hub.

Only safetensors are read and no code of a model is run. What cannot be used is refused in words, where the
configuration tells already before any weights are read.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import platformdirs
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from engine import random_models
from engine.errors import ModelError
from engine.fingerprint import fingerprint_folder
from engine.model import DTYPES, Model

log = logging.getLogger(__name__)

WEIGHT_FILES = (
    "*.safetensors",
    "*.json",
    "tokenizer.model",
    "*.tiktoken",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
)


def load(name: str = "demo", *, device: str = "auto", dtype: str = "auto") -> Model:
    """Loads a model by name.

    Args:
        name: "demo" (bundled), "random:SHAPE", a local folder, or a Hugging Face id.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16"; auto is the model's own on a GPU and for 1B parameters and
            more, else fp32, the faster one on most CPUs.

    Raises:
        ModelError: there is no such model, it cannot be read, or segments do not reproduce it.
    """
    where = _device(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use one of auto, {', '.join(DTYPES)}.")
    wanted = DTYPES.get(dtype)
    if name.startswith(random_models.PREFIX):
        network, tokenizer, fingerprint = random_models.build(name, wanted)
        return Model(name, network.to(where), tokenizer, fingerprint)
    folder = demo_folder() if name == "demo" else _folder(name)
    network, tokenizer = _read(name, folder, where, wanted)
    log.info("loaded %s from %s on %s", name, folder, where)
    memory = Path(platformdirs.user_cache_dir("prompt-cache-studio")) / "fingerprints.json"
    return Model(name, network, tokenizer, fingerprint_folder(folder, memory))


def demo_folder() -> Path:
    """Returns the folder of the bundled model."""
    import assets

    return Path(assets.__path__[0]) / "demo_model"


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise ModelError(f"device {device!r} is unknown; use auto, cpu or cuda.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device 'cuda' was asked for, but torch finds no GPU here; use --device cpu.")
    return torch.device(device)


def _folder(name: str) -> Path:
    """A local folder as it is; a Hugging Face id is downloaded into the hub's own cache."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(
                f"folder {name!r} holds no model: config.json is missing. Give the folder that "
                "save_pretrained wrote, with config.json, *.safetensors and the tokenizer's files."
            )
        return path
    if path.exists():
        raise ModelError(
            f"model {name!r} is a file; give the folder that holds config.json and *.safetensors."
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or (os.sep != "/" and os.sep in name):
        raise ModelError(
            f"there is no folder {name!r}. Check the path, or give a Hugging Face id (owner/name)."
        )
    return _download(name)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, allow_patterns=list(WEIGHT_FILES)))
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hugging Face hub has no model {name!r} that you may read. Check the id, or log in with "
            "`hf auth login` if it is private or gated."
        ) from error
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder nor a Hugging Face id (owner/name).") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"model {name!r} is not a folder here, and it could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}). Check the network, or give a local folder."
        ) from error


def _read(name: str, folder: Path, device: torch.device, dtype: torch.dtype | None) -> tuple[Any, Any]:
    quiet: Any = transformers_logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"model {name!r} has no *.safetensors in {folder}. Other weight formats can run code when they "
            "are read and are not opened; convert them with save_pretrained."
        )
    try:
        config = _config(name, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        own = getattr(config, "dtype", None) or torch.float32
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype or own,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation="eager",
        )
        small = sum(p.numel() for p in network.parameters()) < 1_000_000_000
        if dtype is None and device.type == "cpu" and (small or network.dtype == torch.float16):
            network = network.float() if small else network.bfloat16()
    except ModelError:
        raise
    except Exception as error:  # transformers raises many kinds; all mean that this folder is no usable model
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"model {name!r} cannot be loaded: {first_line} Models that need code of their own are not run; "
            "files that were cut short must be fetched again."
        ) from error
    return network.eval().to(device), tokenizer


def _config(name: str, folder: Path) -> Any:
    """The configuration of a model whose kind can be used.

    Raises:
        ModelError: it needs code of its own, is an encoder-decoder, or keeps a recurrent state.
    """
    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except ValueError as error:
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            raise ModelError(
                f"model {name!r} needs Python code from its folder, which is not run. Use a model that "
                "transformers itself knows."
            ) from error
        raise
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"model {name!r} is an encoder-decoder; only causal language models can be used.")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {name!r} ({kind}) is no causal language model, so it cannot continue a prompt. Use one "
            "that AutoModelForCausalLM loads."
        )
    if _keeps_state(config):
        raise ModelError(
            f"model {name!r} ({kind}) keeps a recurrent state in some of its layers. A state cannot be cut "
            "into segments that are read again elsewhere; use a model of attention layers only."
        )
    return config


def _keeps_state(config: Any) -> bool:
    """Whether layers carry a state from token to token that is no list of keys and values."""
    network: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    networks = network if isinstance(network, (list, tuple)) else (network,)
    layers = getattr(config.get_text_config(), "layer_types", None) or ()
    return any(getattr(one, "_is_stateful", False) for one in networks) or any(
        "attention" not in layer or "linear" in layer for layer in layers
    )
