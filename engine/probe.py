"""What a dozen tokens show about a model: which path reproduces it, and whether its segments can move.

Nothing is taken from a list of families. Both paths are compared with the model's own logits, and the
rotary embedding of every layer is the one that maps its keys at one place onto those at another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from engine.attention import DroppedError, KeyValues
from engine.errors import ModelError
from engine.rotary import Rotaries, Rotary
from engine.segment import Placement, Segment

if TYPE_CHECKING:
    from engine.model import Model

Path = Literal["segments", "dense"]
PATHS: tuple[Path, ...] = ("segments", "dense")
TOKENS = 12
SHIFT = 5
CUT = 7
LOGIT_TOLERANCE = {torch.float32: 2e-3}  # of the spread of the logits
KEY_TOLERANCE = {torch.float32: 2e-3}  # of the spread of a layer's keys
COARSE = 0.15  # for both, in bf16 and fp16


@dataclass(frozen=True)
class Probe:
    """What was measured on a model.

    Attributes:
        path: "segments" where attention reads them in place; "dense" for models with attention code of their
            own, for which they are copied into one buffer.
        relocatable: a segment encoded at one place is read correctly at another.
        positions: how the model knows positions, in words.
        checks: name → greatest difference to the model's own logits, in units of their spread.
        exact_up_to: more tokens than this would leave a window that cannot be applied; None for no limit.
    """

    path: Path
    relocatable: bool
    positions: str
    checks: dict[str, float] = field(default_factory=dict)
    exact_up_to: int | None = None

    @property
    def summary(self) -> str:
        """The result in two or three sentences."""
        how = (
            "Attention over segments reproduces"
            if self.path == "segments"
            else "Segments copied into a dense cache reproduce"
        )
        worst = max(self.checks.values(), default=0.0)
        where = (
            "segments may stand anywhere"
            if self.relocatable
            else "segments cannot be moved, so prompts are laid out at the schema's own positions"
        )
        limit = (
            f" It is exact up to {self.exact_up_to} tokens, the window of some of its layers."
            if self.exact_up_to
            else ""
        )
        return (
            f"{how} this model (greatest difference {worst:.1e} of the spread of its logits). Its positions "
            f"are {self.positions}; {where}.{limit}"
        )

    def to_json(self) -> dict[str, object]:
        """Returns the fields by name, and the summary."""
        return {**asdict(self), "summary": self.summary}


class _UnfitError(Exception):
    """A path does not reproduce the model; the message says what was found."""


def context_length(config: Any, found: Probe) -> int:
    """Returns how many tokens a prompt and its answer may have together.

    Where a rotary embedding changes its frequencies with the length, the length ends before that.
    """
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    lengths = [next((int(v) for name in names if (v := getattr(config, name, None))), 1 << 20)]
    if found.exact_up_to:
        lengths.append(found.exact_up_to)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        lengths.append(int(original or lengths[0]))
    return min(lengths)


def probe(model: Model) -> Probe:
    """Finds the path that reproduces a model, and sets its rotary embeddings and the shape of its keys.

    Raises:
        ModelError: there is none; the message says what was found on each.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, int(model.config.vocab_size), (TOKENS,), generator=generator).tolist()
    own = _own_logits(model, tokens)
    found = []
    for path in PATHS:
        try:
            if path == "segments" and not model.network._can_set_attn_implementation():
                raise _UnfitError("the model has attention code of its own")
            model.take_path(path)
            try:
                return _try(model, tokens, own)
            except DroppedError:
                model.carry()
                return _try(model, tokens, own)
        except _UnfitError as error:
            found.append(f"{path}: {error}")
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError, AssertionError) as error:
            found.append(f"{path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    raise ModelError(
        f"model {model.name!r} ({model.family}) is reproduced neither by attention over segments nor by a "
        f"dense cache ({'; '.join(found)}). Use a model of another family."
    )


def _own_logits(model: Model, tokens: list[int]) -> Tensor:
    network = model.network
    inputs: dict[str, Any] = {"input_ids": torch.tensor([tokens], device=network.device)}
    with torch.inference_mode(), _own_attention(network):
        logits: Tensor = network(**inputs, use_cache=False).logits[0]
    return logits


def _try(model: Model, tokens: list[int], own: Tensor) -> Probe:
    """Measures one path.

    Raises:
        _UnfitError: it does not reproduce the model.
    """
    spread = float(own.float().std()) or 1.0
    tolerance = LOGIT_TOLERANCE.get(model.torch_dtype, COARSE)

    def check(name: str, logits: Tensor, reference: Tensor) -> None:
        checks[name] = float((logits.float() - reference.float()).abs().max()) / spread
        if not checks[name] <= tolerance:
            raise _UnfitError(f"check {name!r} differs by {checks[name]:.2g} of the spread of the logits")

    n, checks = len(tokens), dict[str, float]()
    model.rotaries = (None,) * model.layers
    whole = model.key_values((), n)
    logits = model.forward(tokens, range(n), whole, keep=n)
    windows = whole.windows if isinstance(whole, KeyValues) else {}
    if isinstance(whole, KeyValues) and len(windows) != model.layers:
        raise _UnfitError(f"{model.layers - len(windows)} of {model.layers} layers do not ask for attention")
    check("one pass", logits, own)
    keys, _ = whole.tail
    model.kv_shape = (keys.shape[1], keys.shape[3])
    shifted = model.key_values((), n)
    model.forward(tokens, range(SHIFT, SHIFT + n), shifted)
    rotaries = _fit(_candidates(model), keys, shifted.tail[0])
    relocatable = rotaries is not None
    model.rotaries = rotaries or model.rotaries
    check("segment between new tokens", *_between(model, tokens, own))
    if relocatable:
        check("moved segment", *_moved(model, tokens, own))
    positions = _in_words(model.rotaries) if relocatable else "absolute (learned)"
    return Probe(model.path, relocatable, positions, checks, _limit(model.config, windows, model.layers))


def _between(model: Model, tokens: list[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Reads a segment in its own place, with new tokens before and behind it."""
    lo, n = CUT - 4, len(tokens)
    kv = model.key_values((), CUT)
    model.forward(tokens[:CUT], range(CUT), kv)
    keys, values = kv.tail
    segment = Segment("probe", tuple(tokens[:CUT]), keys, values)
    rows = [*range(lo), *range(CUT, n)]
    read = model.key_values([Placement(segment, lo, CUT, lo)], len(rows))
    return model.forward([tokens[row] for row in rows], rows, read, keep=len(rows)), own[rows]


def _moved(model: Model, tokens: list[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Encodes tokens some places further on, and reads them at the beginning."""
    n = len(tokens)
    kv = model.key_values((), CUT)
    model.forward(tokens[:CUT], range(SHIFT, SHIFT + CUT), kv)
    ids = (-1,) * SHIFT + tuple(tokens[:CUT])
    segment = Segment("probe", ids, *(_behind(SHIFT, states) for states in kv.tail))
    read = model.key_values([Placement(segment, SHIFT, SHIFT + CUT, 0)], n - CUT)
    return model.forward(tokens[CUT:], range(CUT, n), read, keep=n - CUT), own[CUT:]


def _behind(count: int, states: Tensor) -> Tensor:
    """Puts `count` empty tokens before states [layers, kv_heads, tokens, head_dim]."""
    return torch.cat([states.new_zeros(*states.shape[:2], count, states.shape[3]), states], 2)


def _fit(candidates: list[Rotary | None], keys: Tensor, shifted: Tensor) -> Rotaries | None:
    """For each layer what maps its keys onto those `SHIFT` positions further on; None where nothing does."""
    tolerance = KEY_TOLERANCE.get(keys.dtype, COARSE)
    found: list[Rotary | None] = []
    for here, there in zip(keys, shifted, strict=True):
        spread = float(here.float().std()) or 1.0
        misses = []
        for rotary in candidates:
            moved = rotary.moved(here, SHIFT) if rotary else here
            misses.append(float((moved.float() - there.float()).abs().max()) / spread)
        best = min(range(len(misses)), key=misses.__getitem__)
        if not misses[best] <= tolerance:
            return None
        found.append(candidates[best])
    return tuple(found)


def _candidates(model: Model) -> list[Rotary | None]:
    """No rotation, and both styles of every set of frequencies that the model holds or its config implies."""
    size, config = model.kv_shape[1], model.config
    frequencies: list[Tensor] = []
    for name, buffer in model.network.named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last.endswith("inv_freq") and "original" not in last:
            frequencies.append(buffer.detach().float().flatten())
    if not frequencies:  # tables of sines, as in GPT-J
        base = float(getattr(config, "rotary_emb_base", None) or getattr(config, "rope_theta", None) or 1e4)
        device = model.network.device
        dims = {int(getattr(config, "rotary_dim", None) or size), size}
        frequencies = [base ** (-torch.arange(0, dim, 2, device=device) / dim) for dim in sorted(dims)]
    found: list[Rotary | None] = [None]
    kept: list[Tensor] = []
    for frequency in frequencies:
        if 2 * frequency.numel() > size or any(torch.equal(frequency, other) for other in kept):
            continue
        kept.append(frequency)
        found += [Rotary(frequency, False), Rotary(frequency, True)]
    return found


def _in_words(rotaries: Rotaries) -> str:
    rotated = [rotary for rotary in rotaries if rotary is not None]
    if not rotated:
        return "relative, by a bias of the scores (ALiBi)"
    style = "interleaved" if rotated[0].interleaved else "half"
    if len(rotated) < len(rotaries):
        return f"rotary ({style}) in {len(rotated)} of {len(rotaries)} layers"
    kinds = len({id(rotary) for rotary in rotated})
    return f"rotary ({style})" if kinds == 1 else f"rotary ({style}, {kinds} sets of frequencies)"


def _limit(config: Any, applied: dict[int, int | None], layers: int) -> int | None:
    """The smallest window that the configuration declares and attention was not asked to apply."""
    kinds = getattr(config, "layer_types", None)
    sliding = getattr(config, "sliding_window", None)
    chunk = getattr(config, "attention_chunk_size", None)
    local = getattr(config, "window_size", None)  # GPT-Neo
    kinds = kinds or getattr(config, "attention_layers", None)
    if not getattr(config, "use_sliding_window", True):
        sliding = None
    limits = []
    for layer in range(layers):
        kind = kinds[layer] if kinds else "sliding_attention"
        declared = {"sliding_attention": sliding, "chunked_attention": chunk, "local": local}.get(kind)
        if declared and applied.get(layer) != declared:
            limits.append(int(declared))
    return min(limits, default=None)


@contextlib.contextmanager
def _own_attention(network: Any) -> Iterator[None]:
    if not network._can_set_attn_implementation():
        yield
        return
    before = network.config._attn_implementation
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        network.set_attn_implementation(before)
