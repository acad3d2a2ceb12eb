"""Calling `pml` as a terminal does, inside the test's own process, and a folder to call it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.command import main
from tests.app.studio.studio_server import Served

SCHEMA = """<schema name="trip">
  You plan trips.
  <module name="plan">I am away for <param name="duration" len="12"/>.
    <union>
      <module name="tokyo">Tokyo has gardens.</module>
      <module name="rome">Rome has ruins.</module>
    </union>
  </module>
</schema>
"""
PROMPT = '<prompt schema="trip"><plan duration="3 days"><tokyo/></plan>Where should I eat?</prompt>\n'


@pytest.fixture
def run_pml(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Runs `pml` with some words: its status, and what it wrote to standard output and standard error."""

    def call(*arguments: str | Path) -> SimpleNamespace:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=left.value.code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 20 thousand parameters with one token per byte, as `save_pretrained` writes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from engine.checkpoint.synthetic import byte_tokenizer

    folder = tmp_path_factory.mktemp("tiny-model")
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=259,
        max_position_embeddings=32768,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schema and a prompt; the environment names the model and an empty store."""
    (tmp_path / "trip.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "prompt.pml").write_text(PROMPT, encoding="utf-8")
    monkeypatch.setenv("PML_MODEL", str(tiny_model))
    monkeypatch.setenv("PML_DEVICE", "cpu")
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One running studio for all tests that ask over HTTP."""
    server = Served(tmp_path_factory.mktemp("studio"))
    yield server
    server.stop()
