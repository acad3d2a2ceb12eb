"""What a dozen tokens show about a model: which path reproduces it, whether its segments can move, how far.

Nothing is taken from a list of families. Both paths are compared with the model's own logits, and the
rotary embedding of every layer is the one that maps its keys at one place onto those at another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.model.attention import DroppedError, SegmentKVCache, UnfitError
from engine.model.reach import (
    SHORTEST,
    TYPICAL,
    Ruler,
    agree,
    declared_length,
    long_reach,
    network_code,
    own_logits,
    typical,
    unapplied,
)
from engine.model.rope import Rotaries, Rotary
from engine.segment import Placement, Segment

if TYPE_CHECKING:
    from engine.model.model import Model

AttentionPath = Literal["segments", "dense"]
ATTENTION_PATHS: tuple[AttentionPath, ...] = ("segments", "dense")
TOKENS = 12
SHIFT = 5
CUT = 7
FEW = 8  # rows that tables of positions have beyond the context
KEY_TOLERANCE = {torch.float32: 2e-3}  # of the spread of a layer's keys
MOVABLE = 1024  # tokens; segments that can move within less are rather kept in their places


@dataclass(frozen=True)
class Probe:
    """What was measured on a model.

    Attributes:
        path: "segments" where attention reads them in place; "dense" for models with attention code of their
            own, for which they are copied into one buffer.
        relocatable: a segment encoded at one place is read correctly at another.
        positions: how the model knows positions, in words.
        checks: name → greatest difference to the model's own logits, in units of their spread.
        exact_up_to: how many tokens are reproduced, where that is less than the context; else None.
        limit: what comes into effect beyond, in words.
    """

    path: AttentionPath
    relocatable: bool
    positions: str
    checks: dict[str, float] = field(default_factory=dict)
    exact_up_to: int | None = None
    limit: str = ""

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
            f" It is exact up to {self.exact_up_to} tokens, which bounds its context: {self.limit}."
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


def context_length(config: Any, found: Probe) -> int:
    """Returns how many tokens a prompt and its answer may have together: the declared, as far as exact."""
    declared = declared_length(config)
    return min(declared, found.exact_up_to or declared)


def probe(model: Model) -> Probe:
    """Finds the path that reproduces a model, and sets its rotary embeddings and the shape of its keys.

    Raises:
        ModelError: there is none; the message says what was found on each.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, int(model.config.vocab_size), (TOKENS,), generator=generator).tolist()
    found = []
    for path in ATTENTION_PATHS:
        try:
            own = own_logits(model, tokens)
            if path == "segments" and not model.network._can_set_attn_implementation():
                raise UnfitError("the model has attention code of its own")
            model.take_path(path)
            with network_code():
                try:
                    return _try(model, tokens, own)
                except DroppedError:
                    model.carry()
                    return _try(model, tokens, own)
        except UnfitError as error:
            found.append(f"{path}: {error}")
    raise ModelError(
        f"model {model.name!r} ({model.family}) is reproduced neither by attention over segments nor by a "
        f"dense cache ({'; '.join(found)}). Use a model of another family."
    )


def _try(model: Model, tokens: list[int], own: Tensor) -> Probe:
    """Measures one path.

    Raises:
        UnfitError: it does not reproduce the model.
    """
    spread = float(own.float().std()) or 1.0

    def check(name: str, logits: Tensor, reference: Tensor) -> None:
        checks[name] = float((logits.float() - reference.float()).abs().max()) / spread
        if not agree(logits, reference, spread):
            raise UnfitError(f"check {name!r} differs by {checks[name]:.2g} of the spread of the logits")

    n, checks = len(tokens), dict[str, float]()
    model.rotaries = (None,) * model.layers
    whole = model.key_values((), n)
    logits = model.forward(tokens, range(n), whole, keep=n)
    windows = whole.windows if isinstance(whole, SegmentKVCache) else {}
    if isinstance(whole, SegmentKVCache) and len(windows) != model.layers:
        raise UnfitError(f"{model.layers - len(windows)} of {model.layers} layers do not ask for attention")
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
    positions = _in_words(model.rotaries) if relocatable else _unmoved_in_words(model)
    length, limit = _bound(model, tokens, windows)
    seen = {window for window in windows.values() if window}
    names = [name for name, value in vars(model.config).items() if type(value) is int and value in seen]
    apart = model.path == "segments" and len({getattr(model.config, name) for name in names}) == len(seen)
    ruler = Ruler(model, tuple(tokens), spread, apart, tuple(names), relocatable)
    reach = ruler.reach(length)
    if reach < min(length, MOVABLE) and relocatable and apart:
        movable, model.rotaries = model.rotaries, (None,) * model.layers
        kept = replace(ruler, relocatable=False)
        farther = kept.reach(length)
        if farther > reach:
            ruler, reach, relocatable = kept, farther, False
            positions += ", and the attention of a token depends on where it stands"
        else:
            model.rotaries = movable
    if reach < min(length, SHORTEST):
        raise UnfitError(f"segments are exact for fewer than {SHORTEST} tokens")
    if reach < length:
        limit = "beyond, positions or the length of the prompt change how it attends"
    checks["at the end of the context"] = ruler.miss(reach)
    bound = reach if reach < declared_length(model.config) else None
    return Probe(model.path, relocatable, positions, checks, bound, limit if bound else "")


def _bound(model: Model, tokens: list[int], windows: dict[int, int | None]) -> tuple[int, str]:
    """How many tokens there may be before a rule begins that the path does not apply, and which."""
    length = declared_length(model.config)
    bounds = [(length, "")]
    window = _limit(model.config, windows, model.layers)
    if window:
        bounds.append((window, "the window of some of its layers"))
    for name, value in unapplied(model, tokens, length).items():
        bounds.append((value, f"beyond, its attention follows another rule ({name} in its configuration)"))
    long = long_reach(model, min(bounds)[0])
    if long is not None:
        bounds.append((long, "beyond, the number of tokens changes how it attends"))
    return min(bounds, key=lambda bound: bound[0])


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
    tolerance = KEY_TOLERANCE.get(keys.dtype, TYPICAL)
    found: list[Rotary | None] = []
    for here, there in zip(keys, shifted, strict=True):
        spread = float(here.float().std()) or 1.0
        misses = []
        for rotary in candidates:
            moved = rotary.shift(here, SHIFT) if rotary else here
            misses.append(typical(moved, there) / spread)
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
            frequencies.append(buffer.detach().float().flatten().clone())  # some models rewrite theirs
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
        found += [Rotary(turn, style) for turn in (frequency, -frequency) for style in (False, True)]
    return found


def _unmoved_in_words(model: Model) -> str:
    """How a model knows positions whose keys no rotation maps on one another."""
    length, inputs = declared_length(model.config), model.network.get_input_embeddings()
    tables = [m for m in model.network.modules() if isinstance(m, nn.Embedding) and m is not inputs]
    if any(length <= table.num_embeddings <= length + FEW for table in tables):
        return "absolute (learned)"
    return "absolute (in a form of the model's own)"


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
