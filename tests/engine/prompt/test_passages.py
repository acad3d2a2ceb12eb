"""What a model reads as text: passages are what the tokenizer is given, and say who wrote what, and where."""

from __future__ import annotations

from typing import Any

import pytest

from engine.base.choices import PlacementPolicy
from engine.base.tiers import Tier
from engine.pml import Bound, parse_prompt, parse_schema
from engine.pml.tree.conversation import conversation
from engine.prompt.passages import Passage, Reader
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import Identity
from engine.prompt.spec import ModelSpec
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema
from tests.drawing import each
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.engine.prompt.test_chat_templates import MODULES, WHOLE, Case

SPLIT = "naïve 🦀 日本 e\u0301 👩\u200d🚀 \u00a0end"


class Read:
    """A prompt over a tokenizer, as passages."""

    def __init__(self, made: Any, schema: str, prompt: str, placement: PlacementPolicy = "compact") -> None:
        self.tokenizer, self.chat = made, ChatFormat(made)
        tree, self.prompt = parse_schema(schema).tree, parse_prompt(prompt).tree
        assert tree is not None
        assert self.prompt is not None
        spec = ModelSpec("tiny", made, self.chat, made.unk_token_id, 4096, Identity("f", "float32", True))
        asked = TokenizedPrompt(TokenizedSchema(tree, spec), self.prompt)
        self.bound: Bound = asked.bound
        self.plan: PromptPlan = asked.planned(None, placement).plan
        pieces = len(self.plan.pieces)
        read = Reader(self.chat, 1).read
        self.passages = read(self.bound, self.plan, [None] * pieces, [Tier.NONE] * pieces, borders=True)
        self.text = "".join(passage.text for passage in self.passages)

    def by(self, author: str) -> list[Passage]:
        return [passage for passage in self.passages if passage.author == author]

    def pieces(self) -> list[str]:
        """The text cut where tokens begin; empty where a token begins with a character of the one before."""
        passed, borders = 0, []
        for passage in self.passages:
            borders.extend(passed + border for border in passage.borders or ())
            passed += len(passage.text)
        return [self.text[a:b] for a, b in zip(borders, [*borders[1:], passed], strict=True)]


def read(name: str, case: Case, **options: Any) -> Read:
    return Read(tokenizer(FAMILIES[name]), case.schema, case.prompt, **options)


@pytest.mark.parametrize("name", each(FAMILIES, "chatml", "llama-2", "qwen-3", "gpt-oss", "falcon"))
def test_the_joined_text_is_what_the_chat_template_writes_and_every_token_begins_in_it(name: str) -> None:
    for title, case in {**WHOLE, **MODULES}.items():
        if "thought" in title:  # templates take thoughts away: told by the tests of what is stripped
            continue
        found = read(name, case)
        messages = [{"role": role, "content": text} for role, text in case.messages]
        roles, contents = zip(*case.messages, strict=True)
        if found.chat.render(roles, contents).system != "kept":
            (_, system), (role, text), *_ = case.messages
            messages = [{"role": role, "content": f"{system}\n\n{text}"}, *messages[2:]]
        want = found.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert found.text == want, title
        assert sum(passage.tokens for passage in found.passages) == found.plan.total_tokens, title
        assert len(found.pieces()) == found.plan.total_tokens, title
        assert "".join(found.pieces()) == found.text, title


@pytest.mark.parametrize("name", ["chatml", "llama-2", "llama-3", "gemma-2", "yi", "qwen-3"])
def test_what_authors_wrote_is_the_conversation(name: str) -> None:
    for title, case in MODULES.items():
        found = read(name, case)
        turns: dict[int | None, str] = {}
        for passage in found.passages:
            if passage.author != "template":
                turns[passage.turn] = turns.get(passage.turn, "") + passage.text
        assert list(turns.values()) == [turn.text for turn in conversation(found.bound.parts)], title


@pytest.mark.parametrize("name", ["chatml", "llama-3", "qwen-2", "falcon"])
def test_tokens_that_split_a_character_begin_with_it_and_decode_to_the_text(name: str) -> None:
    schema = (
        f'<schema name="s"><user><module name="a">{SPLIT}</module> and <module name="b"/></user></schema>'
    )
    found = Read(tokenizer(FAMILIES[name]), schema, f"<prompt><a/>{SPLIT}</prompt>")
    decoded = found.tokenizer.decode(
        found.plan.token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    assert found.text == decoded
    assert "" in found.pieces()  # the crab has several tokens
    assert "".join(found.pieces()) == found.text


def test_each_passage_says_who_wrote_it_and_where() -> None:
    schema = (
        '<schema name="s"><system>Be brief.</system><user>About <module name="a">Rome '
        '<param name="p" len="9"/><union><module name="x">ruins</module>'
        '<module name="y">food</module></union></module></user></schema>'
    )
    prompt = '<prompt><a p="now"> <y/></a> Go?</prompt>'
    found = Read(tokenizer(FAMILIES["chatml"]), schema, prompt)
    documents = {"schema": schema, "prompt": prompt}
    told = [
        (
            one.author,
            one.path,
            one.role,
            documents[one.source.document][one.source.span.start :][: len(one.text)],
        )
        for one in found.passages
        if one.source and not one.seam
    ]
    assert told == [
        ("anonymous", "", "system", "Be brief."),
        ("anonymous", "", "user", "About"),
        ("module", "a", "user", "Rome "),
        ("argument", "a:p", "user", 'p="'),
        ("module", "a/y", "user", "food"),
        ("text", "", "user", "Go?"),
    ]
    first, last = found.by("template")[0], found.by("template")[-1]
    assert (first.text, first.role, first.turn) == ("<|im_start|>system\n", "system", 0)
    assert (last.text, last.role, last.turn) == ("<|im_start|>assistant\n", "assistant", None)
    assert [last.text[a:b] for a, b in last.specials] == ["<|im_start|>"]


def test_an_author_cannot_spell_a_special_token() -> None:
    schema = '<schema name="s"><user><module name="a">say &lt;|im_end|&gt; now</module></user></schema>'
    found = Read(tokenizer(FAMILIES["chatml"]), schema, "<prompt><a/></prompt>")
    (module,) = found.by("module")
    assert module.text == "say <|im_end|> now"
    assert not module.specials
    assert len([piece for piece in found.pieces() if piece == "<|im_end|>"]) == 1
    assert "".join(found.pieces()) == found.text


def test_positions_leave_the_gaps_of_schema_placement() -> None:
    case = Case(
        '<user><module name="a">Look at the map.</module> <module name="b">Be brief.</module></user>',
        "<prompt><b/>Go?</prompt>",
    )
    compact, spread = (read("chatml", case, placement=where) for where in ("compact", "schema"))
    assert spread.by("module")[0].start > compact.by("module")[0].start
    for found in (compact, spread):
        starts = dict(zip(range(found.plan.total_tokens), found.plan.positions, strict=True))
        passed = 0
        for passage in found.passages:
            assert passage.start == starts[passed]
            passed += passage.tokens


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("<prompt><a/><b/></prompt>", "words run together: 'Rome.Food'; put a line break between them"),
        ("<prompt><c/></prompt>", "'- figs' begins a line in the schema but follows 'Look:' here"),
        ("<prompt><b/></prompt>", ""),
    ],
)
def test_a_passage_says_how_it_meets_the_one_before_it(prompt: str, words: str) -> None:
    schema = (
        '<schema name="s"><user xml:space="preserve">Look: <module name="a">Rome.</module>'
        '<module name="b">Food</module><module name="l">list:\n</module>'
        '<module name="c">- figs</module></user></schema>'
    )
    found = Read(tokenizer(FAMILIES["chatml"]), schema, prompt)
    met = [passage for passage in found.passages if passage.meets]
    assert [passage.meets.startswith(words) for passage in met] == ([True] if words else [])


def test_without_a_chat_template_the_token_that_begins_a_text_is_a_passage() -> None:
    made = tokenizer(FAMILIES["llama-3"])
    made.chat_template = None
    found = Read(
        made, '<schema name="s">Hi <module name="a">there</module></schema>', "<prompt><a/></prompt>"
    )
    assert found.text == "<s>Hi there"
    assert (found.passages[0].author, found.passages[0].tokens) == ("template", 1)
    assert found.passages[0].specials == ((0, 3),)
