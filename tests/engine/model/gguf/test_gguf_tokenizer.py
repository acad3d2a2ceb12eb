"""A tokenizer from the header of a GGUF file gives the tokens that its model was trained with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Punctuation, Split

from engine.base.errors import ModelError
from engine.gguf.tokenizer import build
from engine.inference.text_stream import TextStream
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tokenizer import Fragment, Together, Tokenizer
from tests.drawing import draws

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
CORPUS = [
    "the map of Rome and the map of Tokyo, it's John's; they'll SEE 'LL don't 2024 12345",
    "def f(x):\n    return x ** 2\n\n\tif a != b:  print('hello  world')\r\n",
    "Привет мир, как дела? 你好世界。 こんにちは नमस्ते สวัสดี مرحبا 🚀 éa naïve HTTPServer getURL",
]
ALPHABET = st.sampled_from([*"aeT's  \n\t\r12.,!=é你é🚀ख़्L<|>_", "the", " map", "123", "'ll", "ſ"])
TEXTS = st.lists(ALPHABET, max_size=30).map("".join)


def header(model: str, tokens: list[str], types: list[int] | None = None, **more: Any) -> dict[str, Any]:
    values = {"model": model, "tokens": tokens, "token_type": types or [NORMAL] * len(tokens), **more}
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def trained(split: PreTokenizer, **more: Any) -> Backend:
    made = Backend(models.BPE(**more))
    made.pre_tokenizer = split
    alphabet = ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=alphabet)
    )
    return made


def header_of(made: Backend, pre: str | None, *specials: tuple[str, int], **more: Any) -> dict[str, Any]:
    model = json.loads(made.to_str())["model"]
    tokens = [*model["vocab"], *(name for name, _ in specials)]
    merges = [" ".join(pair) for pair in model["merges"]]
    types = [*[NORMAL] * len(model["vocab"]), *(kind for _, kind in specials)]
    return header("gpt2", tokens, types, pre=pre, merges=merges, **more)


def bytes_alone() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False)


def split(pattern: str) -> PreTokenizer:
    return pre_tokenizers.Sequence([Split(Regex(pattern), "isolated"), bytes_alone()])


def llama3(digits: str) -> PreTokenizer:
    return split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


SPLITS: dict[str, Callable[[], PreTokenizer]] = {
    "gpt-2": gpt2,
    "olmo": gpt2,
    "smollm": lambda: pre_tokenizers.Sequence([Digits(individual_digits=True), gpt2()]),
    "command-r": lambda: pre_tokenizers.Sequence([Digits(individual_digits=True), gpt2()]),
    "falcon": lambda: pre_tokenizers.Sequence(
        [Punctuation("contiguous"), gpt2(), Split(Regex("[0-9][0-9][0-9]"), "isolated")]
    ),
    "llama-bpe": lambda: llama3(r"\p{N}{1,3}"),
    "dbrx": lambda: llama3(r"\p{N}{1,3}"),
    "qwen2": lambda: llama3(r"\p{N}"),
    "deepseek-r1-qwen": lambda: llama3(r"\p{N}"),
}


@pytest.mark.parametrize("pre", SPLITS)
def test_the_tokens_are_those_of_the_tokenizer_that_was_trained(pre: str) -> None:
    whole = {"ignore_merges": True} if pre == "llama-bpe" else {}
    original = trained(SPLITS[pre](), **whole)
    made = build("m", header_of(original, pre))

    @given(TEXTS)
    @settings(max_examples=draws(60), deadline=None)
    def same(text: str) -> None:
        ids = made(text, add_special_tokens=False)["input_ids"]
        assert ids == original.encode(text).ids
        assert made.decode(ids) == text

    same()
    for text in CORPUS:
        assert made(text, add_special_tokens=False)["input_ids"] == original.encode(text).ids


PIECES = [
    ("gpt-2", "a 123  it's'S", ["a", " 123", " ", " it", "'s", "'", "S"]),
    ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
    ("llama-bpe", "A12345 I'LL\n\n x", ["A", "123", "45", " I", "'LL", "\n\n", " x"]),
    ("chatglm-bpe", "12345", ["123", "45"]),
    ("qwen2", "a(b)12!\n\n", ["a", "(b", ")", "1", "2", "!\n\n"]),
    ("qwen35", "कि12", ["कि", "1", "2"]),
    ("qwen2", "कि", ["क", "ि"]),
    ("tekken", "getURLfor it's 12/\n", ["get", "URLfor", " it", "'s", " ", "1", "2", "/\n"]),
    ("gpt-4o", "getURL it's 1234/\n", ["get", "URL", " it's", " ", "123", "4", "/\n"]),
    ("deepseek-llm", "a 12你好 b\n", ["a", " ", "12", "你好", " b", "\n"]),
    ("deepseek-coder", "a !12\n", ["a", " !", "1", "2", "\n"]),
    ("deepseek-v3", "1234你好;if x", ["123", "4", "你好", ";if", " x"]),
    ("falcon", "a, 12345`", ["a", ",", " ", "123", "45", "`"]),
    ("default", "a, 12345`$", ["a", ",", " ", "123", "45", "`", "$"]),
    (None, "a 12345", ["a", " ", "123", "45"]),
    ("bloom", "a, b.c", ["a", ",", " b", ".", "c"]),
    ("viking", "a12", ["a", "1", "2"]),
    ("bailingmoe", "a'S12", ["a", "'S", "1", "2"]),
    ("seed-coder", "a!\n", ["a", "!", "\n"]),
    ("ufakzeka", "Ali's", ["Ali", "'s"]),
    ("ufakzeka", "Ali'nin 'll", ["Ali", "'nin", " '", "ll"]),
    ("minicpm5", "1234", ["123", "4"]),
    ("laguna", "a \nb", ["a", " ", "\n", "b"]),
    ("spark2_5", "!\n\n", ["!", "\n", "\n"]),
    ("youtu", "a！！你", ["a", "！！", "你"]),
    ("tiny_aya", "1234567", ["1", "234", "567"]),
    ("exaone-moe", "a b!/", ["a b", "!/"]),
]


@pytest.mark.parametrize(("pre", "text", "pieces"), PIECES)
def test_each_rule_splits_as_it_says(pre: str | None, text: str, pieces: list[str]) -> None:
    made = build("m", header("gpt2", ByteLevel.alphabet(), pre=pre, merges=[]))
    found = made.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in found] == pieces


@pytest.mark.parametrize(("pre", "expected"), [("llama-bpe", ["abc"]), ("dbrx", ["ab", "c"])])
def test_some_rules_take_a_part_that_is_a_token_as_it_is(pre: str, expected: list[str]) -> None:
    made = build("m", header("gpt2", [*ByteLevel.alphabet(), "ab", "abc"], pre=pre, merges=["a b"]))
    assert made.tokenize("abc") == expected


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def pieces_header(
    pieces: dict[str, float], kinds: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *((kinds or {}).get(one, NORMAL) for one in pieces)]
    scores = [0.0] * 259 + list(pieces.values())
    return header("llama", tokens, types, **{"scores": scores, **more})


def slow(text: str, pieces: dict[str, float]) -> list[str]:
    """What SentencePiece does: the best pair first, the leftmost of equals."""
    parts = list(text)
    while True:
        pairs = [(pieces.get(a + b, -math.inf), -place) for place, (a, b) in enumerate(pairwise(parts))]
        best, place = max(pairs, default=(-math.inf, 0))
        if best == -math.inf:
            break
        parts[-place : 2 - place] = ["".join(parts[-place : 2 - place])]
    return [
        one
        for part in parts
        for one in ([part] if part in pieces else [f"<0x{b:02X}>" for b in part.encode()])
    ]


@given(
    st.dictionaries(st.text("ab▁", min_size=2, max_size=4), st.integers(-99, -10).map(float), max_size=25),
    st.lists(st.text("ab cé", max_size=12), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=draws(80), deadline=None)
def test_merges_go_by_score(drawn: dict[str, float], texts: list[str], prefix: bool) -> None:
    ranked = sorted(drawn, key=lambda one: (drawn[one], one))
    pieces = {one: -float(place) for place, one in enumerate(reversed(ranked))} | {
        "a": -90.0,
        "b": -91.0,
        "▁": -92.0,
    }
    made = build("m", pieces_header(pieces, add_space_prefix=prefix))
    for text in texts:
        spelled = (("▁" if prefix and text else "") + text).replace(" ", "▁")
        ids = made(text, add_special_tokens=False)["input_ids"]
        assert made.convert_ids_to_tokens(ids) == slow(spelled, pieces)
        assert made.decode(ids) == text


def test_runs_of_spaces_with_equal_scores_are_taken_from_the_left() -> None:
    runs = {"▁" * count: 0.0 for count in range(1, 6)}
    made = build("m", pieces_header(runs | {"a": -1.0}, add_space_prefix=False))
    for count in range(1, 23):
        expected = [*["▁" * 5] * (count // 5), *(["▁" * (count % 5)] if count % 5 else [])]
        assert made.tokenize(" " * count) == expected


def test_scores_that_order_nothing_are_refused() -> None:
    """Some converters give every token the same score: then the text "abc" may be "ab c" or "a bc"."""
    pieces = dict.fromkeys(["a", "b", "c", "bc", "ab", "abcd", "cd"], -1000.0)
    with pytest.raises(ModelError, match="most tokens have the same score"):
        build("m", pieces_header(pieces))


def test_tokens_of_endless_length_are_refused() -> None:
    with pytest.raises(ModelError, match="a token has 513 characters"):
        build("m", pieces_header({"a" * count: -float(count) for count in (1, 2, 513)}))
    assert build("m", pieces_header({"a" * count: -float(count) for count in (1, 2, 512)})).tokenize("aa")


def test_a_text_begins_with_a_space_where_the_file_does_not_say_otherwise() -> None:
    pieces = {"▁": -9.0, "h": -9.0, "i": -9.0, "hi": -1.0, "▁hi": -2.0}
    made = build("m", pieces_header(pieces))
    assert made.convert_ids_to_tokens(made("hi")["input_ids"]) == ["<s>", "▁hi"]
    assert made.convert_ids_to_tokens(made("hi", "i")["input_ids"]) == ["<s>", "▁hi", "<s>", "▁", "i"]
    assert made.tokenize("hi<s>hi é") == ["▁hi", "<s>", "▁hi", "▁", "<0xC3>", "<0xA9>"]
    assert made.decode(made("hi é")["input_ids"], skip_special_tokens=True) == "hi é"
    tokens = Tokenizer(made)
    assert made.convert_ids_to_tokens(tokens.plain("hi")) == ["hi"]
    assert made.convert_ids_to_tokens(tokens.encode([Fragment("hi")], begins=True)[0]) == ["▁hi"]


def test_a_vocabulary_without_bytes_has_one_unknown_token_for_a_run() -> None:
    made = build(
        "m", header("llama", ["<unk>", "a", "▁"], [UNKNOWN, NORMAL, NORMAL], scores=[0.0, -1.0, -2.0])
    )
    assert made.tokenize("aéüa") == ["▁", "a", "<unk>", "a"]


def test_gemma4_has_its_merges_listed_and_none_across_line_breaks() -> None:
    tokens = ["<unk>", "<bos>", *BYTES, "▁", "a", "\n", "\n\n", "▁a", "a\n"]
    types = [UNKNOWN, CONTROL, *[BYTE] * 256, *[NORMAL] * 6]
    merges = ["▁ a", "a \n", "\n \n"]
    made = build("m", header("gemma4", tokens, types, merges=merges, bos_token_id=1, add_bos_token=False))
    assert made.convert_ids_to_tokens(made("a a\n\né")["input_ids"]) == [
        *["<bos>", "a", "▁a", "\n\n", "<0xC3>", "<0xA9>"]
    ]


KINDS = (("<|im_end|>", NORMAL), ("<|x|>", CONTROL), ("<tool>", USER), ("[PAD9]", UNUSED), ("  ", USER))


@pytest.fixture(name="kinds")
def _kinds() -> Any:
    return build("m", header_of(trained(gpt2()), "gpt-2", *KINDS))


def test_control_tokens_are_special_and_user_defined_ones_are_found_in_any_text(kinds: Any) -> None:
    tokens = Tokenizer(kinds)
    ids = {name: kinds.convert_tokens_to_ids(name) for name, _ in KINDS}
    text = "".join(ids)
    assert set(ids.values()) & set(tokens.marked(text)) == {ids[one] for one in ids if one != "[PAD9]"}
    assert set(ids.values()) & set(tokens.plain(text)) == {ids["<tool>"], ids["  "]}
    assert kinds.decode(tokens.plain(text)) == text
    assert [text[a:b] for a, b in tokens.specials(text)] == ["<|im_end|>", "<|x|>"]
    assert tokens.rendered(tokens.guarded("a<|x|>")).text == "a<|x|>"
    assert kinds.decode(tokens.marked("a<|x|><tool>"), skip_special_tokens=True) == "a<tool>"


def test_a_token_found_whole_is_decoded_as_it_is_spelled() -> None:
    made = build("m", header_of(trained(gpt2()), "gpt-2", ("<õ>", USER), ("é(", USER)))
    ids = Tokenizer(made).plain("a<õ>é(é, õ")
    assert made.convert_ids_to_tokens(ids)[1:3] == ["<õ>", "é("]
    assert made.decode(ids) == "a<õ>é(é, õ"


def test_places_and_pieces_of_text_are_those_of_the_text(kinds: Any) -> None:
    text = "the map, 你好 <tool>é"
    tokens = Tokenizer(kinds)
    ids = tokens.encode([Fragment(text)], begins=True)[0]
    starts = tokens.starts(Together((Fragment(text),), begins=True))
    assert starts is not None
    assert len(starts) == len(ids)
    assert starts == sorted(starts)
    assert text[starts[1] :].startswith(" map")


def test_unused_tokens_do_not_arise_from_text() -> None:
    merges, tokens = ["a b", "ab c"], [*ByteLevel.alphabet(), "ab", "abc"]
    types = [*[NORMAL] * 256, NORMAL, UNUSED]
    assert build("m", header("gpt2", tokens, types, pre="gpt-2", merges=merges)).tokenize("abc") == [
        "ab",
        "c",
    ]
    pieces = {"a": -3.0, "b": -4.0, "ab": -1.0, "<0x61>b": -2.0}
    made = build("m", pieces_header(pieces, {"ab": UNUSED}, add_space_prefix=False))
    assert made.tokenize("ab") == ["a", "b"]


ALONE = [*ByteLevel.alphabet(), "<s>", "</s>", "<pad>"]
ROLES = {"bos_token_id": 256, "eos_token_id": 257}
SPECIAL = [*[NORMAL] * 256, CONTROL, CONTROL, CONTROL]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"pre": "gpt-2"}, ["a"]),
        ({"pre": "llama-bpe"}, ["<s>", "a"]),
        ({"pre": "tekken"}, ["<s>", "a"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["a"]),
        ({"pre": "qwen2", "add_bos_token": True}, ["<s>", "a"]),
        ({"pre": "qwen2", "add_bos_token": True, "add_eos_token": True}, ["<s>", "a", "</s>"]),
        ({"pre": "qwen2", "add_eos_token": True}, ["a", "</s>"]),
        ({"pre": "llama-bpe", "bos_token_id": None}, ["a"]),
    ],
)
def test_what_a_text_begins_and_ends_with(more: dict[str, Any], expected: list[str]) -> None:
    made = build("m", header("gpt2", ALONE, SPECIAL, merges=[], **{**ROLES, **more}))
    assert made.convert_ids_to_tokens(made("a")["input_ids"]) == expected
    assert ChatFormat(made).bos == (256 if expected[0] == "<s>" else None)


def test_the_named_tokens_are_set() -> None:
    made = build("m", header("gpt2", ALONE, SPECIAL, merges=[], padding_token_id=258, **ROLES))
    assert (made.bos_token_id, made.eos_token_id, made.pad_token_id, made.unk_token) == (256, 257, 258, None)
    spm = build("m", pieces_header({"a": -1.0}))
    assert (spm.bos_token, spm.eos_token, spm.unk_token) == ("<s>", "</s>", "<unk>")


def test_a_token_that_is_not_there_counts_as_none() -> None:
    roles = {"bos_token_id": 259, "eos_token_id": -1, "padding_token_id": 2**32 - 1}
    made = build("m", header("gpt2", ALONE, SPECIAL, merges=[], pre="gpt-2", **roles))
    assert (made.bos_token, made.eos_token, made.pad_token) == (None, None, None)
    spm = build("m", pieces_header({"a": -1.0}, unknown_token_id=300))
    assert spm.unk_token == "<unk>"


def test_an_ordinary_token_that_stands_in_for_a_missing_one_stays_ordinary() -> None:
    comma = ALONE.index(",")
    roles = {"padding_token_id": comma, "unknown_token_id": comma, "bos_token_id": comma, "eos_token_id": 257}
    made = build("m", header("gpt2", ALONE, SPECIAL, merges=[], **roles))
    assert Tokenizer(made).plain("a,b") == made("a,b")["input_ids"]
    assert made.pad_token is None
    assert made.bos_token is None


def test_an_end_of_text_of_the_wrong_type_is_special() -> None:
    made = build("m", header("gpt2", ALONE, None, merges=[], **ROLES))
    assert not {256, 257} & set(Tokenizer(made).plain("<s></s>"))
    assert Tokenizer(made).marked("<s></s>") == [256, 257]


def phi(**more: Any) -> Any:
    pieces = {"<|end|>": -9.0, "<t>": -9.0, "▁": -2.0, "a": -3.0, "<|endoftext|>": -9.0}
    kinds = {"<|end|>": CONTROL, "<t>": USER, "<|endoftext|>": CONTROL}
    return build("m", {**pieces_header(pieces, kinds, add_space_prefix=False), **more})


@pytest.mark.parametrize("more", [{"general.architecture": "phi3"}, {"general.name": "Phi-3 mini"}])
def test_special_tokens_of_phi_3_take_the_white_space_behind_them(more: dict[str, str]) -> None:
    text = "<|end|> a<t> a<|endoftext|> a<s> a"
    made, other = phi(**more), phi()
    ids = made(text, add_special_tokens=False)["input_ids"]
    assert "".join(made.convert_ids_to_tokens(ids)) == "<|end|>a<t>a<|endoftext|>▁a<s>▁a"
    ids = other(text, add_special_tokens=False)["input_ids"]
    assert "".join(other.convert_ids_to_tokens(ids)) == text.replace(" ", "▁")


TURNS = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_chat_templates_are_rendered() -> None:
    base = header("gpt2", ALONE, SPECIAL, merges=[], **ROLES)
    chat = [{"role": "user", "content": "hi"}]
    one = build("m", {**base, "tokenizer.chat_template": TURNS})
    assert one.apply_chat_template(chat, tokenize=False) == "<s><user>hi"
    assert build("m", base).chat_template is None
    named = {"tokenizer.chat_templates": ["tool_use"], "tokenizer.chat_template.tool_use": "T" + TURNS}
    two = build("m", {**base, **named, "tokenizer.chat_template": TURNS})
    assert two.apply_chat_template(chat, tokenize=False) == "<s><user>hi"
    assert two.apply_chat_template(chat, tokenize=False, chat_template="tool_use") == "T<s><user>hi"
    assert ChatFormat(two).has_template
    with pytest.raises(ModelError, match=r"tokenizer\.chat_template\.rag"):
        build("m", {**base, "tokenizer.chat_templates": ["rag"]})
    with pytest.raises(ModelError, match=r"tokenizer\.chat_template:"):
        build("m", {**base, "tokenizer.chat_template": 3})


def test_an_answer_is_decoded_token_by_token() -> None:
    for made in (
        build("m", header_of(trained(gpt2()), "gpt-2")),
        build("m", pieces_header({"▁": -1.0, "a": -2.0})),
    ):
        text = "a é 你 🚀 a"
        ids = Tokenizer(made).plain(text)
        stream = TextStream(made)
        pieces = [stream.add(token) for token in ids]
        assert "".join(pieces) + stream.rest() == text


GOOD = header("gpt2", ALONE, SPECIAL, pre="gpt-2", merges=[], **ROLES)
PIECE = pieces_header({"a": -1.0})


@pytest.mark.parametrize(
    ("base", "change", "named"),
    [
        (GOOD, {"model": "t5"}, "'t5'"),
        (GOOD, {"model": "bert"}, "'bert'"),
        (GOOD, {"model": None}, "no tokenizer"),
        (GOOD, {"model": 7}, "7"),
        (GOOD, {"pre": "smollm9"}, "'smollm9'"),
        (GOOD, {"pre": 3}, "pre"),
        (GOOD, {"tokens": None}, "no tokens"),
        (GOOD, {"tokens": []}, "no tokens"),
        (GOOD, {"tokens": "abc"}, "tokens"),
        (GOOD, {"tokens": [*ALONE[:-1], 5]}, "tokens"),
        (GOOD, {"tokens": [*ALONE[:-1], "a"]}, "'a' occurs twice"),
        (GOOD, {"token_type": SPECIAL[1:]}, "token_type"),
        (GOOD, {"token_type": [*SPECIAL[1:], 7]}, "token_type"),
        (GOOD, {"token_type": [*SPECIAL[1:], "3"]}, "token_type"),
        (GOOD, {"merges": None}, "no merges"),
        (GOOD, {"merges": ["a b"]}, "'a b'"),
        (GOOD, {"merges": ["ab"]}, "'ab'"),
        (GOOD, {"merges": [1]}, "merges"),
        (GOOD, {"eos_token_id": True}, "eos_token_id"),
        (GOOD, {"add_bos_token": True, "bos_token_id": 259}, "add_bos_token"),
        (GOOD, {"add_bos_token": 1}, "add_bos_token"),
        (GOOD, {"add_bos_token": True, "bos_token_id": None}, "add_bos_token"),
        (PIECE, {"scores": None}, "scores"),
        (PIECE, {"scores": [0.0]}, "scores"),
        (PIECE, {"scores": [math.nan] * 260}, "scores"),
        (PIECE, {"scores": ["0"] * 260}, "scores"),
        (PIECE, {"add_space_prefix": "yes"}, "add_space_prefix"),
    ],
)
def test_what_does_not_fit_is_refused(base: dict[str, Any], change: dict[str, Any], named: str) -> None:
    changed = {**base, **{f"tokenizer.ggml.{key}": value for key, value in change.items()}}
    with pytest.raises(ModelError, match="model 'm': ") as refused:
        build("m", {key: value for key, value in changed.items() if value is not None})
    assert named in str(refused.value)


def test_a_vocabulary_that_can_write_neither_bytes_nor_unknown_text_is_refused() -> None:
    with pytest.raises(ModelError, match="unknown token"):
        build("m", header("llama", ["a", "b"], scores=[0, 0]))
