"""Measures a model with a dozen tokens: the path that reproduces it, and how far its segments can move.

No list of model families is used. Both paths are compared with the model's own logits. The rotary embedding
of each layer is the one that maps its keys at one position onto its keys at another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from engine.attention.rope import Rotaries, Rotary
from engine.base.errors import ModelError
from engine.base.segment import Form, Placement, Segment
from engine.kv_cache.protocol import KVCache, UnfitError
from engine.model.hf_attention import ATTENTION_PATHS, AttentionPath, AttentionSetup, DroppedError
from engine.model.long_context_check import (
    COARSE,
    NOISE,
    SHORTEST,
    TYPICAL,
    Ruler,
    agree,
    declared_length,
    long_reach,
    own_noise,
    typical,
    unapplied,
)
from engine.model.network import Network, network_code
from engine.model.pass_packing import batched_logits, packing_miss
from engine.model.weight_checks import require_logits, require_sound

TOKENS = 12
SHIFT = 5
CUT = 7
_SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
FEW = 8  # extra rows of position tables beyond the context
KEY_TOLERANCE = {torch.float32: 2e-3}  # of the spread of a layer's keys
MOVABLE = (
    1024  # tokens; segments that can move only within a shorter context stay in place if that extends it
)


@dataclass(frozen=True)
class Probe:
    """The measurements of a model.

    Attributes:
        setup: how the network attends: the path that reproduces it, and the rotary embedding of each layer.
        form: the form of its keys and values.
        relocatable: whether a segment that was encoded at one place is read correctly at another.
        positions: a description of the model's position encoding.
        checks: name → greatest difference from the model's own logits, in units of their spread.
        exact_up_to: the number of reproduced tokens if it is less than the context; else None.
        limit: a description of the rule that applies beyond it.
        packs: whether one pass can take several texts, each as if alone.
        alone: the reason why one pass cannot take rows of several prompts; "" if it can.
    """

    setup: AttentionSetup
    form: Form
    relocatable: bool
    positions: str
    checks: dict[str, float] = field(default_factory=dict)
    exact_up_to: int | None = None
    limit: str = ""
    packs: bool = False
    alone: str = ""

    @property
    def path(self) -> AttentionPath:
        """The path of the setup."""
        return self.setup.path

    @property
    def summary(self) -> str:
        """The result in two or three sentences."""
        how = "" if self.path == "segments" else " Each prompt copies its segments into one cache."
        worst = max(self.checks.values(), default=0.0)
        where = (
            "a stored segment fits at any place in a prompt"
            if self.relocatable
            else "segments cannot be moved, so prompts use the schema's own positions"
        )
        limit = (
            f" It is exact up to {self.exact_up_to} tokens, which limits its context: {self.limit}."
            if self.exact_up_to
            else ""
        )
        packing = (
            ""
            if self.packs
            else " Missing segments are encoded one by one: the model does not take several in one pass."
        )
        batching = f" Prompts are answered one by one: {self.alone}." if self.alone else ""
        return (
            "This model computes the same from stored segments as from the whole text, up to "
            f"{_SHORT.get(self.form.dtype, 'its')} rounding. Its logits (scores of the next token) differ by "
            f"at most {worst:.1e} of their spread.{how} Its positions are {self.positions}: {where}."
            f"{limit}{packing}{batching}"
        )

    def to_json(self) -> dict[str, object]:
        """Returns the public fields by name, with the summary."""
        names = (
            "path",
            "relocatable",
            "positions",
            "checks",
            "exact_up_to",
            "limit",
            "packs",
            "alone",
            "summary",
        )
        return {name: getattr(self, name) for name in names}


def context_length(config: Any, found: Probe) -> int:
    """Returns the most tokens of a prompt with its answer: the declared length, as far as it is exact."""
    declared = declared_length(config)
    return min(declared, found.exact_up_to or declared)


def probe(network: Network, name: str) -> Probe:
    """Finds the path that reproduces a network, its rotary embeddings and the form of its keys.

    The network's own setup is ignored.

    Raises:
        ModelError: neither path reproduces the model (the message has the results), or weights are not
            finite.
    """
    require_sound(network, name)
    tokens, misses = _dozen(network), []
    for path in ATTENTION_PATHS:
        setup = AttentionSetup(path, (None,) * network.layers)
        try:
            own = network.own_logits(tokens)
            require_logits(network, own, name)
            if path == "segments" and not network.takes_attention:
                raise UnfitError("the model has its own attention code")
            with network_code():
                try:
                    return _measured(network.under(setup), tokens, own)
                except DroppedError:
                    return _measured(network.under(replace(setup, carried=True)), tokens, own)
        except UnfitError as error:
            misses.append(f"{path}: {error}")
    raise ModelError(
        f"model {name!r} ({network.module.config.model_type}) cannot answer from stored "
        f"segments ({'; '.join(misses)}). Use a model of another family."
    )


def holds(network: Network, found: Probe) -> bool:
    """Whether an earlier measurement still reproduces a network's own logits, shown by three short passes.

    The last tokens read a segment of the first ones, moved if the measurement permits it. The exact length is
    not measured again.
    """
    if found.path == "segments" and not network.takes_attention:
        return False
    tokens = _dozen(network)
    read = _moved if found.relocatable else _between
    try:
        own = network.own_logits(tokens)
        with network_code():
            logits, reference = read(network.under(found.setup), tokens, own)
        noise = own_noise(network, tokens, own) if found.relocatable else 0.0
        return agree(logits, reference, float(own.float().std()) or 1.0, noise)
    except (UnfitError, DroppedError):
        return False


def _dozen(network: Network) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, int(network.config.vocab_size), (TOKENS,), generator=generator).tolist()


def _measured(network: Network, tokens: list[int], own: Tensor) -> Probe:
    """Measures one path of a network without rotary embeddings; raises UnfitError if it does not fit."""
    spread = float(own.float().std()) or 1.0

    def check(name: str, logits: Tensor, reference: Tensor) -> None:
        checks[name] = float((logits.float() - reference.float()).abs().max()) / spread
        if not agree(logits, reference, spread, noise):
            raise UnfitError(f"check {name!r} differs by {checks[name]:.2g} of the spread of the logits")

    n, checks, noise = len(tokens), dict[str, float](), 0.0
    whole = network.kv_cache((), n)
    logits = network.forward(tokens, range(n), whole, keep=n)
    keys, values = whole.tail
    form = Form(network.layers, keys.shape[1], keys.shape[3], keys.dtype)
    shifted = network.kv_cache((), n)
    network.forward(tokens, range(SHIFT, SHIFT + n), shifted)
    rotaries = _fit(_candidates(network, form.size), (keys, values), shifted.tail)
    relocatable = rotaries is not None
    if rotaries is not None:
        network = network.under(replace(network.setup, rotaries=rotaries))
        noise = own_noise(network, tokens, own)
    check("one pass", logits, own)
    check("segment between new tokens", *_between(network, tokens, own))
    if relocatable:
        check("moved segment", *_moved(network, tokens, own))
    positions = _in_words(network.setup) if relocatable else _unmoved_in_words(network)
    length, limit = _bound(network, tokens, whole)
    ruler, reach = _farthest(_ruler(network, tokens, spread, whole, relocatable=relocatable), length)
    if relocatable and not ruler.relocatable:
        positions += ", and the attention of a token depends on its position"
    if reach < min(length, SHORTEST):
        raise UnfitError(f"segments are exact for fewer than {SHORTEST} tokens")
    if reach < length:
        limit = "beyond, positions or the length of the prompt change how it attends"
    checks["at the end of the context"] = ruler.miss(reach)
    bound = reach if reach < declared_length(network.config) else None
    setup = ruler.network.setup
    packs = _packs(ruler.network, form, tokens, whole)
    shift = SHIFT if ruler.relocatable else 0
    alone = _alone(ruler.network, tokens, own, whole, shift, noise)
    limit = limit if bound else ""
    return Probe(setup, form, ruler.relocatable, positions, checks, bound, limit, packs, alone)


def _packs(network: Network, form: Form, tokens: list[int], kv: KVCache) -> bool:
    """Whether one pass can take several texts, each as if alone."""
    if network.setup.path != "segments":
        return False
    try:
        with network_code():
            miss = packing_miss(network, form, tokens, kv.tail, CUT)
    except UnfitError:
        return False
    return miss <= KEY_TOLERANCE.get(form.dtype, COARSE)


def _alone(network: Network, tokens: list[int], own: Tensor, kv: KVCache, shift: int, noise: float) -> str:
    """The reason why one pass cannot take rows of several prompts; "" if it can."""
    if network.setup.path != "segments":
        return "the model has its own attention code, which takes the rows of one prompt"
    try:
        with network_code():
            batched, rows = batched_logits(network, tokens, kv.tail, CUT, shift)
    except UnfitError as error:
        return f"a pass with rows of several prompts fails ({error})"
    spread = float(own.float().std()) or 1.0
    if agree(batched, own[rows], spread, noise):
        return ""
    miss = float((batched.float() - own[rows].float()).abs().max()) / spread
    return f"logits of rows of several prompts in one pass differ by {miss:.2g} of their spread"


def _ruler(network: Network, tokens: list[int], spread: float, kv: KVCache, *, relocatable: bool) -> Ruler:
    """The ruler for far positions. It spreads tokens only if all windows are configuration numbers."""
    seen = {window for window in kv.windows.values() if window}
    numbers = vars(network.config).items()
    named = {name: value for name, value in numbers if type(value) is int and value in seen}
    apart = network.setup.path == "segments" and set(named.values()) == seen
    return Ruler(network, tuple(tokens), spread, apart, tuple(named), relocatable)


def _farthest(ruler: Ruler, length: int) -> tuple[Ruler, int]:
    """Returns the exact length of segments that move, or of segments in place if it is longer."""
    reach = ruler.reach(length)
    if reach < min(length, MOVABLE) and ruler.relocatable and ruler.apart:
        setup = replace(ruler.network.setup, rotaries=(None,) * ruler.network.layers)
        in_place = replace(ruler, network=ruler.network.under(setup), relocatable=False)
        farther = in_place.reach(length)
        if farther > reach:
            return in_place, farther
    return ruler, reach


def _bound(network: Network, tokens: list[int], kv: KVCache) -> tuple[int, str]:
    """Returns the number of tokens below every rule that the path does not apply, and that rule."""
    length = declared_length(network.config)
    bounds = [(length, "")]
    window = _limit(network.config, kv.windows, network.layers)
    if window:
        bounds.append((window, "the window of some of its layers"))
    for name, value in unapplied(network, tokens, length).items():
        bounds.append((value, f"beyond, its attention follows another rule ({name} in its configuration)"))
    long = long_reach(network, min(bounds)[0])
    if long is not None:
        bounds.append((long, "beyond, the number of tokens changes how it attends"))
    return min(bounds, key=lambda bound: bound[0])


def _between(network: Network, tokens: list[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Reads a segment in its own place, with new tokens before and after it."""
    lo, n = CUT - 4, len(tokens)
    kv = network.kv_cache((), CUT)
    network.forward(tokens[:CUT], range(CUT), kv)
    keys, values = kv.tail
    segment = Segment("probe", tuple(tokens[:CUT]), keys, values)
    rows = [*range(lo), *range(CUT, n)]
    read = network.kv_cache([Placement(segment, lo, CUT, lo)], len(rows))
    return network.forward([tokens[row] for row in rows], rows, read, keep=len(rows)), own[rows]


def _moved(network: Network, tokens: list[int], own: Tensor) -> tuple[Tensor, Tensor]:
    """Encodes tokens some positions further on, and reads them at the beginning."""
    n = len(tokens)
    kv = network.kv_cache((), CUT)
    network.forward(tokens[:CUT], range(SHIFT, SHIFT + CUT), kv)
    ids = (-1,) * SHIFT + tuple(tokens[:CUT])
    segment = Segment("probe", ids, *(_behind(SHIFT, states) for states in kv.tail))
    read = network.kv_cache([Placement(segment, SHIFT, SHIFT + CUT, 0)], n - CUT)
    return network.forward(tokens[CUT:], range(CUT, n), read, keep=n - CUT), own[CUT:]


def _behind(count: int, states: Tensor) -> Tensor:
    """Puts `count` empty tokens before states [layers, kv_heads, tokens, head_dim]."""
    return torch.cat([states.new_zeros(*states.shape[:2], count, states.shape[3]), states], 2)


def _fit(
    candidates: list[Rotary | None], states: tuple[Tensor, Tensor], shifted: tuple[Tensor, Tensor]
) -> Rotaries | None:
    """The rotation of each layer that moves its keys by `SHIFT` positions; None if a layer has none.

    No rotation changes values, so their difference is the rounding of the layers before.
    """
    rotaries: list[Rotary | None] = []
    for keys, values, moved_keys, moved_values in zip(*states, *shifted, strict=True):
        tolerance = KEY_TOLERANCE.get(keys.dtype)
        if tolerance is None:
            tolerance = min(max(TYPICAL, NOISE * _apart(values, moved_values)), COARSE)
        misses = [
            _apart(rotary.shift(keys, SHIFT) if rotary else keys, moved_keys, keys) for rotary in candidates
        ]
        best = min(range(len(misses)), key=misses.__getitem__)
        if not misses[best] <= tolerance:
            return None
        rotaries.append(candidates[best])
    return tuple(rotaries)


def _apart(one: Tensor, other: Tensor, like: Tensor | None = None) -> float:
    """The difference of most rows in spreads of `like`, else of the first."""
    return typical(one, other) / (float((one if like is None else like).float().std()) or 1.0)


def _candidates(network: Network, size: int) -> list[Rotary | None]:
    """No rotation, and both styles of every set of frequencies in the model or from its configuration."""
    config = network.config
    frequencies: list[Tensor] = []
    for name, buffer in network.module.named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last.endswith("inv_freq") and "original" not in last:
            frequencies.append(
                buffer.detach().cpu().float().flatten().clone()
            )  # some models modify theirs later
    if not frequencies:  # tables of sines, as in GPT-J
        base = float(getattr(config, "rotary_emb_base", None) or getattr(config, "rope_theta", None) or 1e4)
        dims = {int(getattr(config, "rotary_dim", None) or size), size}
        frequencies = [base ** (-torch.arange(0, dim, 2) / dim) for dim in sorted(dims)]
    candidates: list[Rotary | None] = [None]
    distinct: list[Tensor] = []
    for frequency in frequencies:
        if 2 * frequency.numel() > size or any(torch.equal(frequency, other) for other in distinct):
            continue
        distinct.append(frequency)
        candidates += [Rotary(turn, style) for turn in (frequency, -frequency) for style in (False, True)]
    return candidates


def _unmoved_in_words(network: Network) -> str:
    """The position encoding of a model whose keys no rotation maps onto each other."""
    length, inputs = declared_length(network.config), network.module.get_input_embeddings()
    tables = [m for m in network.module.modules() if isinstance(m, nn.Embedding) and m is not inputs]
    if any(length <= table.num_embeddings <= length + FEW for table in tables):
        return "absolute (learned)"
    return "absolute (in a form of the model's own)"


def _in_words(setup: AttentionSetup) -> str:
    rotaries = setup.rotaries
    rotated = [rotary for rotary in rotaries if rotary is not None]
    if not rotated and setup.path == "segments":  # scores have no bias
        return "none: each token sees only earlier ones"
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
