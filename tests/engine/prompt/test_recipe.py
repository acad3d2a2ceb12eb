"""What segments see and how they are named: scopes, scaffolds, placements."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.base.errors import SettingsError
from engine.engine import Engine
from engine.pml import PromptError
from engine.prompt import recipe
from engine.store import Store
from tests.engine.cases import Case, apart, model_of, prompt_of, schema_of

SCHEMA = """<schema name="s">Always.
  <module name="a">aa <union><module name="x">xx</module><module name="y">yyyy</module></union> end</module>
  middle
  <module name="b">bb</module>
  <module name="c">cc <param name="p" len="3"/> tail</module>
  {scaffolds}
</schema>"""


@pytest.fixture
def engine(tmp_path: Path):
    opened = Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path))
    yield opened
    opened.close()


def seen(engine: Engine, scaffolds: str, prompt: str, scope="anchored", placement="compact") -> dict:
    """For each cached text of a prompt the texts that it saw, in order."""
    case = Case(engine, schema_of(SCHEMA.format(scaffolds=scaffolds)), prompt_of(prompt), scope, placement)
    text = engine.model.tokenizer.decode

    def words(ids) -> str:
        return text([i for i in ids if i > 2]).strip()

    return {
        words(use.recipe.token_ids): [
            words(one.recipe.token_ids[one.lo : one.hi]) for one in use.recipe.context
        ]
        for use in case.uses
        if use is not None
    }


def test_the_scopes_without_scaffolds(engine: Engine) -> None:
    prompt = "<prompt><a><x/></a><b/> well?</prompt>"
    isolated = seen(engine, "", prompt, "isolated")
    assert isolated["bb"] == []
    assert isolated["end"] == ["aa"]
    assert isolated["xx"] == []
    anchored = seen(engine, "", prompt, "anchored")
    assert anchored == {
        "Always.": [],
        "aa": ["Always."],
        "xx": ["Always.", "aa"],
        "end": ["Always.", "aa"],
        "middle": ["Always."],
        "bb": ["Always.", "middle"],
    }
    whole = seen(engine, "", "<prompt><b/> so <a><x/></a> well?</prompt>", "scaffold")
    assert whole["middle"] == ["Always.", "bb", "so"], "places stay, and b stands where a would"


def test_preceding_shows_the_nearest_modules(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = "<prompt><a/><b/> well?</prompt>"
    near = seen(engine, "", prompt, "preceding")
    assert near["bb"] == ["Always.", "aa", "end", "middle"], "what fits, in the order of the prompt"
    monkeypatch.setattr(recipe, "PRECEDING_TOKENS", 1)
    schema = schema_of(SCHEMA.format(scaffolds=""))

    def key_of_c(imports: str) -> str:
        case = Case(engine, schema, prompt_of(f"<prompt>{imports} well?</prompt>"), "preceding")
        return next(use for use in case.uses if use is not None and use.recipe.path == "c").recipe.key

    both = key_of_c('<a/><b/><c p="q"/>')
    assert both == key_of_c('<b/><c p="r"/>'), "b is enough, so nothing of a is seen"
    assert both != key_of_c('<a/><c p="q"/>')


@pytest.mark.parametrize("imports", ["<a/><b/>", "<b/><a><x/></a>", "<a><y/></a><b/>"])
def test_preceding_is_exact_where_all_is_near(engine: Engine, imports: str) -> None:
    prompt = prompt_of(f"<prompt>{imports} well?</prompt>")
    case = Case(engine, schema_of(SCHEMA.format(scaffolds="")), prompt, "preceding")
    new = [case.plan.positions.index(place) for place in case.plan.new_positions]
    assert apart(case.logits(), case.full()[new]) <= 1e-4
    assert not case.again("link:1000"), "nothing is left to repair"


def test_what_several_modules_see_first_is_made_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = "".join(f'again <module name="m{n}">text {n}</module>' for n in range(40))
    made, key = [], recipe.segment_key
    monkeypatch.setattr(recipe, "PRECEDING_TOKENS", 1)
    monkeypatch.setattr(recipe, "segment_key", lambda *given: made.append(key(*given)) or made[-1])
    book = engine.schema(schema_of(f'<schema name="s">{modules}</schema>')).tokenized.recipes("preceding")
    assert len(book.of_schema(10**6)) >= 80
    assert len(made) <= 5 * 80, "and not once for each module behind it"


def test_a_scaffold_is_used_when_all_of_it_is_imported(engine: Engine) -> None:
    scaffold = '<scaffold modules="a b"/>'
    together = seen(engine, scaffold, "<prompt><a><x/></a><b/> well?</prompt>")
    assert together["bb"] == ["Always.", "aa", "end", "middle"]
    assert together["middle"] == ["Always.", "aa", "end"]
    assert together["xx"] == ["Always.", "aa"], "not of the set, and so as ever"
    assert seen(engine, scaffold, "<prompt><b/> well?</prompt>")["bb"] == ["Always.", "middle"]
    assert seen(engine, scaffold, "<prompt><a/><b/> well?</prompt>", "isolated")["bb"] == together["bb"]


def test_a_scaffold_names_nested_modules_and_takes_those_round_them(engine: Engine) -> None:
    nested = seen(engine, '<scaffold modules="a/x b"/>', "<prompt><a><x/></a><b/> well?</prompt>")
    assert nested["bb"] == ["Always.", "aa", "xx", "end", "middle"]
    other = seen(engine, '<scaffold modules="a/x b"/>', "<prompt><a><y/></a><b/> well?</prompt>")
    assert other["bb"] == ["Always.", "middle"]


def test_a_scaffold_follows_the_order_of_the_prompt(engine: Engine) -> None:
    swapped = seen(engine, '<scaffold modules="b c"/>', '<prompt><c p="q"/><b/> well?</prompt>')
    assert any("cc" in text for text in " ".join(swapped["bb"]).split())
    assert not any("bb" in text for key, texts in swapped.items() if "cc" in key for text in texts)


@pytest.mark.parametrize(
    ("scaffolds", "used"),
    [
        ('<scaffold modules="a b"/><scaffold modules="a b c"/>', [("a", "b", "c")]),
        ('<scaffold modules="b c"/><scaffold modules="a b"/>', [("b", "c")]),  # c is longer than a
        ('<scaffold modules="a a/x"/><scaffold modules="b c"/>', [("b", "c"), ("a", "a/x")]),
        ('<scaffold modules="a/y b"/><scaffold modules="a b"/>', [("a", "b")]),
        ('<scaffold modules="a b"/><scaffold modules="b a"/>', [("a", "b")]),
    ],
)
def test_the_largest_scaffolds_that_share_no_module_are_used(
    engine: Engine, scaffolds: str, used: list
) -> None:
    schema = schema_of(SCHEMA.format(scaffolds=scaffolds))
    case = Case(engine, schema, prompt_of('<prompt><a><x/></a><b/><c p="q"/> well?</prompt>'))
    assert list(case.book.scaffolds(case.plan)) == used


def test_names_depend_on_sight_alone(engine: Engine) -> None:
    def keys(scaffolds: str, prompt: str, scope="anchored", placement="compact") -> dict[str, str]:
        schema = schema_of(SCHEMA.format(scaffolds=scaffolds))
        case = Case(engine, schema, prompt_of(prompt), scope, placement)
        return {use.recipe.path: use.recipe.key for use in case.uses if use is not None and use.recipe.path}

    prompt, other = "<prompt><a/><b/> well?</prompt>", "<prompt><b/><a/> so?</prompt>"
    plain = keys("", prompt)
    assert plain == keys("", other), "reordering encodes nothing"
    assert plain["b"] == keys('<scaffold modules="a c"/>', prompt)["b"]
    assert plain["b"] != keys('<scaffold modules="a b"/>', prompt)["b"]
    assert plain["b"] != keys("", prompt, "isolated")["b"]
    assert plain["b"] != keys("", prompt, "scaffold")["b"]
    assert plain["b"] != keys("", prompt, placement="schema")["b"], "the gap of the union is in its sight"


def test_encoding_a_schema_makes_what_prompts_want(engine: Engine) -> None:
    schema = schema_of(SCHEMA.format(scaffolds='<scaffold modules="a b"/><scaffold modules="a/x c"/>'))
    for scope in ("isolated", "anchored"):
        engine.schema(schema).encode(scope=scope)
        for imports in ("<a/><b/>", "<a><x/></a>", '<a><x/></a><c p="q"/>', "<b/>", "<a><y/></a><b/><c/>"):
            case = Case(engine, schema, prompt_of(f"<prompt>{imports} well?</prompt>"), scope)
            assert not case.supplied.encoded, imports
    engine.schema(schema_of(SCHEMA.format(scaffolds=""))).encode(scope="preceding")
    for imports in ("<a><x/></a><b/>", '<a><x/></a><b/><c p="q"/>'):
        prompt = prompt_of(f"<prompt>{imports} well?</prompt>")
        case = Case(engine, schema_of(SCHEMA.format(scaffolds="")), prompt, "preceding")
        assert not case.supplied.encoded, imports
    with pytest.raises(SettingsError, match="so a schema alone has nothing to encode"):
        engine.schema(schema).encode(scope="scaffold")


def test_schema_placement_keeps_the_schemas_positions(engine: Engine) -> None:
    schema = schema_of(SCHEMA.format(scaffolds=""))
    case = Case(engine, schema, prompt_of('<prompt><a><x/></a><c p="q"/> well?</prompt>'), placement="schema")
    starts = {run.path: run.start for run in case.layout.runs}
    for piece in case.plan.pieces:
        if piece.run is not None:
            assert piece.start == piece.run.start + piece.lo
        elif piece.kind == "argument":
            assert starts["c"] < piece.start < starts["c"] + 20
    positions = case.plan.positions
    assert positions == sorted(set(positions))
    assert positions[-1] + 1 == case.plan.end > case.plan.total_tokens
    overview = engine.schema(schema).layout()
    assert next(m.start for m in overview.modules if m.path == "b") == starts["b"]


@pytest.mark.parametrize(
    ("prompt", "code", "words"),
    [
        ("<prompt><b/><a/> well?</prompt>", "E506", "another order"),
        ("<prompt><a/> some text <b/></prompt>", "E507", "text of 10 tokens"),
        ("<prompt><a>not here<x/></a></prompt>", "E507", "room for 0"),
    ],
)
def test_what_schema_placement_has_no_room_for_is_said(
    engine: Engine, prompt: str, code: str, words: str
) -> None:
    schema = schema_of(SCHEMA.format(scaffolds=""))
    with pytest.raises(PromptError, match=code) as refused:
        Case(engine, schema, prompt_of(prompt), placement="schema")
    assert words in str(refused.value)
    assert len(refused.value.diagnostics) == 1
    Case(engine, schema, prompt_of(prompt))
    found = engine.check(schema, prompt_of(prompt), placement="schema")
    assert code in [d.code for d in found]


def test_text_fits_where_a_module_is_left_out(engine: Engine) -> None:
    schema = schema_of(
        '<schema name="s">A<module name="m">a module of some length</module><module name="n">n'
        "</module></schema>"
    )
    case = Case(engine, schema, prompt_of("<prompt>short<n/> well?</prompt>"), placement="schema")
    assert case.plan.pieces[1].kind == "text"


def test_models_with_learned_positions_keep_schema_placement(tmp_path: Path) -> None:
    engine = Engine(model_of("gpt2"), Store.open(tmp_path))
    assert engine.placement("compact") == "schema"
    schema = schema_of(SCHEMA.format(scaffolds=""))
    with pytest.raises(PromptError, match="E506"):
        Case(engine, schema, prompt_of("<prompt><b/><a/> well?</prompt>"))
    case = Case(engine, schema, prompt_of("<prompt><b/> well?</prompt>"))
    assert {use.recipe.start for use in case.uses if use is not None} != {0}
    engine.close()


def test_a_scaffold_that_fits_no_prompt_is_said_and_not_encoded(engine: Engine) -> None:
    long = f'<schema name="s"><module name="a">{"x" * 1500}</module><module name="b">{"y" * 1500}</module>'
    schema = schema_of(long + '<scaffold modules="a b"/></schema>')
    assert [d.code for d in engine.check(schema)] == ["W606"]
    assert engine.schema(schema).encode().encoded == 2
