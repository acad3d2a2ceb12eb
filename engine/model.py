"""Models: loading, identity, and what a probe finds out about them.

With `attention.py` the only file that knows transformers. Knows nothing about schemas or stores.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from engine import attention, random_models
from engine.attention import KeyValues, Rotary, Scratch
from engine.chat import ChatFormat
from engine.errors import ModelError
from engine.fingerprint import fingerprint_folder
from engine.segment import Placement, Segment

log = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WEIGHT_FILES = (
    "*.safetensors",
    "*.json",
    "tokenizer.model",
    "*.tiktoken",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
)


@dataclass(frozen=True)
class Probe:
    """What a dozen tokens showed about a model.

    Attributes:
        path: "segments", the only one there is.
        relocatable: a segment encoded at one place is read correctly at another.
        rotary: "half" or "interleaved", the style that fits.
        checks: name → greatest difference to the model's own logits, in units of their spread.
    """

    path: str
    relocatable: bool
    rotary: str
    checks: dict[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        worst = max(self.checks.values(), default=0.0)
        return (
            f"Attention over segments reproduces this model (greatest difference {worst:.1e} of the "
            f"spread of its logits); segments may stand anywhere ({self.rotary} rotary embedding)."
        )

    def to_json(self) -> dict[str, object]:
        """Returns the fields by name, and the summary."""
        return {
            "path": self.path,
            "relocatable": self.relocatable,
            "rotary": self.rotary,
            "checks": self.checks,
            "summary": self.summary,
        }


def context_length(config: Any) -> int:
    """Returns how many tokens a prompt and its answer may have together.

    Beyond a sliding window, or where a rotary embedding changes its frequencies, attention over segments
    would differ from the model's own, so the length ends there.
    """
    lengths = [int(getattr(config, "max_position_embeddings", 0) or 0) or 1 << 20]
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        lengths.append(int(window))
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        lengths.append(int(original or lengths[0]))
    return min(lengths)


class Model:
    """A causal language model with its tokenizer, ready for attention over segments.

    Args:
        name: as the user wrote it.
        network: of transformers, in evaluation mode.
        tokenizer: of transformers.
        fingerprint: digest of weights, config and tokenizer.

    Raises:
        ModelError: the probe finds that segments do not reproduce the model.
    """

    def __init__(self, name: str, network: Any, tokenizer: Any, fingerprint: str) -> None:
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.fingerprint = fingerprint
        self.config = network.config.get_text_config()
        self.family: str = network.config.model_type
        self.layers: int = self.config.num_hidden_layers
        self.context_length = context_length(self.config)
        self.chat = ChatFormat(tokenizer)
        self.scratch = Scratch()
        attention.register()
        self.rotary: Rotary | None = None
        self.probe = probe(self)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the weights, and so of keys and values."""
        dtype: torch.dtype = self.network.dtype
        return dtype

    @property
    def dtype(self) -> str:
        """Its short name: fp32, bf16 or fp16."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.torch_dtype)

    @property
    def device(self) -> str:
        """Where the model runs."""
        return str(self.network.device)

    @property
    def kv_shape(self) -> tuple[int, int]:
        """KV heads and head dimension."""
        heads = getattr(self.config, "num_key_value_heads", None) or self.config.num_attention_heads
        size = (
            getattr(self.config, "head_dim", None)
            or self.config.hidden_size // self.config.num_attention_heads
        )
        return int(heads), int(size)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes (paper, section 5.5)."""
        heads, size = self.kv_shape
        return 2 * self.layers * heads * size * self.torch_dtype.itemsize

    @property
    def stand_in(self) -> int:
        """The token that fills a parameter's slot: `<unk>`, else the model's best stand-in."""
        for token in (self.tokenizer.unk_token_id, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        configured = self.network.generation_config.eos_token_id
        tokens = configured if isinstance(configured, list) else [configured]
        return frozenset(t for t in (*tokens, self.tokenizer.eos_token_id) if t is not None)

    def tokenize(self, text: str) -> list[int]:
        """Tokenizes text of an author, in which the spelling of a special token is plain text."""
        if not text:
            return []
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def key_values(self, placements: Sequence[Placement], capacity: int) -> KeyValues:
        """Returns what `capacity` new tokens may attend to, beginning with these placements."""
        return KeyValues(
            placements, rotary=self.rotary, layers=self.layers, capacity=capacity, scratch=self.scratch
        )

    @torch.inference_mode()
    def forward(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: KeyValues, keep: int = 1
    ) -> Tensor:
        """Runs new tokens through the network; their keys and values join the tail of `kv`.

        Args:
            token_ids: the new tokens.
            positions: ascending, one per token.
            kv: what they may attend to.
            keep: how many of the last tokens to return logits for.

        Returns:
            Logits [keep, vocabulary].
        """
        device = self.network.device
        kv.expect(positions)
        logits: Tensor = self.network(
            input_ids=torch.tensor([list(token_ids)], device=device),
            position_ids=torch.tensor([list(positions)], device=device),
            use_cache=False,
            logits_to_keep=keep,
            kv=kv,
        ).logits[0]
        kv.commit()
        return logits


def probe(model: Model) -> Probe:
    """Finds out by measurement whether segments reproduce a model, and sets its rotary embedding.

    Raises:
        ModelError: they do not; the message says what was found.
    """
    network = model.network
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(model.config.vocab_size)
    tokens = torch.randint(0, vocabulary, (12,), generator=generator).tolist()
    positions = list(range(len(tokens)))
    tolerance = 2e-3 if model.torch_dtype == torch.float32 else 0.15
    if getattr(model.config, "attn_logit_softcapping", None):
        raise ModelError(
            f"model {model.name!r} ({model.family}) caps its attention scores, which attention over segments "
            "does not do. Use a model of another family."
        )
    frequencies = _inverse_frequencies(network)
    if len(frequencies) != 1:
        found = "no rotary embedding" if not frequencies else "several rotary embeddings"
        raise ModelError(
            f"model {model.name!r} ({model.family}) has {found}, so its segments could not be moved "
            "from place to place. Use a model with one rotary embedding (Llama, Qwen, Mistral, Phi, "
            "GPT-NeoX, …)."
        )
    with torch.inference_mode(), _own_attention(network):
        own = network(
            input_ids=torch.tensor([tokens], device=network.device),
            position_ids=torch.tensor([positions], device=network.device),
            use_cache=False,
        ).logits[0]
    network.set_attn_implementation(attention.ATTENTION)
    spread = float(own.float().std()) or 1.0

    def difference(logits: Tensor, reference: Tensor) -> float:
        return float((logits.float() - reference.float()).abs().max()) / spread

    checks: dict[str, float] = {}
    for interleaved in (False, True):
        model.rotary = Rotary(frequencies[0], interleaved)
        try:
            checks = _probe_style(model, tokens, own, difference)
        except (TypeError, AttributeError, RuntimeError, IndexError, AssertionError) as error:
            raise ModelError(
                f"model {model.name!r} ({model.family}) does not take part in transformers' attention "
                f"interface as segments need it ({error}). Use a model of another family."
            ) from error
        if max(checks.values()) <= tolerance:
            return Probe("segments", True, "interleaved" if interleaved else "half", checks)
    worst = max(checks, key=lambda name: checks[name])
    raise ModelError(
        f"model {model.name!r} ({model.family}) is not reproduced by attention over segments: check "
        f"{worst!r} differs by {checks[worst]:.2g} of the spread of its logits (allowed {tolerance:g}). "
        "Use a model of another family."
    )


def _probe_style(model: Model, tokens: list[int], own: Tensor, difference: Any) -> dict[str, float]:
    """Compares with the model's own logits: one pass, a segment in its place, and one that was moved."""
    n, cut = len(tokens), 7
    whole = model.key_values((), n)
    plain = model.forward(tokens, range(n), whole, keep=n)
    first = model.key_values((), cut)
    model.forward(tokens[:cut], range(cut), first)
    in_place = _segment(tokens[:cut], first)
    rest = model.forward(
        tokens[cut:], range(cut, n), model.key_values([Placement(in_place, 0, cut, 0)], n - cut), keep=n - cut
    )
    # The same tokens encoded 5 places further on must be read there as if they stood at the beginning.
    moved_kv = model.key_values((), cut)
    model.forward(tokens[:cut], range(5, 5 + cut), moved_kv)
    at_five = Segment("probe", (-1,) * 5 + tuple(tokens[:cut]), *(_behind(5, t) for t in moved_kv.tail))
    moved = model.forward(
        tokens[cut:],
        range(cut, n),
        model.key_values([Placement(at_five, 5, 5 + cut, 0)], n - cut),
        keep=n - cut,
    )
    return {
        "one pass": difference(plain, own),
        "segment": difference(rest, own[cut:]),
        "moved segment": difference(moved, own[cut:]),
    }


def _segment(tokens: list[int], kv: KeyValues) -> Segment:
    keys, values = kv.tail
    return Segment("probe", tuple(tokens), keys, values)


def _behind(count: int, states: Tensor) -> Tensor:
    """Puts `count` empty tokens before states [layers, kv_heads, tokens, head_dim]."""
    return torch.cat([states.new_zeros(*states.shape[:2], count, states.shape[3]), states], 2)


def _inverse_frequencies(network: nn.Module) -> list[Tensor]:
    found: list[Tensor] = []
    for name, buffer in network.named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last.endswith("inv_freq") and not last.startswith("original"):
            frequency = buffer.detach().float()
            if not any(frequency.shape == f.shape and torch.equal(frequency, f) for f in found):
                found.append(frequency)
    return found


@contextlib.contextmanager
def _own_attention(network: Any) -> Iterator[None]:
    before = network.config._attn_implementation
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        network.set_attn_implementation(before)


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
    return Model(name, network, tokenizer, fingerprint_folder(folder))


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
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(
                f"model {name!r} is an encoder-decoder; only causal language models can be used."
            )
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
