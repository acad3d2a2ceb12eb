"""`<include>`: a schema in another, as if it were written there, and its faults in its own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.pml import Diagnostic, Parsed, PromptError, Schema, add_scaffold, parse_schema
from engine.pml.edit.formatter import format_source
from engine.pml.edit.writer import self_contained, write_schema
from engine.pml.parse.includes import MAX_CHAIN, MAX_INCLUDES
from tests.pml.documents import schema_tree
from tests.pml.documents import spelled as said

OPEN = '<schema name="rules">'
BOTH = '<module name="brief">Be brief.</module>\n<module name="kind">Be kind.</module>'
RULES = f"{OPEN}{BOTH}</schema>"
INCLUDING = '<schema name="s">{}</schema>'
INCLUDE = '<include src="x.pml"/>'


def parsed(folder: Path, source: str, **files: str) -> Parsed[Schema]:
    """A schema beside files; `__` is a slash in their names, and each ends in .pml."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.pml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return parse_schema(source, base=folder)


def sound(folder: Path, source: str, **files: str) -> Schema:
    found = parsed(folder, source, **files)
    assert found.diagnostics == ()
    assert found.tree is not None
    return found.tree


def the_fault(found: Parsed[Schema]) -> Diagnostic:
    (fault,) = [one for one in found.diagnostics if one.severity == "error"]
    return fault


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ('<schema name="s"><include src="rules.pml"/></schema>', ["brief", "kind"]),
        ('<schema name="s"><user>Hm <include src="rules.pml"/></user></schema>', ["brief", "kind"]),
        (
            '<schema name="s"><module name="m"><include src="rules.pml"/></module></schema>',
            ["m", "m/brief", "m/kind"],
        ),
    ],
)
def test_the_tree_is_that_of_the_text_written_there(tmp_path: Path, source: str, paths: list[str]) -> None:
    schema = sound(tmp_path, source, rules=RULES)
    assert schema == parse_schema(source.replace('<include src="rules.pml"/>', BOTH)).tree
    assert [module.path for module in schema.modules()] == paths
    assert schema.included == ("rules.pml",)


def test_turns_and_scaffolds_come_along_with_their_paths(tmp_path: Path) -> None:
    turns = f'<schema name="t"><system>Sys.</system>{BOTH}<scaffold modules="brief kind"/></schema>'
    schema = sound(tmp_path, '<schema name="s"><include src="t.pml"/><user>Hi</user></schema>', t=turns)
    assert [one.modules for one in schema.scaffolds] == [("brief", "kind")]
    below = RULES.replace("</schema>", '<scaffold modules="brief kind"/></schema>')
    source = '<schema name="s"><module name="m"><include src="r.pml"/></module></schema>'
    assert [one.modules for one in sound(tmp_path, source, r=below).scaffolds] == [("m/brief", "m/kind")]


def test_what_is_included_may_include_and_have_texts_of_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "unit.txt").write_text("A unit.")
    inner = '<schema name="i"><module name="unit" src="unit.txt"/>\n<include src="deep/b.pml"/></schema>'
    schema = sound(
        tmp_path,
        '<schema name="s"><include src="parts/a.pml"/></schema>',
        parts__a=inner,
        parts__deep__b=RULES,
    )
    assert schema.included == ("parts/a.pml", "parts/deep/b.pml")
    unit, *others = schema.modules()
    assert (unit.src, [module.name for module in others]) == ("parts/unit.txt", ["brief", "kind"])
    assert "A unit." in said(schema, "<prompt><unit/></prompt>")
    again = schema_tree(write_schema(self_contained(schema)))
    assert [module.path for module in again.modules()] == [module.path for module in schema.modules()]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('<module name="a">A</module>\n<include src="x.pml"/>\n\n<module name="b">B</module>', "A\nX\n\nB"),
        ('Text\n<include src="x.pml"/> more', "Text\nX more"),
        ('<include src="x.pml"/><module name="b">2</module>', "X2"),
    ],
)
@pytest.mark.parametrize("module", [True, False])
def test_white_space_round_it_sets_apart_what_it_brings(
    tmp_path: Path, written: str, text: str, module: bool
) -> None:
    x = '<schema name="x"><module name="x">X</module></schema>' if module else '<schema name="x">X</schema>'
    schema = sound(tmp_path, f'<schema name="s">{written}</schema>', x=x)
    names = [name for name in ("a", "x", "b") if schema.module(name)]
    assert said(schema, f"<prompt>{''.join(f'<{name}/>' for name in names)}</prompt>") == text


def test_faults_of_a_file_name_it_and_stand_at_the_include(tmp_path: Path) -> None:
    source = '<schema name="s">\n  <include src="x.pml"/>\n</schema>'
    fault = the_fault(parsed(tmp_path, source, x='<schema name="x">\n<module name="a b">t</module></schema>'))
    assert (fault.code, fault.file, fault.line, fault.column) == ("E301", "x.pml", 2, 15)
    assert fault.fix == (), "an edit would be of another text"
    here = fault.in_place(source)
    assert (here.file, here.line, source[here.span.start : here.span.end]) == ("", 2, "x.pml")
    assert here.message.startswith("x.pml:2:15: 'a b' cannot name a module")
    assert fault.to_json()["file"] == "x.pml"
    assert str(PromptError((fault,))).startswith("E301 at line 2, column 15 of 'x.pml': ")
    broken = the_fault(parsed(tmp_path, source, x='<schema name="x"><module name="a">t</schema>'))
    assert (broken.code, broken.file) == ("E105", "x.pml")


def test_words_that_touch_are_told_once_in_the_file_that_has_them(tmp_path: Path) -> None:
    x = '<schema name="x"><module name="a">one</module><module name="b">two</module></schema>'
    (found,) = parsed(tmp_path, INCLUDING.format(INCLUDE), x=x).diagnostics
    assert (found.code, found.file) == ("W613", "x.pml")
    source = INCLUDING.format(f'{INCLUDE}<module name="c">three</module>')
    (found,) = parsed(
        tmp_path, source, x='<schema name="x"><module name="a">one</module></schema>'
    ).diagnostics
    assert (found.code, found.file, found.fix[0].span.start) == ("W613", "", source.index("<module"))


def test_names_collide_as_those_of_siblings_do(tmp_path: Path) -> None:
    own = '<module name="brief">Hm.</module>'
    before = parsed(tmp_path, f'<schema name="s">{own}<include src="rules.pml"/></schema>', rules=RULES)
    fault = the_fault(before)
    assert (fault.code, fault.file) == ("E302", "rules.pml")
    assert "'brief' is already defined at line 1 of the schema that includes it" in fault.message
    fault = the_fault(parsed(tmp_path, f'<schema name="s"><include src="rules.pml"/>{own}</schema>'))
    assert (fault.code, fault.file) == ("E302", "")
    assert "'brief' is already defined at line 1 of 'rules.pml'" in fault.message
    inside = f'<schema name="s"><module name="m"><include src="rules.pml"/></module>{own}</schema>'
    assert parsed(tmp_path, inside).ok


@pytest.mark.parametrize(
    ("place", "file", "says"),
    [
        ("{}", "no words", "this is"),
        ("{}", "", "the document is empty"),
        ("{}", "<prompt/>", "its root is <prompt>; name a document that starts with <schema"),
        ("<user>{}</user>", '<schema name="x">\n<system>a</system></schema>', "its turn <system> at line 2"),
    ],
)
def test_what_cannot_be_included_is_said_at_the_include(
    tmp_path: Path, place: str, file: str, says: str
) -> None:
    source = INCLUDING.format(place.format(INCLUDE))
    fault = the_fault(parsed(tmp_path, source, x=file))
    assert (fault.code, fault.file, source[fault.span.start : fault.span.end]) == ("E211", "", "x.pml")
    assert says in fault.message


@pytest.mark.parametrize(("src", "code"), [("../x.pml", "E208"), ("/x.pml", "E208"), ("none.pml", "E209")])
def test_the_rules_of_folders_are_those_of_src(tmp_path: Path, src: str, code: str) -> None:
    found = parsed(tmp_path, f'<schema name="s"><include src="{src}"/></schema>')
    assert the_fault(found).code == code
    nested = parsed(
        tmp_path,
        '<schema name="s"><include src="a/b.pml"/></schema>',
        a__b=f'<schema name="b"><include src="{src}"/></schema>',
    )
    assert (the_fault(nested).code, the_fault(nested).file) == (code, "a/b.pml")


def test_without_a_folder_nothing_is_included() -> None:
    found = parse_schema('<schema name="s"><include src="x.pml"/></schema>')
    assert the_fault(found).code == "E209"


def test_what_the_sentences_say_mends_what_cannot_be_included(tmp_path: Path) -> None:
    assert not parsed(tmp_path, INCLUDING.format(INCLUDE), x="# Notes\n\nThe ferry leaves at nine.\n").ok
    assert parsed(tmp_path, INCLUDING.format('<module name="notes" src="x.pml"/>')).ok
    turns = '<schema name="x"><system>Be brief.</system></schema>'
    assert not parsed(tmp_path, INCLUDING.format(f"<user>{INCLUDE}</user>"), x=turns).ok
    assert parsed(tmp_path, INCLUDING.format(f"{INCLUDE}<user>Hi</user>")).ok
    without = turns.replace("<system>", "").replace("</system>", "")
    assert parsed(tmp_path, INCLUDING.format(f"<user>{INCLUDE}</user>"), x=without).ok


def test_circles_are_told_with_the_chain(tmp_path: Path) -> None:
    def including(name: str) -> str:
        return f'<schema name="s"><include src="{name}.pml"/></schema>'

    found = parsed(tmp_path, including("a"), a=including("b"), b=including("c"), c=including("b"))
    fault = the_fault(found)
    assert (fault.code, fault.file) == ("E211", "c.pml")
    assert "this schema → a.pml → b.pml → c.pml → b.pml" in fault.message
    itself = including("itself")
    fault = the_fault(parsed(tmp_path, itself, itself=itself))
    assert (fault.code, fault.file) == ("E211", "")
    assert "this schema → itself.pml" in fault.message


def test_a_circle_through_a_linked_folder_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "again").symlink_to(".")
    inner = '<schema name="s"><include src="again/x.pml"/></schema>'
    (tmp_path / "parts" / "x.pml").write_text(inner, encoding="utf-8")
    fault = the_fault(parsed(tmp_path, '<schema name="s"><include src="parts/x.pml"/></schema>'))
    assert (fault.code, fault.file) == ("E211", "parts/x.pml")
    assert "it would include itself" in fault.message
    assert "this schema → parts/x.pml → parts/again/x.pml" in fault.message


@pytest.mark.parametrize("element", ['<include src="{}"/>', '<module name="m" src="{}"/>'])
def test_an_address_of_the_net_is_told_as_it_is_written(tmp_path: Path, element: str) -> None:
    for address in ("http://example.org/a.pml", "HTTPS://example.org", "ftp://x", "file:///etc/x"):
        fault = the_fault(parsed(tmp_path, f'<schema name="s">{element.format(address)}</schema>'))
        assert fault.code == "E208"
        assert f"'{address}' is a URL, but src names only files" in fault.message


def test_chains_and_numbers_of_includes_are_bounded(tmp_path: Path) -> None:
    chain = {
        f"f{n}": f'<schema name="s"><include src="f{n + 1}.pml"/></schema>' for n in range(MAX_CHAIN + 3)
    }
    fault = the_fault(parsed(tmp_path, '<schema name="s"><include src="f0.pml"/></schema>', **chain))
    assert (fault.code, fault.file) == ("E211", f"f{MAX_CHAIN - 1}.pml")
    twice = {
        f"g{n}": f'<schema name="s">{2 * f"<include src={chr(34)}g{n + 1}.pml{chr(34)}/>"}</schema>'
        for n in range(12)
    }
    found = parsed(
        tmp_path,
        '<schema name="s"><include src="g0.pml"/></schema>',
        g12='<schema name="s">x</schema>',
        **twice,
    )
    assert any("at most 256 files" in one.message for one in found.diagnostics)
    assert MAX_INCLUDES == 256


def test_depth_is_bounded_over_all_files(tmp_path: Path) -> None:
    def nest(inner: str, levels: int) -> str:
        opening = "".join(f'<module name="m{n}">t' for n in range(levels))
        return f'<schema name="s">{opening}{inner}{"</module>" * levels}</schema>'

    fault = the_fault(parsed(tmp_path, nest('<include src="x.pml"/>', 150), x=nest("t", 150)))
    assert (fault.code, "256 deep" in fault.message) == ("E211", True)
    assert parsed(tmp_path, nest('<include src="x.pml"/>', 100), x=nest("t", 100)).ok


def test_it_holds_nothing_and_stands_where_modules_do(tmp_path: Path) -> None:
    (fault,) = parsed(
        tmp_path, '<schema name="s"><include src="rules.pml">x</include></schema>', rules=RULES
    ).diagnostics
    assert fault.code == "E207"
    found = parsed(tmp_path, '<schema name="s"><union><include src="rules.pml"/></union></schema>')
    assert "E206" in {one.code for one in found.diagnostics}
    assert the_fault(parsed(tmp_path, '<schema name="s"><include/>x</schema>')).code == "E202"


def test_a_scaffold_may_name_what_is_included(tmp_path: Path) -> None:
    source = (
        '<schema name="s">\n  <include src="rules.pml"/>\n  <scaffold modules="brief nobody"/>\n</schema>'
    )
    fault = the_fault(parsed(tmp_path, source, rules=RULES))
    assert (fault.code, source[fault.span.start : fault.span.end]) == ("E306", "nobody")
    sole = source.replace('  <scaffold modules="brief nobody"/>\n', "")
    changed = add_scaffold(sole, ["brief", "kind"], tmp_path)
    assert sound(tmp_path, changed).scaffolds[0].modules == ("brief", "kind")
    faulty = RULES.replace("</schema>", '<scaffold modules="brief own"/></schema>')
    fault = the_fault(parsed(tmp_path, '<schema name="s"><include src="f.pml"/></schema>', f=faulty))
    assert (fault.code, fault.file) == ("E306", "f.pml")


def test_the_formatter_keeps_the_include_as_it_is_written() -> None:
    written = 'Hm\n\n<include  src = "rules.pml"></include>\n<module name="m">x</module>'
    source = INCLUDING.format(f"<user>{written}</user>")
    formatted = format_source(source)
    assert '    Hm\n\n    <include src="rules.pml"/>\n    <module name="m">x</module>\n' in formatted
    assert format_source(formatted) == formatted
