"""How answers are to be generated as a model's makers say (generation_config.json).

Some of it are settings, which a caller may give otherwise; some are rules, which hold for every answer. The
rules are transformers' own processors of logits. What is neither is named.
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
SETTINGS: Final = ("temperature", "top_p", "top_k", "repetition_penalty", "max_new_tokens")


@dataclass(frozen=True)
class _Place:
    """What a processor may have to know of an answer.

    Attributes:
        prompt: [1, tokens].
        ends: [tokens], those that end an answer.
    """

    prompt: Any  # transformers' hints name a kind of tensor that torch makes none of
    ends: Tensor

    @property
    def start(self) -> int:
        """The number of tokens before the answer."""
        return len(self.prompt[0])


_Make = Callable[[Any, _Place], Any]
# By the field's name, in the order of `generate`: the value that changes nothing, and the processor.
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
# The same of those that only count where tokens are drawn.
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
# The other fields that change what `generate` writes, or what other programs do, with the values that do not.
_WITHOUT_EFFECT: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "guidance_scale"), (1,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "diversity_penalty", "penalty_alpha"), (0,)),
    **dict.fromkeys(("constraints", "force_words_ids"), ([],)),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "dola_layers", "max_time"), ()),
    "token_healing": (False,),
    "watermarking_config": (),
}


class Generation:
    """How answers are to be generated.

    Args:
        said: the generation config, of transformers.
        added: tokens that stand outside the tokenizer's own vocabulary, by their text.
        vocabulary: how many tokens the model chooses from.
        window: how many tokens a prompt and its answer may have together.

    Attributes:
        settings: settings by name, as the makers have them.
        rules: what holds for every answer, by the name of its field.
        stop: texts that end every answer.
        ends: tokens that do, among them those whose text is one of these.
        ignored: what changes the answers of `generate` and has no effect here, by the name of its field.
    """

    def __init__(self, said: Any, added: Mapping[str, int], vocabulary: int, window: int) -> None:
        given = {name: value for name, value in vars(said).items() if value is not None}
        self.settings = {name: given[name] for name in SETTINGS if name in given}
        if said.do_sample is False:
            self.settings["temperature"] = 0.0
        own = {name: one for name, one in {**_RULES, **_WARPERS}.items() if name not in SETTINGS}
        wanted = {
            name: given[name] for name, (neutral, _) in own.items() if not _same(given.get(name), neutral)
        }
        self.rules = {name: value for name, value in wanted.items() if _works(name, value, vocabulary)}
        self.ignored = {name: value for name, value in wanted.items() if name not in self.rules}
        stop = given.get("stop_strings", [])
        texts = [stop] if isinstance(stop, str) else stop
        sound = isinstance(texts, list) and all(isinstance(one, str) and one for one in texts)
        self.stop: tuple[str, ...] = tuple(texts) if sound else ()
        ends = given.get("eos_token_id", [])
        tokens = ends if isinstance(ends, list) else [ends]
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in tokens)
        self.ends = frozenset(
            [*(tokens if whole else ()), *(added[one] for one in self.stop if one in added)]
        )
        length = given.get("max_length")
        changing = {
            "stop_strings": not sound,
            "eos_token_id": not whole,
            "max_length": "max_new_tokens" not in given and isinstance(length, int) and length < window,
            "cache_implementation": given.get("cache_implementation") == "quantized",
            **{
                name: not any(_same(given.get(name), one) for one in harmless)
                for name, harmless in _WITHOUT_EFFECT.items()
            },
        }
        self.ignored |= {name: given[name] for name, changes in changing.items() if changes and name in given}


def processors(
    values: Mapping[str, Any], prompt: Sequence[int], ends: Collection[int], *, draws: bool
) -> logits_process.LogitsProcessorList:
    """Returns what changes the scores of an answer's tokens, in the order of `generate`.

    Args:
        values: of rules and settings, by name.
        prompt: the prompt's tokens.
        ends: tokens that end an answer.
        draws: whether tokens are drawn.
    """
    at = _Place(torch.tensor([[*prompt]], dtype=torch.long), torch.tensor(sorted(ends), dtype=torch.long))
    found = logits_process.LogitsProcessorList()
    for name, (neutral, make) in {**_RULES, **(_WARPERS if draws else {})}.items():
        if not _same(values.get(name), neutral):
            found.append(make(values[name], at))
    return found


def stretch(values: Mapping[str, Any]) -> float:
    """Returns how much further apart than two scores themselves the processors may bring them.

    Args:
        values: of rules and settings, by name, of an answer that is not drawn.
    """
    if "exponential_decay_length_penalty" in values:  # it grows with the answer
        return math.inf
    penalties = [values.get(name, 1.0) for name in ("repetition_penalty", "encoder_repetition_penalty")]
    return float(math.prod(max(one, 1 / one) for one in penalties))


def _same(value: Any, neutral: Any) -> bool:
    """Whether a value changes nothing; true is not 1."""
    return value is None or (value == neutral and isinstance(value, bool) == isinstance(neutral, bool))


def _works(name: str, value: Any, vocabulary: int) -> bool:
    """Whether transformers takes the value of a rule, and the rule takes scores."""
    make = {**_RULES, **_WARPERS}[name][1]
    token = torch.zeros((1, 1), dtype=torch.long)
    try:
        make(value, _Place(token, token[0]))(token, torch.zeros((1, vocabulary)))
    except Exception:  # whatever a value of another form makes of it
        return False
    return True
