"""What a model's files hold that answers do not come from, and tokens it does not know, reach its user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.models.model_choice import ModelChoice, why_larger
from engine import Engine
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.loading import load
from engine.model.model_files import Stored
from tests.app.conftest import SCHEMA
from tests.app.server.served import served
from tests.app.studio.asked import Asked

Pml = Callable[..., SimpleNamespace]
ODD = '<prompt schema="trip"><plan duration="3 days"><tokyo/></plan>Is it oddly cold?</prompt>'
MASK = "model.layers.0.self_attn.masked_bias"


@pytest.fixture
def odd_model(tiny_model: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a token that it does not know, and a table beside its weights."""
    folder = place / "odd-model"
    folder.mkdir()
    weights = load_file(tiny_model / "model.safetensors") | {MASK: torch.tensor(-1e9)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes((tiny_model / "config.json").read_bytes())
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["oddly"])
    tokenizer.save_pretrained(folder)
    monkeypatch.setenv("PML_MODEL", str(folder))
    return folder


@pytest.mark.usefixtures("odd_model")
def test_the_command_line_says_both(run_pml: Pml, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    shown = run_pml("models", "--json")
    notes = json.loads(shown.out)["notes"]
    assert [any(words in note for note in notes) for words in (MASK, "'oddly' (259)")] == [True, True]
    run = ("run", "prompt.pml", "--schema", "trip.pml", "--mode", "cached", "--server", "never")
    good = run_pml(*run, "--max-new-tokens", "2")
    assert good.status == 0
    assert caplog.messages[-2:] == notes
    (place / "prompt.pml").write_text(ODD)
    refused = run_pml(*run)
    assert refused.status == 1
    assert "E509" in refused.err
    assert "'oddly' (259)" in refused.err
    checked = run_pml("check", "prompt.pml", "--schema", "trip.pml", "--model", place / "odd-model", "--json")
    (found,) = json.loads(checked.out)["files"][0]["diagnostics"]
    assert (checked.status, found["code"]) == (1, "E509")


def test_the_page_says_both(odd_model: Path, tmp_path: Path) -> None:
    studio, kept = Asked(tmp_path / "studio"), {"cache_dir": tmp_path / "cache"}
    studio.parts.switching.begun(Engine.open(odd_model, **kept), ModelChoice(str(odd_model)), kept)
    try:
        notes = studio.ask("models_state")["loaded"]["notes"]
        assert [MASK in notes[0], "'oddly' (259)" in notes[1]] == [True, True]
        texts: Any = {"schema": SCHEMA, "prompt": ODD}
        assert "E509" in json.dumps(studio.ask("measure", {**texts, "settings": {}}))
        studio.ask("run_prompt", {**texts, "key": "k", "settings": {}})
        assert "'oddly' (259)" in studio.ended("k")["result"]["message"]
    finally:
        studio.parts.opening.leave().close()


ODDLY = [{"role": "user", "content": "oddly"}]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": ODDLY}),
    ("/v1/chat/completions", {"messages": ODDLY, "stream": True}),
    ("/v1/completions", {"prompt": "How oddly"}),
    ("/v1/responses", {"input": "oddly"}),
    ("/v1/messages", {"messages": ODDLY, "max_tokens": 2}),
    ("/v1/messages/count_tokens", {"messages": ODDLY}),
]


def test_the_server_refuses_such_a_token_in_words(odd_model: Path, tmp_path: Path) -> None:
    with served(tmp_path / "served", model=load(str(odd_model))) as running:
        for path, more in REQUESTS:
            answer = running.http.post(path, json={"model": running.model, **more})
            assert answer.status_code == 400, path
            assert "'oddly' (259)" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("four_bits", "memory", "dtype", "weights", "words"),
    [
        (
            True,
            513,
            "fp32",
            "plain",
            "takes 4 bytes (fp32). In bf16 on the processor the file's four-bit blocks",
        ),
        (False, 513, "fp32", "plain", "takes 4 bytes (fp32)."),
        (True, 160, "bf16", "four-bit", "Four-bit blocks stay unchanged"),
        (False, 40, "bf16", "int4", "rounded to int4"),
        (True, 110, "bf16", "four-bit", ""),
    ],
)
def test_another_size_in_memory_has_a_reason(
    four_bits: bool, memory: int, dtype: str, weights: str, words: str
) -> None:
    found = why_larger(Stored("m", "GGUF Q4_1", 94, four_bits), memory, dtype, weights)
    assert words in found
    assert bool(words) == bool(found)
