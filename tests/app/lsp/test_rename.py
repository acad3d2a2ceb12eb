"""Renaming: exact edits in a schema and its prompts, after which every prompt says what it said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.base.document_index import Library
from app.lsp.occurrences import definition, occurrences
from app.lsp.rename import RenameError, rename
from app.lsp.targets import Target, target_at
from app.lsp.view import View
from engine.pml import ArgumentText, NewText, SchemaText, apply_edits, bind, parse_prompt, parse_schema
from engine.pml.edit.writer import write_prompt, write_schema
from sample_schemas import Sample, samples
from tests.drawing import EVERY, draws
from tests.pml.trees import NAMES, prompts, schemas

SCHEMA = """<schema name="travel">
  <module name="trip">I go for <param name="days" len="5"/>.
    <union scaffold="tokyo">
      <module name="tokyo">東京 🗼</module>
      <module name="rome">Rome.</module>
    </union>
  </module>
  <module name="budget">Cheap.</module>
  <scaffold modules="trip trip/tokyo budget"/>
</schema>
"""
PROMPT = """<prompt schema="travel">
  <trip days="3 days"><!-- 🗼 --><tokyo></tokyo></trip>
  <budget/>Where?
</prompt>
"""
SHORT = '<prompt schema="travel"><tokyo/><trip><arg name="days">2</arg></trip>Where?</prompt>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"travel.pml": SCHEMA, "one.pml": PROMPT, "two.pml": SHORT}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def changed(library: Library, path: Path, place: str, new: str) -> dict[str, str]:
    """The texts after renaming what stands at a place, by the names of files."""
    document = library.document(path)
    view = View(library, document)
    target = target_at(view, document.text.index(place) + len(place))
    assert target is not None
    edits = rename(view, target, new)
    return {one.name: apply_edits(library.document(one).text, given) for one, given in edits.items()}


def said(schema: str, prompt: str, base: Path | None = None) -> list[str]:
    """What a prompt binds to, without the names."""
    tree, parsed = parse_schema(schema, base=base).tree, parse_prompt(prompt).tree
    assert tree is not None
    assert parsed is not None
    bound = bind(tree, parsed)
    assert bound.ok
    texts = []
    for part in bound.parts:
        match part:
            case SchemaText():
                texts.append(part.node.text)
            case ArgumentText() | NewText():
                texts.append(part.text)
            case _:
                texts.append(f"{type(part).__name__} {part.role}")
    return texts


def test_a_module_is_renamed_wherever_it_is_named(folder: Path) -> None:
    found = changed(Library(), folder / "one.pml", "<!-- 🗼 --><to", "kyoto")
    assert found == {
        "travel.pml": SCHEMA.replace('"tokyo"', '"kyoto"').replace("trip/tokyo", "trip/kyoto"),
        "one.pml": PROMPT.replace("<tokyo></tokyo>", "<kyoto></kyoto>"),
        "two.pml": SHORT.replace("<tokyo/>", "<kyoto/>"),
    }


def test_a_module_round_others_is_renamed_in_their_paths(folder: Path) -> None:
    for path, place in (
        ("travel.pml", '<module name="tr'),
        ("travel.pml", 'modules="trip t'),
        ("one.pml", "<tr"),
    ):
        found = changed(Library(), folder / path, place, "journey")
        assert found["travel.pml"] == (
            SCHEMA.replace('name="trip"', 'name="journey"').replace(
                "trip trip/tokyo", "journey journey/tokyo"
            )
        )
        assert found["one.pml"] == PROMPT.replace("<trip ", "<journey ").replace("</trip>", "</journey>")
        assert found["two.pml"] == SHORT.replace("<trip>", "<journey>").replace("</trip>", "</journey>")


def test_a_parameter_is_renamed_with_its_arguments(folder: Path) -> None:
    for path, place in (
        ("travel.pml", '<param name="da'),
        ("one.pml", "<trip da"),
        ("two.pml", '<arg name="da'),
    ):
        assert changed(Library(), folder / path, place, "length") == {
            "travel.pml": SCHEMA.replace('name="days"', 'name="length"'),
            "one.pml": PROMPT.replace("days=", "length="),
            "two.pml": SHORT.replace('"days"', '"length"'),
        }


def test_a_schema_is_renamed_with_its_prompts(folder: Path) -> None:
    assert changed(Library(), folder / "one.pml", 'schema="tra', "trips") == {
        "travel.pml": SCHEMA.replace('"travel"', '"trips"'),
        "one.pml": PROMPT.replace('"travel"', '"trips"'),
        "two.pml": SHORT.replace('"travel"', '"trips"'),
    }


def test_what_is_open_is_renamed_as_it_stands_there(folder: Path) -> None:
    library = Library()
    library.hold(folder / "two.pml", "<!-- unsaved -->" + SHORT)
    found = changed(library, folder / "travel.pml", '<module name="to', "kyoto")
    assert found["two.pml"] == "<!-- unsaved -->" + SHORT.replace("tokyo", "kyoto")
    assert (folder / "two.pml").read_text(encoding="utf-8") == SHORT


@pytest.mark.parametrize(
    ("place", "new", "why"),
    [
        ('<module name="to', "rome", "'trip/rome' already exists, at line 5"),
        ('<module name="to', "module", "is an element of PML"),
        ('<module name="to', "two words", "cannot name a module"),
        ('<module name="to', "", "cannot name a module"),
        ('<module name="bu', "tokyo", "would import another module"),
        ('<module name="bu', "x" * 2001, "more than 2000 characters"),
        ('<schema name="tr', "a b", "cannot name a schema"),
        ("<mod", "x", "Only modules, parameters and schemas"),
    ],
)
def test_a_name_is_refused_with_the_reason(folder: Path, place: str, new: str, why: str) -> None:
    with pytest.raises(RenameError, match=why):
        changed(Library(), folder / "travel.pml", place, new)


def test_a_schema_cannot_take_the_name_of_another(folder: Path) -> None:
    (folder / "other.pml").write_text('<schema name="other">x</schema>', encoding="utf-8")
    with pytest.raises(RenameError, match=r"other\.pml defines a schema 'other' already"):
        changed(Library(), folder / "travel.pml", '<schema name="tr', "other")


def test_a_second_parameter_keeps_its_name(folder: Path) -> None:
    twice = SCHEMA.replace(" len=", ' len="3"/> <param name="who" len=')
    (folder / "travel.pml").write_text(twice, encoding="utf-8")
    with pytest.raises(RenameError, match="has a parameter 'who' already"):
        changed(Library(), folder / "travel.pml", '<param name="da', "who")


def test_two_modules_of_one_name_are_not_renamed(folder: Path) -> None:
    (folder / "travel.pml").write_text(SCHEMA.replace('"rome"', '"tokyo"'), encoding="utf-8")
    with pytest.raises(RenameError, match="2 modules are named"):
        changed(Library(), folder / "travel.pml", '<module name="to', "kyoto")


def test_a_prompt_without_its_schema_is_not_renamed(tmp_path: Path) -> None:
    library = Library()
    view = View(library, library.hold(tmp_path / "one.pml", PROMPT))
    with pytest.raises(RenameError, match="not in its folder"):
        rename(view, Target("schema", view.elements().__next__().tag_span, name="travel"), "x")


def test_a_broken_prompt_is_renamed_where_it_can_be_read(folder: Path) -> None:
    broken = PROMPT.replace("</trip>", "")
    (folder / "one.pml").write_text(broken, encoding="utf-8")
    found = changed(Library(), folder / "travel.pml", '<module name="tr', "journey")
    assert found["one.pml"] == broken.replace("<trip ", "<journey ")


@pytest.mark.parametrize("sample", samples()[:: 1 if EVERY else 6], ids=lambda sample: sample.name)
def test_after_a_rename_every_sample_says_the_same(sample: Sample, tmp_path: Path) -> None:
    shutil.copytree(sample.schema_path.parent, tmp_path / "samples")
    path = tmp_path / "samples" / sample.schema_path.name
    library = Library()
    schema = library.schema(library.document(path)).tree
    assert schema is not None
    before = library.prompts(path)
    assert len(before) == len(sample.prompts)
    source = library.document(path).text
    targets = [Target("module", module.name_span, module.path) for module in schema.modules()]
    targets += [
        Target("param", param.span, module.path, param.name)
        for module in schema.modules()
        for param in module.params()
    ]
    targets.append(Target("schema", schema.span, name=schema.name))
    for target in targets[:: max(1, len(targets) // 6)]:
        edits = rename(View(library, library.document(path)), target, "renamed-X")
        after = apply_edits(source, edits[path])
        assert after != source
        for prompt in before:
            now = apply_edits(prompt.text, edits.get(prompt.path, []))
            assert said(after, now, path.parent) == said(source, prompt.text, path.parent)


@settings(max_examples=draws(60))
@given(st.data())
def test_after_a_rename_drawn_documents_say_the_same(data: st.DataObject) -> None:
    tree = data.draw(schemas())
    assume(tree.index.by_path)
    prompt = data.draw(prompts(tree))
    library, home, user = Library(), Path("/nowhere/s.pml"), Path("/nowhere/p.pml")
    source = library.hold(home, write_schema(tree)).text
    text = library.hold(user, write_prompt(prompt)).text
    nowhere = tree.span
    targets = [Target("module", nowhere, path) for path in sorted(tree.index.by_path)]
    targets += [
        Target("param", nowhere, module.path, param.name)
        for module in tree.modules()
        for param in module.params()
    ]
    target = data.draw(st.sampled_from([*targets, Target("schema", nowhere, name=tree.name)]))
    new = data.draw(NAMES)
    view = View(library, library.document(home))
    try:
        edits = rename(view, target, new)
    except RenameError:
        return
    after, now = apply_edits(source, edits.get(home, [])), apply_edits(text, edits.get(user, []))
    assert said(after, now) == said(source, text)
    renamed = parse_schema(after).tree
    if edits and target.kind == "module":
        assert renamed is not None
        assert "/".join(filter(None, (target.path.rpartition("/")[0], new))) in renamed.index.by_path
        assert target.path not in renamed.index.by_path


def test_a_definition_is_found_from_every_place_that_names_it(folder: Path) -> None:
    library = Library()
    view = View(library, library.document(folder / "travel.pml"))
    for target in (
        Target("module", view.elements().__next__().tag_span, "trip/tokyo"),
        Target("param", view.elements().__next__().tag_span, "trip", "days"),
        Target("schema", view.elements().__next__().tag_span, name="travel"),
    ):
        defined = definition(view, target)
        assert defined is not None
        found = occurrences(view, target)
        assert defined[1] in found[folder / "travel.pml"]
        for path, spans in found.items():
            document = library.document(path)
            for span in spans:
                there = target_at(View(library, document), span.start)
                assert there is not None
                assert definition(View(library, document), there) == defined
