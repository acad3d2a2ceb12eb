"""Which model is wanted and how it is held, and what a loaded one is: for the command line and the page."""

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
_ALIKE = 1.25  # times the size of the files


def plain_name(given: str) -> str:
    """Returns a model's name without blanks and quotes around it, and a file:// address as a path."""
    name = given.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1].strip()
    address = urlsplit(name)
    return url2pathname(address.path) if address.scheme.lower() == "file" else name


@dataclass(frozen=True)
class ModelChoice:
    """A model as it is asked for.

    Attributes:
        name: "demo", "random:SHAPE", a folder, or a Hugging Face id.
        device: `auto`, `cpu`, `cuda` or `mps`.
        dtype: `auto`, `fp32`, `bf16` or `fp16`.
        weights: `auto`, `packed` or `plain`.
        quantize: `none`, `int8` or `int4`.
    """

    name: str = BUNDLED
    device: str = "auto"
    dtype: str = "auto"
    weights: Weights = "auto"
    quantize: Quantize = "none"

    @property
    def options(self) -> dict[str, Any]:
        """All but the name, as `Engine.open` takes them."""
        found = asdict(self)
        del found["name"]
        return found

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any]) -> ModelChoice:
        """Takes what concerns the model of options of `Engine.open`."""
        return cls(name, **{one: given[one] for one in cls().options if one in given})


class ModelDetails(TypedDict):
    """A loaded model: what it is, where it lies, what the probe measured on it, and notes on its files."""

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
    """Returns what is known of a loaded model."""
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
    """Says why weights take another size in memory than in their files; "" where they take about the same.

    Args:
        files: the model's files.
        memory: bytes of the weights in memory.
        dtype: the number format that is computed in.
        weights: how they lie in memory; see `Model.weights`.
    """
    if not files.bytes or files.bytes / _ALIKE < memory < files.bytes * _ALIKE:
        return ""
    if weights in ("int8", "int4"):
        return f"The weights are rounded to {weights} when the model is loaded."
    if weights == "four-bit":
        return f"The blocks of four bits stay as they are; other numbers of the file become {dtype}."
    words = f"In memory each weight is a number of {BYTES[dtype]} bytes ({dtype})."
    if files.four_bits:
        return f"{words} In bf16 on the processor the file's blocks of four bits stay as they are."
    return words


class KnownRow(TypedDict):
    """What one token takes in a well-known model, in fp16; `paper` in megabytes, by its table 2."""

    title: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    bytes_per_token: int
    unshared: int
    paper: float | None


def known_rows() -> list[KnownRow]:
    """Returns the paper's table 2 as computed, and models that came after it."""
    from engine.checkpoint.kv_sizes import known_models

    return [
        {
            "title": one.title,
            "layers": one.sizes.layers,
            "heads": one.sizes.heads,
            "kv_heads": one.sizes.kv_heads,
            "head_size": one.sizes.size,
            "bytes_per_token": one.sizes.bytes_per_token(2),
            "unshared": one.sizes.unshared(2),
            "paper": one.paper,
        }
        for one in known_models()
    ]


class ModelLook(TypedDict):
    """A model before it is loaded: what it is, what it takes in bytes, and whether that fits."""

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
    """A model before it is loaded, for the page."""
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
