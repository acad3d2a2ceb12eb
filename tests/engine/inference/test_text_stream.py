"""Streamed text is the decoding of the whole, whatever the tokens are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.text_stream import TextStream, decodes_by_itself
from tests.drawing import draws

SPECIAL = ["<unk>", "<s>", "</s>"]
PIECES = ["▁", "▁▁", "▁the", "the", "a", "b", "c", "é", "▁🙂", "!", ".", "\ufffd", "E", "EN", "D"]
EMOJI = [*"🙂".encode()]
FAST: Any = PreTrainedTokenizerFast


def fast(model: Any, decoder: Any = None, **options: Any) -> Any:
    backend = Tokenizer(model)
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(SPECIAL)
    return FAST(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", **options)


def with_bytes(*after: Any) -> Any:
    """As Llama 2 and Gemma have it: characters outside the vocabulary are spelled in bytes."""
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    vocabulary = {name: index for index, name in enumerate(names)}
    model = models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    return fast(model, decoders.Sequence(steps))


def words(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate([*SPECIAL, *names])}


class Shouting(FAST):
    """A tokenizer with code of its own behind the library's."""

    def _decode(self, *args: Any, **kwargs: Any) -> str:
        return str(super()._decode(*args, **kwargs)).upper()


class Joining(FAST):
    """One that joins pieces of words, as CTRL's does: the next token changes the text of the latest."""

    def _decode(self, *args: Any, **kwargs: Any) -> str:
        return str(super()._decode(*args, **kwargs)).replace("@@ ", "")


def joining() -> Any:
    plain = fast(models.WordLevel(words(["hel@@", "lo", "w@@", "a"]), unk_token="<unk>"))
    return Joining(tokenizer_object=plain.backend_tokenizer, bos_token="<s>", eos_token="</s>")


def shouting() -> Any:
    plain = byte_tokenizer()
    return Shouting(tokenizer_object=plain.backend_tokenizer, bos_token="<s>", eos_token="</s>")


PIECES_OF_WORDS = ["the", "##ing", "a", ".", "##s", ",", "'", "n't", "do"]
MAKERS: dict[str, Any] = {
    "byte-level": byte_tokenizer,
    "byte fallback, stripped": lambda: with_bytes(decoders.Strip(" ", 1, 0)),
    "byte fallback": with_bytes,
    "metaspace": lambda: fast(
        models.Unigram([(p, -1.0) for p in words(PIECES)], unk_id=0), decoders.Metaspace()
    ),
    "word pieces": lambda: fast(
        models.WordPiece(words(PIECES_OF_WORDS), unk_token="<unk>"), decoders.WordPiece()
    ),
    "no decoder": lambda: fast(models.WordLevel(words(["a", "b"]), unk_token="<unk>")),
    "cleaned up": lambda: fast(
        models.WordLevel(words([*"ant'.,? ", "n't"]), unk_token="<unk>"), clean_up_tokenization_spaces=True
    ),
    "cleaned up pieces": lambda: fast(
        models.Unigram([(p, -1.0) for p in words([*"▁an'ts.", "▁'"])], unk_id=0),
        decoders.Metaspace(),
        clean_up_tokenization_spaces=True,
    ),
    "joined pieces": joining,
    "code of its own": shouting,
    "no backend": ByT5Tokenizer,
}
SLOW = {"cleaned up", "cleaned up pieces", "joined pieces", "code of its own", "no backend"}


@functools.cache
def tokenizer_of(name: str) -> Any:
    return MAKERS[name]()


def drawn(name: str) -> st.SearchStrategy[list[int]]:
    """Tokens, unknown ones too, with emoji and runs of bytes that fit no character among them."""
    tokenizer = tokenizer_of(name)
    size = len(tokenizer)
    most = size - 1 if name == "no backend" else size + 1
    anything = st.integers(0, most).map(lambda token: [token])
    offset = {"byte fallback": 3, "byte fallback, stripped": 3, "no backend": 3}.get(name)
    parts = [anything]
    if offset is not None:
        parts.append(st.just([offset + byte for byte in EMOJI]))
        parts.append(st.integers(offset + 256, size - 1).map(lambda token: [token]))
    if name == "byte-level":
        parts.append(st.just(tokenizer.encode("🙂 é", add_special_tokens=False)))
    return st.lists(st.one_of(parts), max_size=16).map(lambda runs: [token for run in runs for token in run])


def streamed(
    tokenizer: Any, tokens: Sequence[int], stops: Sequence[str] = (), *, continues: bool = False
) -> tuple[list[int], TextStream, str]:
    """The tokens until a stop text, the stream, and its pieces together."""
    stream, text, read = TextStream(tokenizer, stops, continues=continues), "", []
    for token in tokens:
        read.append(token)
        text += stream.add(token)
        assert stream.text == text
        if stream.stopped:
            break
    text += stream.rest()
    assert stream.text == text
    return read, stream, text


@pytest.mark.parametrize("name", MAKERS)
def test_the_pieces_are_the_decoding_of_the_whole(name: str) -> None:
    tokenizer = tokenizer_of(name)

    @settings(max_examples=draws(100))
    @given(drawn(name))
    def check(tokens: list[int]) -> None:
        _, _, text = streamed(tokenizer, tokens)
        assert text == tokenizer.decode(tokens, skip_special_tokens=True)

    check()


@pytest.mark.parametrize("name", MAKERS)
def test_what_goes_on_from_a_text_is_the_rest_of_both(name: str) -> None:
    tokenizer = tokenizer_of(name)
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    begun = tokenizer.decode(before, skip_special_tokens=True)

    @settings(max_examples=draws(100))
    @given(drawn(name))
    def check(tokens: list[int]) -> None:
        _, _, text = streamed(tokenizer, tokens, continues=True)
        both = tokenizer.decode([*before, *tokens], skip_special_tokens=True)
        alone = tokenizer.decode(tokens, skip_special_tokens=True)
        assert text == (both.removeprefix(begun) if begun == "a" else alone)

    check()


@pytest.mark.parametrize("name", MAKERS)
def test_a_stop_text_is_found_wherever_tokens_end(name: str) -> None:
    tokenizer = tokenizer_of(name)

    @settings(max_examples=draws(100))
    @given(drawn(name), st.data())
    def check(tokens: list[int], data: st.DataObject) -> None:
        whole = tokenizer.decode(tokens, skip_special_tokens=True)
        stops = ["END", "\ue000"]
        if whole:
            begin = data.draw(st.integers(0, len(whole) - 1))
            stops.append(whole[begin : begin + data.draw(st.integers(1, 4))])
        read, stream, text = streamed(tokenizer, tokens, stops)
        whole = tokenizer.decode(read, skip_special_tokens=True)
        ends = [whole.find(stop) for stop in stops if stop in whole]
        assert stream.stopped == bool(ends)
        assert text == whole[: min(ends, default=None)]
        assert stream.add(tokens[0] if tokens else 0) == "" or not stream.stopped

    check()


@pytest.mark.parametrize("name", MAKERS)
def test_a_stop_text_may_be_a_special_token_though_it_has_no_text(name: str) -> None:
    tokenizer = tokenizer_of(name)
    end, stop = tokenizer.eos_token_id, tokenizer.eos_token

    @settings(max_examples=draws(100))
    @given(drawn(name), drawn(name))
    def check(tokens: list[int], more: list[int]) -> None:
        read, stream, text = streamed(tokenizer, [*tokens, end, *more], [stop])
        assert (stream.stopped, stream.stop, read.index(end)) == (True, stop, len(read) - 1)
        assert text == tokenizer.decode(read, skip_special_tokens=True)

    check()


@pytest.mark.parametrize("name", ["byte-level", "cleaned up pieces"])
def test_a_stop_text_has_special_tokens_among_others(name: str) -> None:
    tokenizer = tokenizer_of(name)
    end = tokenizer.eos_token_id
    first, second = (tokenizer.encode(text, add_special_tokens=False) for text in ("an", "ta"))
    before, behind = (tokenizer.decode(ids) for ids in (first, second))
    tokens = [*first, end, *second, *first]
    for stop in (f"{before[-1:]}</s>", f"</s>{behind[:1]}", f"{before[-1:]}</s>{behind}"):
        _, stream, text = streamed(tokenizer, tokens, [stop, "</s>!"])
        assert (stream.stop, text) == (stop, before.removesuffix(stop.partition("</s>")[0])), stop
    for other in ("</s>!", "<s>", "</s></s>"):
        _, stream, text = streamed(tokenizer, tokens, [other])
        assert (stream.stop, text) == (None, tokenizer.decode(tokens, skip_special_tokens=True))


def test_a_stop_text_that_spells_a_special_token_may_come_letter_by_letter() -> None:
    tokenizer = byte_tokenizer()
    tokens = tokenizer.encode("Hi</s> you", add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.eos_token_id not in tokens
    _, stream, text = streamed(tokenizer, tokens, ["</s>"])
    assert (stream.stop, text) == ("</s>", "Hi")


@pytest.mark.parametrize("name", MAKERS)
def test_who_decodes(name: str) -> None:
    assert decodes_by_itself(tokenizer_of(name)) == (name not in SLOW)


def test_bytes_of_a_vocabulary_wait_for_what_they_spell() -> None:
    tokenizer = tokenizer_of("byte fallback")
    line, b = 3 + ord("\n"), tokenizer.convert_tokens_to_ids("b")
    stream = TextStream(tokenizer)
    assert [stream.add(token) for token in (b, line, *(3 + byte for byte in EMOJI), b)] == [
        *("b", "", "", "", "", "", "\n🙂b"),
    ]
    cut = TextStream(tokenizer)
    assert "".join(cut.add(token) for token in (b, line, 3 + EMOJI[0])) == "b"
    assert cut.rest() == "\ufffd\ufffd", (
        "as the whole is decoded: what fits no character takes its line with it"
    )


def test_a_decoder_that_changes_what_was_given_ends_no_answer() -> None:
    changing = decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "X")])
    tokenizer = fast(models.WordLevel(words("abc"), unk_token="<unk>"), changing)
    stream = TextStream(tokenizer)
    given = [stream.add(tokenizer.convert_tokens_to_ids(token)) for token in "abcc"]
    assert (given, stream.rest()) == (["a", "", "", ""], "cc"), "what was given stays, and the end is told"


def test_a_token_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an answer of n tokens decodes n² / 2 of them."""
    tokenizer = tokenizer_of("byte-level")
    monkeypatch.setattr(type(tokenizer), "decode", lambda *_, **__: pytest.fail("the whole is decoded again"))
    monkeypatch.setattr("engine.inference.text_stream.decodes_by_itself", lambda _: True)
    stream = TextStream(tokenizer)
    tokens = tokenizer.encode("a line of text", add_special_tokens=False)
    assert "".join(stream.add(token) for token in tokens) == "a line of text"
