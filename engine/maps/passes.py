"""Passes of a network that record attention maps, or read given ones in place of queries and keys.

A map is the softmax of a layer, [heads, rows, rows]. With a given map, a layer computes its values, their
product with the map, and its output projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.base.errors import ModelError
from engine.kv_cache.protocol import UnfitError
from engine.model.hf_attention import DroppedError
from engine.model.network import Network, network_code

_PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "head_dim", "layer_idx")
_TOLERANCE = 1e-3  # of states of length 1
_TRIED = 12  # tokens
Forward = Callable[..., tuple[Tensor, Tensor | None]]
Choose = Callable[[int, Tensor], Tensor | None]
"""Returns the map of a layer, given its number and its input [rows, hidden]; None to compute it."""


@dataclass(frozen=True)
class Recording:
    """A text's pass.

    Attributes:
        maps: [layers, heads, rows, rows].
        inputs: the input of each layer's attention, [layers, rows, hidden].
        states: the final hidden states, [rows, hidden].
    """

    maps: Tensor
    inputs: Tensor
    states: Tensor


class MapPasses:
    """Passes of one network with recorded or given maps. Each runs in the engine's turn.

    Args:
        network: the network.
        name: the model's name, for messages.

    Raises:
        ModelError: its attention has another form than Llama's.

    Attributes:
        network: the network.
        heads: the number of attention heads.
        attention: the attention module of each layer.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        found = [part for part in network.module.modules() if all(hasattr(part, own) for own in _PARTS)]
        self.attention: list[Any] = sorted(found, key=lambda part: int(part.layer_idx))
        numbers = [part.layer_idx for part in self.attention]
        if network.setup.path != "segments" or numbers != [*range(network.layers)]:
            raise _unfit(name, "its layers lack separate projections of queries, keys, values and outputs")
        self.heads = int(network.config.num_attention_heads)
        tokens = [token % network.config.vocab_size for token in range(5, 5 + _TRIED)]
        try:
            recording = self.record(tokens)
            found_states = self.mapped(tokens, recording.maps).float()
        except (ModelError, UnfitError, DroppedError) as error:
            raise _unfit(name, str(error).partition("\n")[0]) from error
        wanted = recording.states.float()
        with network.headless():
            plain = network.forward(tokens, range(_TRIED), network.kv_cache((), _TRIED), _TRIED).float()
        coarse = 30 if network.dtype != torch.float32 else 1
        for one in (wanted, found_states):
            away = float((nn.functional.normalize(one) - nn.functional.normalize(plain)).norm(dim=-1).max())
            if not away <= _TOLERANCE * coarse:
                hint = " (--dtype fp32 may help)" if coarse > 1 else ""
                raise _unfit(name, f"a pass with its own maps differs by {away:.1e}{hint}")

    @torch.inference_mode()
    def record(self, tokens: Sequence[int]) -> Recording:
        """Runs a text with transformers' own attention and returns its maps.

        Raises:
            ModelError: the network shows no maps, or computes invalid numbers.
        """
        maps: dict[int, Tensor] = {}
        inputs: dict[int, Tensor] = {}

        def recorded(layer: int, own: Forward) -> Forward:
            def forward(hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
                out = own(hidden_states, *given, **named)
                if out[1] is not None:
                    maps[layer], inputs[layer] = out[1][0], hidden_states[0]
                return out

            return forward

        states = self._run(tokens, recorded, own=True)
        if len(maps) != self.network.layers:
            raise ModelError("its attention returns no maps")
        layers = range(self.network.layers)
        found = Recording(
            torch.stack([maps[layer] for layer in layers]),
            torch.stack([inputs[layer] for layer in layers]),
            states,
        )
        if not (found.maps.isfinite().all() and states.isfinite().all()):
            raise ModelError(
                "The model computed an invalid number. Use another number format (--dtype fp32 or bf16)."
            )
        return found

    @torch.inference_mode()
    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """Returns the input embeddings of tokens, [rows, hidden]."""
        ids = torch.tensor([*tokens], device=self.network.device)
        found: Tensor = self.network.module.get_input_embeddings()(ids)
        return found

    @torch.inference_mode()
    def mapped(self, tokens: Sequence[int], maps: Tensor | Sequence[Tensor]) -> Tensor:
        """Returns the final hidden states [rows, hidden] of a text whose layers read given maps."""
        return self._run(tokens, lambda layer, _: self._reading(layer, maps[layer]))

    @torch.inference_mode()
    def mapped_logits(self, tokens: Sequence[int], maps: Tensor, rows: Sequence[int]) -> Tensor:
        """Returns the logits [rows, vocabulary] of such a pass."""
        return self._run(tokens, lambda layer, _: self._reading(layer, maps[layer]), keep=rows)

    @torch.inference_mode()
    def chosen(self, tokens: Sequence[int], choose: Choose) -> Tensor:
        """Returns the final hidden states of a text whose layers ask for their maps one by one."""

        def asking(layer: int, own: Forward) -> Forward:
            def forward(hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
                found = choose(layer, hidden_states[0])
                if found is None:
                    return own(hidden_states, *given, **named)
                return self._reading(layer, found)(hidden_states)

            return forward

        return self._run(tokens, asking)

    @torch.inference_mode()
    def shared(self, tokens: Sequence[int], first: Sequence[int]) -> Tensor:
        """Returns the final hidden states of a text whose layers share maps.

        Args:
            tokens: the text.
            first: for each layer the one whose map it reads; its own number to compute it.
        """
        maps: dict[int, Tensor] = {}

        def sharing(layer: int, own: Forward) -> Forward:
            def forward(hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
                if first[layer] != layer:
                    return self._reading(layer, maps[first[layer]])(hidden_states)
                out = own(hidden_states, *given, **named)
                assert out[1] is not None
                maps[layer] = out[1][0]
                return out

            return forward

        return self._run(tokens, sharing, own=True)

    def _reading(self, layer: int, attention_map: Tensor) -> Forward:
        """The forward function of a layer that reads a map [heads, rows, rows]."""
        part = self.attention[layer]

        def forward(hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor | None]:
            rows = hidden_states.shape[1]
            values = part.v_proj(hidden_states[0]).view(rows, -1, part.head_dim).transpose(0, 1)
            by_group = attention_map.to(values.dtype).reshape(len(values), -1, rows)
            out = (by_group @ values).view(-1, rows, part.head_dim)
            return part.o_proj(out.transpose(0, 1).reshape(1, rows, -1)), None

        return forward

    def _run(
        self,
        tokens: Sequence[int],
        made: Callable[[int, Forward], Forward],
        *,
        own: bool = False,
        keep: Sequence[int] | None = None,
    ) -> Tensor:
        """A pass whose attention layers are made from (layer, their own function).

        It returns final hidden states, or the logits of some rows. `own`: layers that compute their maps use
        transformers' attention, which returns them.
        """
        network, rows = self.network, len(tokens)
        forwards = [(part, made(layer, part.forward)) for layer, part in enumerate(self.attention)]
        rows_to_return = torch.tensor([*range(rows)] if keep is None else [*keep], device=network.device)
        with network_code(), network.replacing(forwards):
            with network.headless() if keep is None else nullcontext():
                if own:
                    return network.own_logits(tokens)
                found = network.forward(tokens, range(rows), network.kv_cache((), rows), rows_to_return)
            return found


def _unfit(name: str, why: str) -> ModelError:
    return ModelError(
        f"{name!r} cannot reuse attention maps: {why}. Use a model like Llama, Qwen or Mistral, or no maps."
    )
