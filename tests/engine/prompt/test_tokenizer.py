"""Text becomes the same tokens from every thread, and the same tokens as the whole text gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.checkpoint.checkpoint import DEMO_FOLDER
from engine.engine import Engine
from engine.pml import RoleClose, RoleOpen, bind
from engine.pml.tree.parts import part_text
from engine.prompt.layout import lay_out
from engine.prompt.plan import make_plan
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tokenizer import Fragment, Tokenizer
from engine.prompt.template.trimming import turn_texts
from engine.store import Store
from sample_schemas import Sample, samples
from tests.engine.cases import plan_of
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.engine.tiny import tiny_model
from tests.pml.documents import prompt_tree, schema_tree

AUTHOR = "an author may write </s> and <s> in a text"
TURN = "<s><|user|>\nHello</s>\n"


def test_threads_never_see_one_another() -> None:
    model = tiny_model()
    plain, marks = model.tokenize(AUTHOR), model.chat.token_ids(TURN)
    assert model.tokenizer.eos_token_id not in plain
    assert model.tokenizer.eos_token_id in marks

    def work(turn: int) -> int:
        if turn % 3 == 2:  # the one who lent the tokenizer may go on using it
            return (
                model.tokenizer(TURN, split_special_tokens=turn % 2 > 0, truncation=True, max_length=3)
                is None
            )
        if turn % 3:
            return model.tokenize(AUTHOR) != plain
        return model.chat.token_ids(TURN) != marks

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(1800))) == 0


def test_no_wrong_tokens_are_kept_in_a_layout(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    source = (
        '<schema name="s"><system>{}&lt;/s></system><user><module name="m">&lt;s></module></user></schema>'
    )
    prompt = prompt_tree("<prompt><m/>Why &lt;/s>?</prompt>")

    def planned(turn: int) -> tuple[int, ...]:
        schema = schema_tree(source.format(turn % 40))
        plan = plan_of(engine, schema, prompt)
        return tuple(t for t in plan.token_ids if t in (0, 1))  # <s> and </s>, the template's own only

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(planned, range(100))) == {(0, 1, 1)}


PREFIXED = [name for name, family in FAMILIES.items() if family.kind in ("prefix", "first")]
TEXT = "Look at the map of Rome, <b>and</b> the map of Tokyo."


@pytest.mark.parametrize("name", PREFIXED)
def test_a_text_inside_a_prompt_gets_no_space_before_it(name: str) -> None:
    made = tokenizer(FAMILIES[name])
    tokens = Tokenizer(made)
    assert "".join(made.convert_ids_to_tokens(tokens.plain("Rome"))) == "Rome"
    assert made.convert_ids_to_tokens(tokens.encode([Fragment("Rome")], begins=True)[0])[0].startswith("▁")
    assert (
        tokens.encode([Fragment(TEXT)], begins=True)[0] == made(TEXT, add_special_tokens=False)["input_ids"]
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_side_by_side_have_the_tokens_of_the_whole(name: str) -> None:
    family = FAMILIES[name]
    made = tokenizer(family)
    tokens = Tokenizer(made)
    marks = [family.eos, *family.specials]
    texts = [part for mark in marks for part in (f"{mark} [", TEXT, " ")]
    fragments = [Fragment(text, template=place % 3 == 0) for place, text in enumerate(texts)]
    found = tokens.encode(fragments, begins=True)
    assert [t for ids in found for t in ids] == made("".join(texts), add_special_tokens=False)["input_ids"]
    assert len(found) == len(fragments)


@pytest.mark.parametrize("name", FAMILIES)
def test_special_tokens_arise_from_the_template_alone(name: str) -> None:
    """Neither spelled by an author, nor half by an author and half by the template."""
    family = FAMILIES[name]
    made = tokenizer(family)
    tokens = Tokenizer(made)
    special = made.convert_tokens_to_ids([family.bos, family.eos, *family.specials])
    for mark in (family.eos, *family.specials):
        half = len(mark) // 2
        for fragments in (
            [Fragment(mark)],
            [Fragment("One " + mark), Fragment("two", template=True)],
            [Fragment(mark[:half]), Fragment(mark[half:], template=True)],
            [Fragment(mark[:half], template=True), Fragment(mark[half:])],
            [Fragment(mark[:half]), Fragment(mark[half:])],
        ):
            found = [token for ids in tokens.encode(fragments) for token in ids]
            assert not set(found) & set(special), fragments
        both = tokens.encode([Fragment("a " + mark), Fragment(mark, template=True), Fragment(mark + " b")])
        assert [sum(token in special for token in ids) for ids in both] == [0, 1, 0]


LETTERS = ["a", "b", "<", "/", "s", ">", "▁", *(f"##{one}" for one in "/s>")]
WITHIN: dict[str, Any] = {
    "unigram": lambda names: models.Unigram([(name, -1.0) for name in names], unk_id=0),
    "words": lambda names: models.WordLevel(_numbered(names), unk_token="<unk>"),
    "word pieces": lambda names: models.WordPiece(_numbered(names), unk_token="<unk>"),
    "merges": lambda names: models.BPE(
        vocab=_numbered([*names, "</", "</s", "</s>s"]),
        merges=[("<", "/"), ("</", "s"), ("</s", ">"), ("</s>", "s")],
        unk_token="<unk>",
    ),
    "whole words": lambda names: models.BPE(
        vocab=_numbered(names), merges=[], unk_token="<unk>", ignore_merges=True
    ),
}


@pytest.mark.parametrize("strips", ["lstrip", "rstrip"])
def test_special_tokens_that_take_white_space_are_the_templates_own(strips: str) -> None:
    """Where turns meet, the white space of one lies before the special token of the next."""
    raw = Backend(
        models.Unigram([(name, -1.0) for name in ["<unk>", "<s>", "</s>", *LETTERS, "\n"]], unk_id=0)
    )
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    marks = [AddedToken(one, special=True, **{strips: True}) for one in ("<unk>", "<s>", "</s>", "<|b|>")]
    raw.add_special_tokens(marks)
    made: Any = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    texts = ["<s>\n", "a b", "</s>\n", "<|b|>\n", "b\u0301 a", "</s>\n", " ", "<|b|>\n"]
    fragments = [Fragment(text, template="b" not in text or "|" in text) for text in texts]
    found = Tokenizer(made).encode(fragments, begins=True)
    assert [t for ids in found for t in ids] == made("".join(texts), add_special_tokens=False)["input_ids"]
    for text in ("\n</s>", "</s>", " </s> a"):
        mixed = [Fragment("<s>\n", template=True), Fragment(text), Fragment("\n</s>", template=True)]
        assert [ids.count(2) for ids in Tokenizer(made).encode(mixed, begins=True)] == [0, 0, 1]


def _numbered(names: list[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


@pytest.mark.parametrize("name", WITHIN)
def test_special_tokens_that_the_vocabulary_has_as_pieces_arise_from_no_text(name: str) -> None:
    raw = Backend(WITHIN[name](["<unk>", "<s>", "</s>", *LETTERS]))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="never")]
    )
    raw.add_special_tokens(["<unk>", "<s>", "</s>", "<|last|>"])
    raw.add_tokens(["<tool>"])
    tokens = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>"))
    tool, last = raw.token_to_id("<tool>"), raw.token_to_id("<|last|>")
    for text in ("</s>", "a </s> b", "a<s>", "<s></s>s", "<unk> a", "<|last|>"):
        assert {1, 2, last}.isdisjoint(tokens.plain(text)), text
        begun = tokens.encode([Fragment("</s>", template=True), Fragment(text)], begins=True)
        assert begun[0] == [2]
        assert {1, 2, last}.isdisjoint(begun[1]), text
    assert tool in tokens.plain("a </s> <tool>"), "what is no special token keeps its number"
    assert tokens.plain("a b") == tokens.encode([Fragment("a b </s>")])[0][: len(tokens.plain("a b"))]


def test_a_tokenizer_that_cannot_be_copied_is_used_as_it_is() -> None:
    lent = tokenizer(FAMILIES["zephyr"])
    copied = Tokenizer(lent)

    class Other:
        """Without a tokenizer of the library behind it."""

        def __call__(self, text: str, **settings: bool) -> object:
            return lent(text, **settings)

    plain = Tokenizer(Other())
    assert plain.plain(TEXT) == copied.plain(TEXT)
    assert plain.plain("a</s>") == copied.plain("a</s>")
    assert plain.marked("</s>\n") == copied.marked("</s>\n")
    assert plain.encode([Fragment(TEXT)], begins=True) == copied.encode([Fragment(TEXT)], begins=True)


@pytest.mark.parametrize(
    ("sample", "path"),
    [(one, path) for one in samples() for path in one.prompts],
    ids=lambda one: str(one)[-18:],
)
def test_the_samples_have_the_tokens_of_each_text_by_itself(sample: Sample, path: Path) -> None:
    """What is stored for them, and what the bundled model was trained on, stays what it is."""
    made: Any = AutoTokenizer.from_pretrained(DEMO_FOLDER, local_files_only=True)
    raw = Backend.from_file(str(DEMO_FOLDER / "tokenizer.json"))
    chat = ChatFormat(made)
    source, base = sample.schema_path.read_text(encoding="utf-8"), sample.schema_path.parent
    schema, prompt = schema_tree(source, base=base), prompt_tree(path.read_text(encoding="utf-8"))
    bound = bind(schema, prompt)
    roles = [part.role for part in bound.parts if isinstance(part, RoleOpen)]
    turns = chat.render(roles, turn_texts(bound.parts))
    texts, place = [turns.begin], -1
    for part in bound.parts:
        if isinstance(part, RoleOpen):
            place += 1
            texts.append(turns.opens[place])
        texts.append(turns.closes[place] if isinstance(part, RoleClose) else part_text(part))
    alone = [token for text in [*texts, turns.generation] for token in raw.encode(text).ids]
    layout = lay_out(schema, chat, made.unk_token_id)
    assert make_plan(layout, bound, chat, prompt, rendering=turns).token_ids == alone
