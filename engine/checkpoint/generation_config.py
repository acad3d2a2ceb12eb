"""The generation settings of a model's makers (generation_config.json).

Settings are defaults that a caller may change. Rules hold for every answer and use transformers' own logits
processors. Other fields are reported as ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers.generation import logits_process

FILE: Final = "generation_config.json"
SETTINGS: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")


@dataclass(frozen=True)
class _Place:
    """The context of an answer for a processor: prompt [1, tokens] and end tokens [tokens]."""

    prompt: Any  # transformers' hints name a tensor type that torch does not produce
    ends: Tensor

    @property
    def start(self) -> int:
        """The number of tokens before the answer."""
        return len(self.prompt[0])


class _Biases(logits_process.LogitsProcessor):
    """Adds a number to the scores of some tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._tokens, self._biases = torch.tensor([*biases]), torch.tensor([*biases.values()])

    def __call__(self, _: Any, scores: Any) -> Any:
        """Returns the changed scores [1, vocabulary]."""
        return scores.index_add(1, self._tokens, self._biases[None].to(scores.dtype))


class _Repeats(logits_process.LogitsProcessor):
    """Lowers the scores of the answer's tokens: by `each` for each occurrence, and by `once` for all."""

    def __init__(self, start: int, each: float = 0.0, once: float = 0.0) -> None:
        self._start, self._each, self._once = start, each, once

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Returns the changed scores [1, vocabulary] after the tokens [1, tokens]."""
        counts = torch.bincount(input_ids[0, self._start :], minlength=scores.shape[-1])
        return scores - self._each * counts - self._once * (counts > 0)


_Make = Callable[[Any, _Place], Any]
# By setting name: settings of a run that transformers does not have, before and after the rules.
_BEFORE: Final[Mapping[str, tuple[Any, _Make]]] = {"logit_bias": ({}, lambda value, _: _Biases(value))}
_AFTER: Final[Mapping[str, tuple[Any, _Make]]] = {
    "presence_penalty": (0, lambda value, at: _Repeats(at.start, once=value)),
    "frequency_penalty": (0, lambda value, at: _Repeats(at.start, each=value)),
}
# By field name, in the order of `generate`: the neutral value and the processor.
_RULES: Final[Mapping[str, tuple[Any, _Make]]] = {
    "sequence_bias": ({}, lambda value, _: logits_process.SequenceBiasLogitsProcessor(value)),
    "encoder_repetition_penalty": (
        1,
        lambda value, at: logits_process.EncoderRepetitionPenaltyLogitsProcessor(float(value), at.prompt),
    ),
    "repetition_penalty": (1, lambda value, _: logits_process.RepetitionPenaltyLogitsProcessor(float(value))),
    "no_repeat_ngram_size": (0, lambda value, _: logits_process.NoRepeatNGramLogitsProcessor(value)),
    "encoder_no_repeat_ngram_size": (
        0,
        lambda value, at: logits_process.EncoderNoRepeatNGramLogitsProcessor(value, at.prompt),
    ),
    "bad_words_ids": ([], lambda value, at: logits_process.NoBadWordsLogitsProcessor(value, at.ends)),
    "min_length": (0, lambda value, at: logits_process.MinLengthLogitsProcessor(value, at.ends)),
    "min_new_tokens": (
        0,
        lambda value, at: logits_process.MinNewTokensLengthLogitsProcessor(at.start, value, at.ends),
    ),
    "exponential_decay_length_penalty": (
        [],
        lambda value, at: logits_process.ExponentialDecayLengthPenalty(value, at.ends, at.start),
    ),
    "suppress_tokens": ([], lambda value, _: logits_process.SuppressTokensLogitsProcessor(value)),
    "begin_suppress_tokens": (
        [],
        lambda value, at: logits_process.SuppressTokensAtBeginLogitsProcessor(value, at.start),
    ),
}
# The same for fields that only affect sampling.
_WARPERS: Final[Mapping[str, tuple[Any, _Make]]] = {
    "temperature": (1, lambda value, _: logits_process.TemperatureLogitsWarper(float(value))),
    "top_h": (None, lambda value, _: logits_process.TopHLogitsWarper(float(value))),
    "top_k": (0, lambda value, _: logits_process.TopKLogitsWarper(value)),
    "top_p": (1, lambda value, _: logits_process.TopPLogitsWarper(float(value))),
    "min_p": (0, lambda value, _: logits_process.MinPLogitsWarper(float(value))),
    "typical_p": (1, lambda value, _: logits_process.TypicalLogitsWarper(float(value))),
    "epsilon_cutoff": (0, lambda value, _: logits_process.EpsilonLogitsWarper(float(value))),
    "eta_cutoff": (0, lambda value, _: logits_process.EtaLogitsWarper(float(value))),
}
# Other fields that change the output of `generate` or of other programs, with their neutral values.
_WITHOUT_EFFECT: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "guidance_scale"), (1,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "diversity_penalty", "penalty_alpha"), (0,)),
    **dict.fromkeys(("constraints", "force_words_ids"), ([],)),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "dola_layers", "max_time"), ()),
    "token_healing": (False,),
    "watermarking_config": (),
}


class Generation:
    """The generation settings of a model.

    Args:
        said: the generation config, of transformers.
        added: tokens outside the tokenizer's own vocabulary, by their text.
        vocabulary: the number of tokens that the model chooses from.
        window: the most tokens of a prompt with its answer.

    Attributes:
        settings: the makers' settings by name.
        rules: values of rules for every answer, by field name.
        stop: texts that end every answer.
        ends: tokens that end every answer, including those whose text is in `stop`.
        ignored: values without effect here that change the answers of `generate`, by field name.
    """

    def __init__(self, said: Any, added: Mapping[str, int], vocabulary: int, window: int) -> None:
        fields = {name: value for name, value in vars(said).items() if value is not None}
        self.settings = {name: fields[name] for name in SETTINGS if name in fields}
        if said.do_sample is False:
            self.settings["temperature"] = 0.0
        rules = {name: item for name, item in {**_RULES, **_WARPERS}.items() if name not in SETTINGS}
        wanted = {
            name: fields[name] for name, (neutral, _) in rules.items() if not _same(fields.get(name), neutral)
        }
        self.rules = {name: value for name, value in wanted.items() if _works(name, value, vocabulary)}
        self.ignored = {name: value for name, value in wanted.items() if name not in self.rules}
        stop = fields.get("stop_strings", [])
        texts = [stop] if isinstance(stop, str) else stop
        valid = isinstance(texts, list) and all(isinstance(item, str) and item for item in texts)
        self.stop: tuple[str, ...] = tuple(texts) if valid else ()
        ends = fields.get("eos_token_id", [])
        tokens = ends if isinstance(ends, list) else [ends]
        whole = all(isinstance(item, int) and not isinstance(item, bool) for item in tokens)
        self.ends = frozenset(
            [*(tokens if whole else ()), *(added[item] for item in self.stop if item in added)]
        )
        length = fields.get("max_length")
        changing = {
            "stop_strings": not valid,
            "eos_token_id": not whole,
            "max_length": "max_new_tokens" not in fields and isinstance(length, int) and length < window,
            "cache_implementation": fields.get("cache_implementation") == "quantized",
            **{
                name: not any(_same(fields.get(name), item) for item in harmless)
                for name, harmless in _WITHOUT_EFFECT.items()
            },
        }
        self.ignored |= {
            name: fields[name] for name, changes in changing.items() if changes and name in fields
        }


def processors(
    values: Mapping[str, Any], prompt: Sequence[int], ends: Collection[int], *, draws: bool
) -> logits_process.LogitsProcessorList:
    """Returns processors for the scores of an answer's tokens, in the order of `generate` and vLLM.

    `values` has rules and settings by name. `ends` has the tokens that end an answer. `draws` is true if
    tokens are sampled.
    """
    at = _Place(torch.tensor([[*prompt]], dtype=torch.long), torch.tensor(sorted(ends), dtype=torch.long))
    chain = logits_process.LogitsProcessorList()
    for name, (neutral, make) in {**_BEFORE, **_RULES, **_AFTER, **(_WARPERS if draws else {})}.items():
        if not _same(values.get(name), neutral):
            chain.append(make(values[name], at))
    return chain


def stretch(values: Mapping[str, Any]) -> float:
    """Returns the factor by which processors can increase the distance of scores without sampling."""
    if "exponential_decay_length_penalty" in values:  # it grows with the answer
        return math.inf
    penalties = [values.get(name, 1.0) for name in ("repetition_penalty", "encoder_repetition_penalty")]
    return float(math.prod(max(penalty, 1 / penalty) for penalty in penalties))


def _same(value: Any, neutral: Any) -> bool:
    """Whether a value is neutral; true differs from 1."""
    return value is None or (value == neutral and isinstance(value, bool) == isinstance(neutral, bool))


def _works(name: str, value: Any, vocabulary: int) -> bool:
    """Whether transformers accepts the value of a rule and applies it to scores."""
    make = {**_RULES, **_WARPERS}[name][1]
    token = torch.zeros((1, 1), dtype=torch.long)
    try:
        make(value, _Place(token, token[0]))(token, torch.zeros((1, vocabulary)))
    except Exception:  # malformed values raise many kinds
        return False
    return True
