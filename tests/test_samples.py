"""The bundled samples parse, bind, are long enough to matter, and run on the demo model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engine import Engine, RunSettings
from engine.pml import NewText, Prompt, Role, Schema, Text, bind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_schema
from engine.pml.tree.conversation import conversation
from engine.programs import compile_source
from sample_schemas import Sample, samples

TOKENIZER = Path(__file__).parents[1] / "assets" / "demo_model" / "tokenizer.json"
NAMES = ("travel", "personalization", "code-generation", "documents", "few-shot", "citybreak")
PROMPTS = [(sample, path) for sample in samples() for path in sample.prompts]


def schema_of(sample: Sample) -> Schema:
    parsed = parse_schema(sample.schema_path.read_text(encoding="utf-8"), base=sample.schema_path.parent)
    assert parsed.tree is not None
    assert parsed.diagnostics == ()
    return parsed.tree


def prompt_of(path: Path) -> Prompt:
    parsed = parse_prompt(path.read_text(encoding="utf-8"))
    assert parsed.tree is not None
    assert parsed.diagnostics == ()
    return parsed.tree


def sample_named(name: str) -> Sample:
    return next(s for s in samples() if s.name == name)


def spoken(node: object) -> list[Text]:
    """The texts of a child of a module, those of its turns included."""
    return [
        text
        for text in (getattr(node, "children", ()) if isinstance(node, Role) else (node,))
        if isinstance(text, Text)
    ]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine.open("demo", device="cpu", cache_dir=tmp_path_factory.mktemp("cache"))


def test_the_samples_are_offered() -> None:
    assert tuple(s.name for s in samples()) == NAMES
    for sample in samples():
        assert sample.title
        assert sample.description.count(". ") == 1
        assert sample.description.endswith(".")
        assert 2 <= len(sample.prompts) <= 3


@pytest.mark.parametrize("sample", samples(), ids=lambda s: s.name)
def test_schema_has_no_diagnostics_and_its_own_name(sample: Sample) -> None:
    assert schema_of(sample).name == sample.name


@pytest.mark.parametrize(("sample", "path"), PROMPTS, ids=[p.name for _, p in PROMPTS])
def test_prompt_binds(sample: Sample, path: Path) -> None:
    prompt = prompt_of(path)
    bound = bind(schema_of(sample), prompt)
    assert prompt.schema == sample.name
    assert bound.diagnostics == ()
    assert bound.imports
    assert any(isinstance(part, NewText) for part in bound.parts)


@pytest.mark.parametrize(("sample", "path"), PROMPTS, ids=[p.name for _, p in PROMPTS])
def test_prompt_reads_as_it_is_laid_out(sample: Sample, path: Path) -> None:
    """Modules on lines of their own, no space before a full stop, no white space at the ends of a turn."""
    schema = schema_of(sample)
    bound = bind(schema, prompt_of(path))
    modules = [m for m in schema.modules() if m.path in bound.imports]
    first = [next(c.text for child in m.children for c in spoken(child)) for m in modules]
    told = "\n".join(message.text for message in conversation(bound.parts))
    for text in first:
        begun = text.split("\n")[0]
        assert f"\n{begun}" in told
    for message in conversation(bound.parts):
        assert message.text == message.text.strip()
        assert " ." not in message.text


@pytest.mark.parametrize("sample", samples(), ids=lambda s: s.name)
def test_schema_is_long_enough(sample: Sample) -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    schema = schema_of(sample)
    texts = [c.text for m in schema.modules() for child in m.children for c in spoken(child)]
    assert sum(len(tokenizer.encode(text).ids) for text in texts) >= 1500


def test_travel_has_the_structure_of_the_paper() -> None:
    schema = schema_of(sample_named("travel"))
    overseas = schema.module("trip-plan/overseas")
    assert overseas is not None
    places = [m for m in schema.modules() if m.path.startswith("trip-plan/overseas/")]
    assert len(places) == 9
    assert {"tokyo", "rome", "maldives", "sydney"} <= {m.name for m in places}
    assert schema.union_of("trip-plan/domestic") is not None


def test_first_travel_prompt_is_worth_caching(engine: Engine) -> None:
    sample = sample_named("travel")
    prompt = prompt_of(sample.prompts[0])
    assert bind(schema_of(sample), prompt).imports == (
        "trip-plan",
        "trip-plan/overseas",
        "trip-plan/overseas/tokyo",
    )
    plan = engine.schema(schema_of(sample)).prompt(prompt).plan(RunSettings())
    assert plan.total_tokens >= 1000
    assert plan.new_tokens < plan.total_tokens / 20


@pytest.mark.parametrize("sample", samples(), ids=lambda s: s.name)
def test_encoded_sample_answers_from_the_cache(engine: Engine, sample: Sample) -> None:
    schema, prompt = schema_of(sample), prompt_of(sample.prompts[0])
    assert {found.code for found in engine.check(schema, prompt)} <= {"W611"}
    assert engine.schema(schema).encode().tokens >= 1500
    plan = engine.schema(schema).prompt(prompt).plan(RunSettings())
    assert plan.cached_tokens > 0.9 * plan.total_tokens
    answer = engine.schema(schema).prompt(prompt).answer(max_new_tokens=4)
    assert {use.outcome for use in answer.segments} == {"hit"}
    assert answer.tokens["from_cache"] == plan.cached_tokens
    assert (answer.tokens["encoded"], answer.tokens["computed"]) == (0, plan.new_tokens)


def test_the_sample_from_a_program_is_what_its_program_makes() -> None:
    sample = sample_named("citybreak")
    assert sample.program_path is not None
    source = sample.program_path.read_text(encoding="utf-8")
    made = compile_source(source, str(sample.program_path)).schema()
    assert write_schema(made) == sample.schema_path.read_text(encoding="utf-8")
