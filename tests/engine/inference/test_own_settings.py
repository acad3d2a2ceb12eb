"""What generation_config.json says is honoured as transformers' generate() does it, or named as ignored."""

from __future__ import annotations

import copy
import functools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import ModelError
from engine.engine import Engine
from engine.inference.model_settings import own_settings, without_effect
from engine.model.loading import load
from engine.model.model import Model
from engine.model.model_info import look
from engine.store import Store
from tests.engine.cases import model_of, plan_of, prompt_of, schema_of
from tests.engine.tiny import KnownProbe, measured, save_tiny, tiny_network

SCHEMA = """<schema name="s"><system>You plan.</system>
<user>Read.<module name="a">alpha and more of it</module></user><assistant>Done.</assistant></schema>"""
PROMPT = "<prompt><a/><user>Which letters?</user></prompt>"
USUAL = [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 35, 8, 35, 215]
"""The tokens of the answer without any of it."""


read_by_engines, read_by_transformers = functools.cache(tiny_network), functools.cache(tiny_network)


def network(one: Any, fields: dict[str, Any]) -> Any:
    """Returns `one` with generation settings of its own."""
    made = copy.copy(one)
    made.generation_config = copy.deepcopy(made.generation_config)
    for name, value in fields.items():
        setattr(made.generation_config, name, value)
    return made


def model(fields: dict[str, Any]) -> Model:
    plain = model_of("llama-gqa")
    return Model(
        "m", network(read_by_engines(), fields), plain.tokenizer, "f", KnownProbe(measured("llama-gqa", 0))
    )  # type: ignore[arg-type]


def answers(folder: Path, fields: dict[str, Any], **settings: Any) -> tuple[Any, Any, list[int]]:
    """The answers of both sides, and the prompt's tokens."""
    with Engine(model(fields), Store.open(folder)) as engine:
        prompt = engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPT))
        given = {"max_new_tokens": 16, "scope": "scaffold", **settings}
        found = [prompt.answer(mode=mode, **given) for mode in ("cached", "uncached")]
        return found[0], found[1], plan_of(engine, schema_of(SCHEMA), prompt_of(PROMPT)).token_ids


def generated(fields: dict[str, Any], prompt: list[int], **more: Any) -> list[int]:
    tokens = torch.tensor([prompt])
    mask = torch.ones_like(tokens)
    given = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 1, **more}
    found = network(read_by_transformers(), fields).generate(tokens, attention_mask=mask, **given)
    return found[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence_bias": [[[97], 8.0]]},
        {"encoder_repetition_penalty": 3.0},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 3},
        {"bad_words_ids": [[8]]},
        {"bad_words_ids": [[8, 8], [35]]},
        {"suppress_tokens": [8, 35]},
        {"begin_suppress_tokens": [8]},
        {"exponential_decay_length_penalty": [2, 1.8]},
        {"eos_token_id": [8], "min_new_tokens": 6},
        {"eos_token_id": [35, 8], "min_length": 127},
        {"eos_token_id": 8},
        {"suppress_tokens": [8], "no_repeat_ngram_size": 2, "sequence_bias": [[[35], -4.0]]},
    ],
)
def test_rules_hold_for_every_answer_as_in_generate(tmp_path: Path, fields: dict[str, Any]) -> None:
    cached, uncached, prompt = answers(tmp_path, fields)
    want = generated(fields, prompt)
    assert want != USUAL
    assert list(cached.token_ids) == list(uncached.token_ids) == want
    assert without_effect(model(fields)) == ""
    guessed, _, _ = answers(tmp_path / "again", fields, speculate="on")
    assert list(guessed.token_ids) == want


@pytest.mark.parametrize(
    "fields",
    [{"typical_p": 1e-3}, {"epsilon_cutoff": 0.9999}, {"top_h": 1e-3}],
)
def test_drawn_tokens_are_cut_off_as_in_generate(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Where one outcome is left, so that the generators of random numbers need not agree."""
    settings = {"temperature": 1.5, "seed": 3}
    drawn, _, prompt = answers(tmp_path, {}, **settings)
    want = generated({**fields, "do_sample": True}, prompt, do_sample=True, temperature=1.5, top_k=0)
    assert list(drawn.token_ids) != want
    assert list(answers(tmp_path / "own", fields, **settings)[0].token_ids) == want
    assert list(answers(tmp_path / "cold", fields)[0].token_ids) == USUAL, "a likeliest token is not drawn"
    assert without_effect(model(fields)) == ""


def test_stop_strings_end_every_answer(tmp_path: Path) -> None:
    plain, _, _ = answers(tmp_path, {})
    stop = plain.text[5:8]
    for given in ([stop], stop):
        cached, uncached, _ = answers(tmp_path / "own", {"stop_strings": given})
        assert (cached.text, cached.stopped, cached.stop) == (plain.text.partition(stop)[0], "stop", stop)
        assert uncached.text == cached.text
    with Engine(model({"stop_strings": [stop]}), Store.open(tmp_path / "read")) as engine:
        assert engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPT)).fidelity().read_to_end
    both, _, _ = answers(tmp_path / "both", {"stop_strings": ["never"]}, stop=("A",))
    assert both.stop == "A"
    special = model_of("llama-gqa").tokenizer.convert_ids_to_tokens(1)
    assert 1 in model({"stop_strings": [special], "eos_token_id": 2}).end_tokens


NEUTRAL = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "length_penalty": 2.0,
    "early_stopping": True,
    "num_beams": 1,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "diversity_penalty": 0.0,
    "penalty_alpha": 0,
    "guidance_scale": 1.0,
    "bad_words_ids": [],
    "suppress_tokens": [],
    "sequence_bias": {},
    "stop_strings": [],
    "min_length": 0,
    "max_length": 10**6,
    "use_cache": False,
    "cache_implementation": "hybrid",
    "renormalize_logits": True,
    "token_healing": False,
    "presence_penalty": 0.0,
    "pad_token_id": 3,
    "bos_token_id": 0,
    "eos_token_id": [1, 2],
    "output_scores": True,
    "max_window_size": 4096,
    "chat_format": "chatml",
}


def test_what_changes_nothing_is_not_named() -> None:
    assert without_effect(model(NEUTRAL)) == ""
    for name, value in NEUTRAL.items():
        assert without_effect(model({name: value})) == "", name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_beams", 4),
        ("num_beam_groups", 2),
        ("num_return_sequences", 2),
        ("diversity_penalty", 0.5),
        ("penalty_alpha", 0.6),
        ("guidance_scale", 1.5),
        ("dola_layers", "high"),
        ("max_time", 2.0),
        ("max_length", 20),
        ("forced_bos_token_id", 5),
        ("forced_eos_token_id", 1),
        ("token_healing", True),
        ("constraints", ["x"]),
        ("force_words_ids", [[5]]),
        ("watermarking_config", {"bias": 2.5}),
        ("cache_implementation", "quantized"),
        ("presence_penalty", 1.5),
        ("frequency_penalty", 0.2),
        ("temperature", -1.0),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("max_new_tokens", "many"),
        ("min_p", 2.0),
        ("typical_p", -1),
        ("no_repeat_ngram_size", "three"),
        ("bad_words_ids", [[10**6]]),
        ("bad_words_ids", "words"),
        ("sequence_bias", [1]),
        ("suppress_tokens", 8),
        ("stop_strings", [""]),
        ("stop_strings", [5]),
        ("eos_token_id", "</s>"),
        ("eos_token_id", {"a": 1}),
    ],
)
def test_what_is_not_honoured_is_named_and_answers_come_as_without_it(
    tmp_path: Path, name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cached, _, _ = answers(tmp_path, {name: value}, max_new_tokens=2)
    said = [one.getMessage() for one in caplog.records if "generation_config.json" in one.getMessage()]
    assert len(said) == 1
    assert f"{name} ({value!r})" in said[0]
    assert "'m'" in said[0]
    assert list(cached.token_ids) == USUAL[:2]


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({}, {}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"do_sample": False, "temperature": 0.6, "top_k": 20}, {"temperature": 0.0, "top_k": 20}),
        ({"do_sample": False}, {"temperature": 0.0}),
        (
            {"max_new_tokens": 300, "repetition_penalty": 1.1},
            {"max_new_tokens": 300, "repetition_penalty": 1.1},
        ),
        ({"top_k": -1, "top_p": 0.5, "min_p": 0.1}, {"top_p": 0.5, "min_p": 0.1}),
    ],
)
def test_settings_are_those_of_the_makers(fields: dict[str, Any], settings: dict[str, Any]) -> None:
    assert own_settings(model(fields)) == settings


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "line 1"),
        (b"", "line 1"),
        (b"[1, 2]", "it is not a JSON object"),
        (b'"text"', "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b"\xff\xfe{}", "utf-8"),
        (b'{"max_new_tokens": 0}', "max_new_tokens"),
        (b'{"cache_implementation": "other"}', "cache_implementation"),
        (b'{"early_stopping": {}}', ""),
        (b"[" * 100_000, ""),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, data: bytes, words: str) -> None:
    folder = save_tiny(tmp_path / "m")
    (folder / "generation_config.json").write_bytes(data)
    for read in (load, look):
        with pytest.raises(
            ModelError, match=r"generation_config\.json of model .* cannot be read: "
        ) as error:
            read(str(folder))
        assert words in str(error.value)
        assert "delete it" in str(error.value)


def test_a_file_is_honoured_that_says_more(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m")
    (folder / "generation_config.json").write_text(
        json.dumps({"do_sample": False, "temperature": 0.3, "suppress_tokens": [8], "num_beams": 3})
    )
    loaded = load(str(folder))
    assert loaded.generation.rules == {"suppress_tokens": [8]}
    assert own_settings(loaded)["temperature"] == 0.0
    assert "num_beams (3)" in without_effect(loaded)
