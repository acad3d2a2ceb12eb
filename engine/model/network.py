"""The forward pass of a transformers network over the engine's KV caches."""

from __future__ import annotations

import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.attention.scratch import Scratch
from engine.base.segment import Placement
from engine.kv_cache.batched_kv_cache import BatchedKVCache, Member
from engine.kv_cache.dense_kv_cache import DenseKVCache
from engine.kv_cache.packed_kv_cache import PackedKVCache, PackedText
from engine.kv_cache.protocol import KVCache, Rowwise, StopForward, UnfitError, placed_keys
from engine.kv_cache.recorded_pass import RecordedPass, Recorder
from engine.kv_cache.recorded_prefill import RecordedPrefill
from engine.kv_cache.segment_kv_cache import SegmentKVCache
from engine.model.hf_attention import CARRIED, AttentionSetup, DroppedError, attach, can_change, register
from engine.model.interruption import WORTH_ROWS, left_early

_Attended = KVCache | PackedKVCache | BatchedKVCache


class Network:
    """A transformers network with one attention setup. Other instances may share its module.

    Args:
        module: a network of transformers, in evaluation mode.
        setup: how the network attends; by default over segments, read in their own places only.
        scratch: buffers that networks may share.

    Attributes:
        config: the module's configuration, or its part for text.
        layers: the number of attention layers.
        recorder: records decoding passes on a CUDA GPU; None elsewhere.
        prefills: records first passes likewise.
    """

    def __init__(
        self, module: Any, setup: AttentionSetup | None = None, scratch: Scratch | None = None
    ) -> None:
        register()
        self.module = module
        self.config = module.config.get_text_config()
        self.layers: int = self.config.num_hidden_layers
        self.setup = setup or AttentionSetup("segments", (None,) * self.layers)
        self._scratch = scratch or Scratch()
        on_gpu = self.device.type == "cuda" and self.setup.path == "segments"
        self.recorder = Recorder() if on_gpu else None
        self.prefills = RecordedPrefill(self.setup.rotaries) if on_gpu else None
        self._unwanted: tuple[int, Callable[[], bool]] | None = None  # for the passes of one thread
        self._keeps_last = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._carriers = [
            part
            for part in (module.modules() if self.setup.carried else ())
            if hasattr(part, "layer_idx") and "Attention" in type(part).__name__
        ]

    def under(self, setup: AttentionSetup) -> Network:
        """Returns the same module with another setup."""
        return Network(self.module, setup, self._scratch)

    @contextlib.contextmanager
    def interruptible(self, unwanted: Callable[[], bool]) -> Iterator[None]:
        """Makes this thread's long passes interruptible between two layers; the caller has the engine's turn.

        `unwanted` must be quick.

        Raises:
            InterruptedPassError: from an interrupted pass, whose rows do not count. A KV cache of a model
                with its own attention code is unusable after it.
        """
        before, self._unwanted = self._unwanted, (threading.get_ident(), unwanted)
        try:
            yield
        finally:
            self._unwanted = before

    @contextlib.contextmanager
    def headless(self) -> Iterator[None]:
        """Makes passes return the inputs of the output embedding, [rows, hidden], in place of logits.

        The caller has the engine's turn.

        Raises:
            UnfitError: the module has no output embedding.
        """
        head = self.module.get_output_embeddings()
        if head is None:
            raise UnfitError("the model has no output embedding")
        hook = head.register_forward_pre_hook(_leave)
        try:
            yield
        finally:
            hook.remove()

    @contextlib.contextmanager
    def replacing(self, forwards: Iterable[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
        """Makes parts of the module compute other functions, and passes run without recording.

        The caller has the engine's turn.
        """
        recorded, self.prefills = self.prefills, None
        replaced = []
        try:
            for part, forward in forwards:
                part.forward = forward
                replaced.append(part)
            yield
        finally:
            self.prefills = recorded
            for part in replaced:
                del part.forward

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weights, keys and values."""
        dtype: torch.dtype = self.module.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.module.device
        return device

    @property
    def takes_attention(self) -> bool:
        """Whether transformers supplies the module's attention, so that the engine can replace it."""
        return can_change(self.module)

    @property
    def shows_attention(self) -> bool:
        """Whether `attention_to_cache` is available."""
        return self.setup.path == "segments"

    def kv_cache(self, placements: Sequence[Placement], capacity: int) -> KVCache:
        """Returns a KV cache with these placements and room for `capacity` new tokens."""
        if self.setup.path == "dense":
            return DenseKVCache(placements, rotaries=self.setup.rotaries, capacity=capacity)
        return self._segments(placements, capacity)

    def _segments(
        self, placements: Sequence[Placement], capacity: int, watch_from: int | None = None
    ) -> SegmentKVCache:
        rotaries = self.setup.rotaries
        return SegmentKVCache(
            placements, rotaries=rotaries, capacity=capacity, scratch=self._scratch, watch_from=watch_from
        )

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        kv: KVCache,
        keep: int | Tensor = 1,
        *,
        rowwise: Rowwise | None = None,
    ) -> Tensor:
        """Runs new tokens through the network; their keys and values join the tail of `kv`.

        Args:
            token_ids: the new tokens.
            positions: positions of the tokens, ascending, not negative (some models look them up in a table).
            kv: the keys and values that they may attend to, also at negative positions; made by `kv_cache`.
            keep: the number of last tokens whose logits are returned, or int64 indices of the tokens.
            rowwise: how tokens attend one by one, if the engine computes attention; None for all at once.

        Returns:
            Logits [keep, vocabulary].
        """
        kv.begin(positions, rowwise=rowwise)
        logits = None
        if self.recorder is not None and rowwise is not None and keep == len(positions) == rowwise.idle + 1:
            with self._scratch.turn:
                logits = self.recorder.run(self._logits, token_ids, positions, kv)
        elif self.prefills is not None and rowwise is None and keep == 1:
            with self._scratch.turn:
                logits = self.prefills.run(self._logits, token_ids, positions, kv)
        if logits is None:
            logits = self._run(token_ids, positions, kv, keep)
        kv.commit()
        return logits

    @torch.inference_mode()
    def forward_tree(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        kv: KVCache,
        unseen: Tensor,
        keep: Sequence[int],
    ) -> Tensor:
        """Runs tokens of several continuations of one prompt; on the path "segments" only.

        Args:
            token_ids: the new tokens.
            positions: their positions, ascending; continuations may repeat a position.
            kv: the prompt's keys and values, made by `kv_cache`; the new tokens join its tail.
            unseen: bool [tokens, tokens], true where a token does not see another one.
            keep: the indices of the tokens whose logits are returned.

        Returns:
            Logits [keep, vocabulary].
        """
        assert kv.own is not None
        kv.own.begin_tree(positions, unseen)
        logits = self._run(token_ids, positions, kv, torch.tensor(keep, device=self.device))
        kv.commit()
        return logits

    def batch_cache(self) -> BatchedKVCache:
        """Returns a cache for passes of several prompts; on the path "segments" only."""
        assert self.setup.path == "segments"
        return BatchedKVCache(self.setup.rotaries, self._scratch)

    @torch.inference_mode()
    def forward_batch(
        self, members: Sequence[Member], batch: BatchedKVCache, others: Sequence[Sequence[Placement]] = ()
    ) -> list[Tensor]:
        """Runs new tokens of several prompts through the network in one pass; each prompt's tail grows.

        A single prompt is computed as by `forward`. If a pass fails, none of its rows count.

        Args:
            members: the prompts, each with a KV cache of its own.
            batch: made by `batch_cache`; the same from pass to pass.
            others: placements of prompts without rows in this pass that will have rows later.

        Returns:
            Logits [keep, vocabulary] of each prompt, in order.
        """
        if len(members) == 1:
            batch.settle(members, others)
            (member,) = members
            rows = member.rows
            return [self.forward(rows.token_ids, rows.positions, member.kv, rows.keep, rowwise=rows.rowwise)]
        order = batch.begin([Member(member.kv, member.rows.real) for member in members], others)
        try:
            token_ids = [token for member in batch.members for token in member.rows.token_ids]
            positions = [place for member in batch.members for place in member.rows.positions]
            logits = self._run(token_ids, positions, batch, batch.kept.to(self.device))
            parts = torch.split(logits, [member.rows.keep for member in batch.members])
            batch.commit()
        finally:
            batch.end()
        return [part for _, part in sorted(zip(order, parts, strict=True), key=lambda pair: pair[0])]

    @torch.inference_mode()
    def encode(self, texts: Sequence[PackedText]) -> None:
        """Runs texts through the network and writes keys and values of all layers into their segments.

        Each text sees itself and its placements. Only some networks take several in one pass
        (`packing_miss`).

        Raises:
            UnfitError: a layer does not return its keys and values.
        """
        token_ids = [token for text in texts for token in text.segment.token_ids]
        positions = [place for text in texts for place in text.positions]
        if self.setup.path == "segments":
            packed = PackedKVCache(texts, self.setup.rotaries, self._scratch)
            with contextlib.suppress(StopForward):
                self._run(token_ids, positions, packed, 1)
            packed.require_whole()
            return
        (text,) = texts
        kv = self.kv_cache(text.placements, len(token_ids))
        kv.begin(positions, until=self.layers - 1)
        with contextlib.suppress(StopForward):
            self._run(token_ids, positions, kv, 1)
        kv.commit()
        for taken, made in zip((text.segment.keys, text.segment.values), kv.tail, strict=True):
            taken.copy_(made)

    def placed_keys(self, placement: Placement, layer: int) -> Tensor:
        """Returns a layer's keys of a placement, [kv_heads, tokens, head_dim], as computed at its place."""
        return placed_keys(placement, layer, self.setup.rotaries[layer])

    @torch.inference_mode()
    def first_keys(
        self, token_ids: Sequence[int], positions: Sequence[int], layer: int
    ) -> tuple[Tensor, Tensor]:
        """Runs tokens that attend to each other as far as the keys and values of one layer.

        Returns:
            Keys and values, each [kv_heads, tokens, head_dim]; keys rotated for `positions`.
        """
        kv = self.kv_cache((), len(token_ids))
        self.forward_to(layer, token_ids, positions, kv)
        return kv.layer_tail(layer)

    @torch.inference_mode()
    def forward_to(
        self,
        layer: int,
        token_ids: Sequence[int],
        positions: Sequence[int],
        kv: KVCache,
        rowwise: Rowwise | None = None,
    ) -> None:
        """Runs new tokens, as in `forward`, as far as one layer's keys and values, which join the tail."""
        kv.begin(positions, until=layer, rowwise=rowwise)
        with contextlib.suppress(StopForward):
            self._run(token_ids, positions, kv, 1)
        kv.commit()

    @torch.inference_mode()
    def attention_to_cache(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        placements: Sequence[Placement],
        first_layer: int = 0,
    ) -> Tensor:
        """Runs new tokens and returns their attention to the placements; on the path "segments" only.

        Returns:
            Float32 [cached tokens] in the order of the placements, summed over heads, rows and the layers
            from `first_layer` on.
        """
        assert self.shows_attention
        kv = self._segments(placements, len(token_ids), first_layer)
        kv.begin(positions)
        self._run(token_ids, positions, kv, 1)
        assert kv.attention is not None
        return kv.attention

    @torch.inference_mode()
    def own_logits(self, token_ids: Sequence[int], positions: Sequence[int] | None = None) -> Tensor:
        """Returns the logits [tokens, vocabulary] of the module's own attention in one pass.

        Positions ascend; by default they start at 0.

        Raises:
            UnfitError: the module's code fails.
        """
        inputs: dict[str, Any] = {"input_ids": torch.tensor([list(token_ids)], device=self.device)}
        if positions is not None:
            inputs["position_ids"] = torch.tensor([list(positions)], device=self.device)
            # without a mask, transformers takes positions with a gap for several sequences
            inputs["attention_mask"] = torch.ones(1, len(token_ids), dtype=torch.long, device=self.device)
        with network_code(), self._scratch.turn:
            attach(self.module, None)
            try:
                logits: Tensor = self.module(**inputs, use_cache=False).logits[0]
            except _Headless as end:
                logits = end.states[0]
        return logits

    def _run(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: _Attended, keep: int | Tensor
    ) -> Tensor:
        """Logits of the last rows, or of the rows in a tensor."""
        with self._scratch.turn:  # the module shares buffers, attention setup and carried caches
            unwanted = self._unwanted
            if unwanted is None or unwanted[0] != threading.get_ident() or len(token_ids) < WORTH_ROWS:
                return self._computed(token_ids, positions, kv, keep)
            with left_early(self.module, self.layers, unwanted[1]):
                return self._computed(token_ids, positions, kv, keep)

    def _computed(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: _Attended, keep: int | Tensor
    ) -> Tensor:
        ids, at = (torch.tensor([list(numbers)], device=self.device) for numbers in (token_ids, positions))
        return self._logits(ids, at, kv, keep)

    def _logits(
        self, token_ids: Tensor, positions: Tensor, kv: _Attended | RecordedPass, keep: int | Tensor
    ) -> Tensor:
        """Logits of the last rows; token ids and positions are [1, rows]."""
        attach(self.module, self.setup.path)
        inputs: dict[str, Any] = {"use_cache": False, "kv": kv}
        if self.setup.path == "dense":
            inputs = {"use_cache": True, "past_key_values": kv}
        if isinstance(keep, int) and not keep:
            keep = torch.empty(0, dtype=torch.int64, device=self.device)
        if self._keeps_last:
            inputs["logits_to_keep"] = keep
        for part in self._carriers:
            setattr(part, CARRIED, kv)
        try:
            logits: Tensor = self.module(input_ids=token_ids, position_ids=positions, **inputs).logits[0]
        except _Headless as end:
            logits = end.states[0]
        finally:
            for part in self._carriers:
                delattr(part, CARRIED)
        if isinstance(keep, int):
            return logits[-keep:]
        return logits if self._keeps_last else logits[keep]


class _Headless(Exception):  # noqa: N818 - not an error: it ends a pass
    """Ends a pass before the output embedding."""

    def __init__(self, states: Tensor) -> None:
        self.states = states


def _leave(_head: Any, inputs: tuple[Tensor, ...]) -> None:
    raise _Headless(inputs[0])


@contextlib.contextmanager
def network_code() -> Iterator[None]:
    """Turns errors of a model's code into UnfitError; errors of the engine's own code pass unchanged."""
    try:
        yield
    except (UnfitError, DroppedError, StopForward, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if _is_our_own(error):
            raise
        lines = str(error).splitlines()
        raise UnfitError(lines[0] if lines else type(error).__name__) from error


def _is_our_own(error: Exception) -> bool:
    """Whether the engine raised an error, not transformers. Wrong arguments count as the model's error."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    if modules[-1] == torch.nn.modules.module.__name__:
        return False
    packages = [name.partition(".")[0] for name in modules]
    return [name for name in packages if name in ("engine", "transformers")][-1] == "engine"
