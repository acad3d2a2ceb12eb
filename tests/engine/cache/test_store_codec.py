"""Compressed keys and values: bounded errors, exact sizes, the same tokens on hit and on miss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.base.errors import StoreError
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.store import Store
from engine.store.blobs.codec import SCHEMES, pack, rounded, unpack
from tests.engine.cases import Case, model_of, prompt_of, schema_of

SCHEMA = (
    '<schema name="s">Read. <module name="a">alpha and on</module><module name="b">beta</module></schema>'
)
PROMPT = "<prompt><a/><b/> so?</prompt>"


def states(
    tokens: int, head: int = 64, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    keys, values = torch.randn(2, 3, 2, tokens, head, generator=generator)
    keys[..., 3] += 40  # a channel far from zero, as keys have them
    return keys.to(dtype), values.to(dtype)


@pytest.mark.parametrize("tokens", [1, 7, 64, 129])
@pytest.mark.parametrize(("scheme", "levels"), [("int8", 254), ("int4", 15)])
def test_what_comes_back_is_within_half_a_step(scheme, levels: int, tokens: int) -> None:
    keys, values = states(tokens)
    back = unpack(pack(keys, values, scheme), scheme, tuple(keys.shape), keys.dtype)
    for one, other, along in ((keys, back[0], 2), (values, back[1], 3)):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        reach = one.amax(along, keepdim=True) - one.amin(along, keepdim=True)
        if scheme == "int8" and along == 3:  # centred at zero
            reach = 2 * one.abs().amax(along, keepdim=True)
        rounding = 4e-3 * one.abs().amax(along, keepdim=True)  # of step and lowest number to fp16
        assert ((one - other).abs() <= 0.51 * reach / levels + rounding).all()


def test_plain_is_unchanged() -> None:
    keys, values = states(9)
    back = unpack(pack(keys, values, "plain"), "plain", tuple(keys.shape), keys.dtype)
    assert torch.equal(back[0], keys)
    assert torch.equal(back[1], values)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_what_a_file_gives(scheme, dtype: torch.dtype) -> None:
    keys, values = states(33, dtype=dtype)
    now = rounded(keys, values, scheme)
    later = unpack(pack(keys, values, scheme), scheme, tuple(keys.shape), dtype)
    again = rounded(*now, scheme)
    for one, other in zip(now, later, strict=True):
        assert torch.equal(one, other)
    if scheme == "plain":
        assert torch.equal(again[0], keys)


def test_odd_numbers_survive_the_extremes() -> None:
    keys, values = torch.zeros(1, 1, 3, 5), torch.full((1, 1, 3, 5), -7.0)
    for scheme in SCHEMES:
        back = unpack(pack(keys, values, scheme), scheme, (1, 1, 3, 5), torch.float32)
        assert torch.isfinite(back[0]).all()
        assert (back[0].abs().max(), (back[1] + 7).abs().max()) <= (1e-4, 0.06)


def test_sizes() -> None:
    """Of 128 tokens with 64 channels, against two bytes a number."""
    keys, values = states(128, dtype=torch.bfloat16)
    plain = sum(t.nbytes for t in pack(keys, values, "plain").values())
    assert plain == keys.nbytes + values.nbytes
    for scheme, share in (("int8", 0.53), ("int4", 0.35)):
        assert sum(t.nbytes for t in pack(keys, values, scheme).values()) <= share * plain


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_the_scheme_is_part_of_the_name_and_hits_equal_misses(scheme, tmp_path: Path) -> None:
    model = model_of("llama-gqa", chat=False)
    plain = Engine(model, Store.open(tmp_path))
    reference = Case(plain, schema_of(SCHEMA), prompt_of(PROMPT)).logits()
    plain.store.settings.set_scheme(scheme)
    plain.close()
    engine = Engine(model, Store.open(tmp_path))
    assert engine.store.settings.scheme == scheme
    first = Case(engine, schema_of(SCHEMA), prompt_of(PROMPT))
    assert len(first.supplied.encoded) == 3
    miss = first.logits()
    engine.close()
    again = Engine(model, Store.open(tmp_path, verify="always"))
    case = Case(again, schema_of(SCHEMA), prompt_of(PROMPT))
    assert {use.tier for use in case.supplied.uses} == {"disk"}
    assert torch.equal(case.logits(), miss)
    assert 0 < (miss - reference).abs().max().item() < (0.2 if scheme == "int8" else 3)
    assert {row["scheme"] for row in again.store.segments()} == {"plain", scheme}
    assert again.store.verify().clean
    again.close()


def test_a_scheme_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="scheme is 'int2'"):
        Store.open(tmp_path).settings.set_scheme("int2")  # type: ignore[arg-type]


def test_repair_reads_compressed_segments_too(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.settings.set_scheme("int8")
    engine = Engine(model_of("llama-gqa", chat=False), store)
    case = Case(engine, schema_of(SCHEMA), prompt_of(PROMPT))
    assert case.logits("blend:0.5").shape[0] > case.logits().shape[0]
    assert RunSettings(repair="blend:0.5")
    engine.close()
