"""Reads a model's configuration, refuses unsupported kinds, and removes fields that run or fetch code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.auto.tokenization_auto import tokenizer_class_from_name
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.import_utils import DummyObject

from engine.base.errors import ModelError
from engine.checkpoint.generation_config import FILE as GENERATION

log = logging.getLogger(__name__)

OWN_ATTENTION = "eager"
"""The attention that a model uses by itself: transformers' own, in plain torch."""

_IMPLEMENTATIONS = ("_attn_implementation", "_experts_implementation")
_RUN_CODE = (
    *("auto_map", "custom_pipelines", "fusion_config", "use_kernels", "kernel_config", "allow_all_kernels"),
    *("distributed_config", "attn_implementation", "experts_implementation"),
)
"""Fields with which transformers imports, patches or downloads code, or that only such code reads."""
_QUANTIZED = ("quantization_config", "compression_config")
_NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def read_configuration(name: str, folder: Path) -> Any:
    """Returns the configuration in a folder, of a model of a supported kind.

    Raises:
        ModelError: it needs custom code, names a wrong tokenizer class, or fails as in `usable`.
    """
    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except ValueError as error:
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            raise ModelError(
                f"model {name!r} needs Python code from its folder, which is not supported. Use a model "
                "that transformers itself supports."
            ) from error
        raise
    _check_tokenizer(name, folder, config)
    _check_generation(name, folder)
    return usable(name, config)


def described(name: str, fields: Mapping[str, Any]) -> Any:
    """Returns the configuration with these fields, which include `model_type`; raises as `usable` does."""
    return usable(name, AutoConfig.for_model(**fields))


def usable(name: str, config: Any) -> Any:
    """Removes fields that would fetch or run code from a configuration, and returns it.

    Raises:
        ModelError: the model is an encoder-decoder, recurrent or quantized, or names other weights.
    """
    _check_kind(name, config)
    for part in _parts(config):
        _check_weights(name, part)
        _clear(name, part)
    return config


def network_class(config: Any) -> tuple[Any, Any]:
    """Returns transformers' class for a configuration, and the part of the configuration that it takes."""
    network: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if isinstance(network, (list, tuple)):
        by_name = {network_type.__name__: network_type for network_type in network}
        named = [network_type for network_type in config.architectures or () if network_type in by_name]
        network = by_name[named[0]] if named else network[0]
    text = config.sub_configs.get("text_config")
    return network, config.get_text_config() if text is not None and network.config_class is text else config


def _check_kind(name: str, config: Any) -> None:
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"model {name!r} is an encoder-decoder; only causal language models can be used.")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {name!r} ({kind}) is not a causal language model, so it cannot continue a prompt. Use "
            "one that AutoModelForCausalLM loads."
        )
    if _keeps_state(config):
        raise ModelError(
            f"model {name!r} ({kind}) has a recurrent state in some of its layers, which cannot be "
            "split into segments. Use a model with attention layers only."
        )


def _keeps_state(config: Any) -> bool:
    """Whether layers carry a state between tokens other than keys and values."""
    network: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    networks = network if isinstance(network, (list, tuple)) else (network,)
    layers = getattr(config.get_text_config(), "layer_types", None) or ()
    return any(getattr(network_type, "_is_stateful", False) for network_type in networks) or any(
        "attention" not in layer or "linear" in layer for layer in layers
    )


def _check_tokenizer(name: str, folder: Path, config: Any) -> None:
    """Refuses a `tokenizer_class` other than a tokenizer; transformers would load any class."""
    try:
        fields: Any = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        fields = None  # the tokenizer reports its own errors
    asked = fields.get("tokenizer_class") if isinstance(fields, dict) else None
    for class_name in (asked, getattr(config, "tokenizer_class", None)):
        named_class: Any = tokenizer_class_from_name(class_name) if isinstance(class_name, str) else None
        known = isinstance(named_class, type) and issubclass(named_class, PreTrainedTokenizerBase)
        if named_class is not None and not known and not isinstance(named_class, DummyObject):
            raise ModelError(
                f"model {name!r} names {class_name!r} as its tokenizer_class, which is not a tokenizer. "
                "Correct tokenizer_config.json and config.json, or fetch them again."
            )


def _check_generation(name: str, folder: Path) -> None:
    """Refuses a file that transformers cannot read, with a message that names it."""
    path = folder / GENERATION
    if not path.is_file():
        return
    try:
        fields: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        GenerationConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises many kinds for malformed values
        raise ModelError(
            f"{GENERATION} of model {name!r} cannot be read: {str(error).rstrip('.')}. Correct it, fetch it "
            "again, or delete it to use the defaults of this program."
        ) from error


def _parts(config: Any) -> Iterator[Any]:
    """Yields a configuration and all nested ones."""
    yield config
    for value in vars(config).values():
        for inner in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(inner, PreTrainedConfig):
                yield from _parts(inner)


def _check_weights(name: str, part: Any) -> None:
    numbers = getattr(part, "dtype", None)
    narrow = isinstance(numbers, torch.dtype) and numbers not in _NUMBERS
    if narrow or any(vars(part).get(field) is not None for field in _QUANTIZED):
        raise ModelError(
            f"the weights of model {name!r} are quantized in a format that needs extra code. "
            "Use the model in its plain form (bf16, fp16 or fp32)."
        )
    if vars(part).get("transformers_weights") is not None:
        raise ModelError(
            f"config.json of model {name!r} names other weights with transformers_weights, which is not "
            "supported. Save it with save_pretrained, or rename the file to model.safetensors and remove "
            "that line."
        )


def _clear(name: str, part: Any) -> None:
    asked = [field for field in _IMPLEMENTATIONS if getattr(part, field, None) is not None]
    part._attn_implementation = OWN_ATTENTION
    part._experts_implementation = None
    for field in _RUN_CODE:
        if field in vars(part):
            delattr(part, field)
            asked.append(field)
    if asked:
        log.info("config.json of %s: %s not followed", name, ", ".join(asked))
