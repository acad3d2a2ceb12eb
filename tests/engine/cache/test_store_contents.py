"""The header of a segment's file: it says exactly what the index says, or the file is not used."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.store import SCHEMES, Scheme
from engine.store.blobs import contents
from engine.store.blobs.codec import pack

SHAPE = (2, 3, 5, 8)
Header = dict[str, Any]


def content(scheme: Scheme = "plain", **notes: str) -> bytes:
    """A file as it should be."""
    keys, values = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    return safetensors.torch.save(pack(keys.contiguous(), values.contiguous(), scheme), notes or None)


def header_of(data: bytes) -> Header:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def with_header(data: bytes, header: Header | bytes) -> bytes:
    """The same tensors under another header."""
    (length,) = struct.unpack("<Q", data[:8])
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def fault(data: bytes, scheme: Scheme = "plain", said: dict[str, str] | None = None) -> str | None:
    try:
        contents.check(io.BytesIO(data), len(data), scheme, SHAPE, "float32", said)
    except contents.DamagedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_the_product_writes_has_no_fault(scheme: Scheme) -> None:
    assert fault(content(scheme, key="k"), scheme, {"key": "k", "model": "m"}) is None


@pytest.mark.parametrize("written", SCHEMES)
@pytest.mark.parametrize("said", SCHEMES)
def test_a_file_of_another_scheme_has_one(written: Scheme, said: Scheme) -> None:
    assert (fault(content(written), said) is None) == (written == said)


def swapped(header: Header) -> None:
    one, other = header["keys"]["data_offsets"], header["values"]["data_offsets"]
    header["keys"]["data_offsets"], header["values"]["data_offsets"] = other, one


def changed(*path: Any, to: Any) -> Callable[[Header], None]:
    """Puts something else at a place of the header."""

    def change(header: Header) -> None:
        for name in path[:-1]:
            header = header[name]
        header[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda header: header.pop("values"), "it has keys and should have keys, values"),
        (changed("more", to={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}), "it has keys, more"),
        (changed("keys", "dtype", to="F16"), "its keys are F16"),
        (changed("keys", "shape", to=[2, 3, 8, 5]), r"its keys are F32 \[2, 3, 8, 5\]"),
        (changed("keys", to=["F32", [2, 3, 5, 8], [0, 960]]), "its keys are None"),
        (changed("keys", "data_offsets", to=[0]), "invalid offsets"),
        (changed("keys", "data_offsets", to=[0, 960.0]), "invalid offsets"),
        (changed("keys", "data_offsets", to=[False, 960]), "invalid offsets"),
        (changed("keys", "data_offsets", to=[960, 0]), "overlap, or leave gaps"),
        (changed("values", "data_offsets", to=[0, 960]), "overlap, or leave gaps"),
        (changed("values", "data_offsets", to=[961, 1920]), "overlap, or leave gaps"),
        (changed("values", "data_offsets", to=[960, 1921]), "its tensors end at 1921 and its data at 1920"),
        (changed("__metadata__", to=["key"]), "not strings"),
        (changed("__metadata__", to={"key": 5}), "not strings"),
        (changed("__metadata__", to={"key": "other"}), "its header has another key"),
    ],
)
def test_a_header_that_does_not_fit_is_said_in_words(change: Callable[[Header], None], words: str) -> None:
    data = content(key="k")
    header = header_of(data)
    change(header)
    assert fault(data, said={"key": "k"}) is None
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(fault(with_header(data, header), said={"key": "k"}))


def test_where_keys_and_values_stand_is_theirs_to_say() -> None:
    data = content()
    header = header_of(data)
    swapped(header)
    assert fault(with_header(data, header)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 0),
        struct.pack("<Q", contents.MOST_HEADER + 1) + b" " * 100,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"\xff\xff",
        struct.pack("<Q", 20_000) + b"[" * 20_000,
        struct.pack("<Q", 19_000) + b"[" * 19_000,
        struct.pack("<Q", 60_001) + b"[" + b"0," * 30_000,
        struct.pack("<Q", 13) + b'{"a":1,"a":2}',
        struct.pack("<Q", 21) + b'{"x":{"a":1,"a":2}}  ',
    ],
    ids=range(13),
)
def test_what_is_no_header_is_refused_within_bounds(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        contents.read(io.BytesIO(data))
    assert "its header cannot be read" in str(fault(data))


@given(st.binary(max_size=200), st.integers(0, 300))
def test_drawn_bytes_are_never_taken_for_a_segment(noise: bytes, at: int) -> None:
    """A header that is spoiled anywhere has a fault, or says the same; nothing but a fault comes of it."""
    data = content(key="k")
    spoiled = data[:at] + noise + data[at + len(noise) :]
    found = fault(spoiled, said={"key": "k"})
    if found is None:
        before, after = header_of(data), header_of(spoiled)
        for header in (before, after):
            header.pop("__metadata__", None)
        assert after == before
    assert isinstance(fault(noise), str)
