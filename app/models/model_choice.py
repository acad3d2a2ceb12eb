"""The requested model and its options, and the description of a loaded model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from typing_extensions import TypedDict

from engine.base.choices import Quantize, Weights

if TYPE_CHECKING:
    from app.models.model_fit import Fit
    from engine.model.model import Model
    from engine.model.model_files import Stored
    from engine.model.model_info import Look

BUNDLED = "demo"
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_ALIKE = 1.25  # ratio to the size of the files


def plain_name(given: str) -> str:
    """Returns a model's name without blanks and quotes, and a file:// address as a path."""
    name = given.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1].strip()
    address = urlsplit(name)
    return url2pathname(address.path) if address.scheme.lower() == "file" else name


@dataclass(frozen=True)
class ModelChoice:
    """A requested model."""

    name: str = BUNDLED  # "demo", "random:SHAPE", a folder, or a Hugging Face id
    device: str = "auto"  # `auto`, `cpu`, `cuda` or `mps`
    dtype: str = "auto"  # `auto`, `fp32`, `bf16` or `fp16`
    weights: Weights = "auto"  # `auto`, `packed` or `plain`
    quantize: Quantize = "none"  # `none`, `int8` or `int4`

    @property
    def options(self) -> dict[str, Any]:
        """Returns the arguments of `Engine.open` other than the name."""
        options = asdict(self)
        del options["name"]
        return options

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any]) -> ModelChoice:
        """Returns the model part of arguments of `Engine.open`."""
        return cls(name, **{key: given[key] for key in cls().options if key in given})


class ModelDetails(TypedDict):
    """A loaded model: its properties, location, probe results and notes."""

    model: str
    family: str
    positions: str
    path: str
    relocatable: bool
    exact_up_to: int | None
    checks: dict[str, float]
    summary: str
    apart: str
    notes: list[str]
    context_length: int
    layers: int
    heads: int
    head_size: int
    bytes_per_token: int
    parameters: int
    weight_bytes: int
    device: str
    dtype: str
    weights: str
    own_name: str
    format: str
    file_bytes: int
    why_larger: str
    fingerprint: str


def details(model: Model) -> ModelDetails:
    """Describes a loaded model."""
    from engine.inference.model_settings import without_effect
    from engine.quantize.memory_fit import weight_sizes

    probe, weights = model.probe, weight_sizes(model.network.module)
    return {
        "model": model.name,
        "family": model.family,
        "positions": probe.positions,
        "path": probe.path,
        "relocatable": probe.relocatable,
        "exact_up_to": probe.exact_up_to,
        "checks": dict(probe.checks),
        "summary": probe.summary,
        "apart": model.apart,
        "notes": [*model.notes, *filter(None, [without_effect(model)])],
        "context_length": model.context_length,
        "layers": model.layers,
        "heads": model.form.heads,
        "head_size": model.form.size,
        "bytes_per_token": model.bytes_per_token,
        "parameters": weights.count,
        "weight_bytes": weights.bytes,
        "device": model.device,
        "dtype": model.dtype,
        "weights": model.weights,
        "own_name": model.stored.name,
        "format": model.stored.format,
        "file_bytes": model.stored.bytes,
        "why_larger": why_larger(model.stored, weights.bytes, model.dtype, model.weights),
        "fingerprint": model.fingerprint,
    }


def why_larger(files: Stored, memory: int, dtype: str, weights: str) -> str:
    """Explains why weights have another size in memory than in their files; "" for similar sizes.

    Args:
        files: the model's files.
        memory: size of the weights in memory, in bytes.
        dtype: number format of the computation.
        weights: layout of the weights; see `Model.weights`.
    """
    if not files.bytes or files.bytes / _ALIKE < memory < files.bytes * _ALIKE:
        return ""
    if weights in ("int8", "int4"):
        return f"The weights are rounded to {weights} when the model is loaded."
    if weights == "four-bit":
        return f"Four-bit blocks stay unchanged; other numbers of the file become {dtype}."
    words = f"In memory each weight takes {BYTES[dtype]} bytes ({dtype})."
    if files.four_bits:
        return f"{words} In bf16 on the processor the file's four-bit blocks stay unchanged."
    return words


class KnownRow(TypedDict):
    """Size of one token in a well-known model, in fp16; `paper` has the megabytes of its table 2."""

    title: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    bytes_per_token: int
    unshared: int
    paper: float | None


def known_rows() -> list[KnownRow]:
    """Returns the paper's table 2 as computed, and later models."""
    from engine.checkpoint.kv_sizes import known_models

    return [
        {
            "title": model.title,
            "layers": model.sizes.layers,
            "heads": model.sizes.heads,
            "kv_heads": model.sizes.kv_heads,
            "head_size": model.sizes.size,
            "bytes_per_token": model.sizes.bytes_per_token(2),
            "unshared": model.sizes.unshared(2),
            "paper": model.paper,
        }
        for model in known_models()
    ]


class ModelLook(TypedDict):
    """A model before loading: its properties, sizes in bytes, and whether it fits."""

    kind: Literal["bundled", "random", "folder", "file", "hub"]
    family: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    context_length: int
    bytes_per_token: int
    device: str
    dtype: str
    weight_bytes: int
    format: str
    file_bytes: int
    why_larger: str
    working_bytes: int
    working_tokens: int
    fetch_bytes: int
    verdict: Literal["fits", "tight", "apart", "refused", "unknown"]
    needed: int
    free: int
    total: int


def look_json(look: Look, found: Fit) -> ModelLook:
    """Returns the JSON of a model before loading, for the page."""
    return {
        "kind": look.kind,
        "family": look.family,
        "parameters": look.parameters,
        "layers": look.sizes.layers,
        "heads": look.sizes.heads,
        "kv_heads": look.sizes.kv_heads,
        "head_size": look.sizes.size,
        "context_length": look.context_length,
        "bytes_per_token": look.bytes_per_token,
        "device": look.device,
        "dtype": look.dtype,
        "weight_bytes": look.weight_bytes,
        "format": look.stored.format,
        "file_bytes": look.stored.bytes,
        "why_larger": why_larger(look.stored, look.weight_bytes, look.dtype, look.weights),
        "working_bytes": look.working_bytes,
        "working_tokens": look.working_tokens,
        "fetch_bytes": look.fetch_bytes,
        "verdict": found.verdict,
        "needed": found.needed,
        "free": found.free,
        "total": found.total,
    }
