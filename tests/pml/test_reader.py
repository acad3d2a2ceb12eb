"""Hostile and awkward input: encodings, sizes, line ends, entity bombs, depth, files outside the folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.text_files import MAX_BYTES
from engine.pml import Module, Schema, Text, bind, document_kind, parse_prompt, parse_schema
from engine.pml.diagnostics.diagnostic import MAX_DIAGNOSTICS, MAX_ERRORS
from engine.pml.xml import scanned_text
from tests.pml.documents import prompt_tree, schema_tree

CLEAN = '<schema name="a">Grüße, 東京 🗼</schema>'


def calls(work: Callable[[], object]) -> int:
    """How many functions some work calls, those of the interpreter included."""
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def codes(source: str | bytes, base: Path | None = None) -> list[str]:
    return [found.code for found in parse_schema(source, base=base).diagnostics]


def texts(schema: Schema | None) -> list[str]:
    assert schema is not None
    return [child.text for child in schema.children if isinstance(child, Text)]


def test_bytes_and_text_read_the_same() -> None:
    assert parse_schema(CLEAN.encode()).tree == parse_schema(CLEAN).tree
    assert texts(parse_schema(CLEAN.encode()).tree) == ["Grüße, 東京 🗼"]


@pytest.mark.parametrize("source", [b"\xef\xbb\xbf" + CLEAN.encode(), "\ufeff" + CLEAN])
def test_a_byte_order_mark_is_no_fault(source: str | bytes) -> None:
    assert parse_schema(source).ok


def test_a_declaration_after_a_byte_order_mark_is_first() -> None:
    assert parse_schema('\ufeff<?xml version="1.0" encoding="utf-8"?>\n' + CLEAN).ok


def test_invalid_utf8_is_placed_in_characters() -> None:
    parsed = parse_schema(
        '<schema name="a">\nGrüße \xff'.encode("latin-1").replace(b"\xfc\xdf", "üß".encode()) + b"!</schema>"
    )
    found = parsed.diagnostics[0]
    assert (found.code, found.line, found.column) == ("E101", 2, 7)
    assert "0xFF" in found.message
    assert parsed.tree is not None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_has_its_own_sentence(encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    found = parse_schema(mark + CLEAN.encode(encoding)).diagnostics[0]
    assert found.code == "E101"
    assert "UTF-16" in found.message


def test_truncated_utf8_is_a_fault() -> None:
    assert codes(CLEAN.encode() + b"\xe6\x9d") == ["E101", "E115"]


@pytest.mark.parametrize("as_bytes", [True, False])
def test_size_is_limited(as_bytes: bool) -> None:
    frame = '<schema name="a"></schema>'
    fits = frame.replace("><", ">" + "é" * ((MAX_BYTES - len(frame)) // 2) + "<")
    over = fits.replace("é<", "ééé<")
    assert len(fits.encode()) <= MAX_BYTES < len(over.encode())
    parsed = parse_schema(fits.encode() if as_bytes else fits)
    assert parsed.ok
    parsed = parse_schema(over.encode() if as_bytes else over)
    assert [found.code for found in parsed.diagnostics] == ["E102"]
    assert parsed.tree is None


def test_line_ends_become_newlines_and_spans_count_the_source() -> None:
    source = '<schema name="a">\r\n  one\r\n  two\rthree\r\n</schema>'
    schema = schema_tree(source)
    assert texts(schema) == ["one\n  two\nthree"]
    span = schema.children[0].span
    assert source[span.start : span.end] == "one\r\n  two\rthree"


def test_attribute_line_ends_and_tabs_become_spaces_but_references_stay() -> None:
    prompt = prompt_tree('<prompt><m a="x\r\n\ty" b="x&#10;y&#x9;z"/></prompt>')
    node = prompt.children[0]
    assert [argument.value for argument in node.arguments] == ["x  y", "x\ny\tz"]  # type: ignore[union-attr]


def test_entities_and_cdata_are_decoded_in_text_and_values() -> None:
    text = "&lt;b&gt; &amp;amp; &#233;&#x1F5FC;<![CDATA[<i>&amp;</i>]]>"
    source = f'<schema name="a"><module name="m">{text}</module></schema>'
    schema = parse_schema(source)
    assert schema.ok
    assert schema.tree is not None
    assert schema.tree.modules()[0].children == (Text("<b> &amp; é🗼<i>&amp;</i>", schema.tree.span),)


def test_an_entity_bomb_stays_small() -> None:
    lines = ['<!ENTITY l0 "ha">'] + [f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)]
    source = f'<!DOCTYPE schema [{"".join(lines)}]><schema name="a">&l9;</schema>'
    parsed = parse_schema(source)
    assert [found.code for found in parsed.diagnostics] == ["E111", "E110"]
    assert texts(parsed.tree) == ["&l9;"]


def test_an_external_entity_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    url = (tmp_path / "secret").as_uri()
    source = f'<!DOCTYPE schema [<!ENTITY x SYSTEM "{url}">]><schema name="a">&x;</schema>'
    parsed = parse_schema(source, base=tmp_path)
    assert texts(parsed.tree) == ["&x;"]
    assert {found.code for found in parsed.diagnostics} == {"E110", "E111"}


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("tag", ['module name="m"', "union", "user", "zzz", 'param name="p" len="1"'])
def test_thousands_of_nested_elements(tag: str, closed: bool) -> None:
    name = tag.split()[0]
    source = '<schema name="a">' + f"<{tag}>" * 3_000 + (f"</{name}>" * 3_000 + "</schema>" if closed else "")
    parsed = parse_schema(source)
    assert not parsed.ok
    assert "E117" in {found.code for found in parsed.diagnostics}
    again = parse_schema(source.encode()).tree  # which is in no cache
    assert parsed.tree == again
    assert hash(parsed.tree) == hash(again)
    assert len(repr(parsed.tree)) < 200


def test_ten_thousand_nested_imports() -> None:
    parsed = parse_prompt("<prompt>" + "<m>" * 10_000 + "</m>" * 10_000 + "</prompt>")
    schema = schema_tree(CLEAN)
    assert parsed.tree is not None
    assert not bind(schema, parsed.tree).ok


def test_a_tree_at_the_depth_limit_compares_and_binds() -> None:
    names = [f"m{depth}" for depth in range(255)]
    source = (
        '<schema name="a">'
        + "".join(f'<module name="{n}">' for n in names)
        + "x"
        + "</module>" * 255
        + "</schema>"
    )
    one, other = parse_schema(source), parse_schema(source.replace("x</module>", "y</module>"))
    assert one.ok
    assert one.tree == parse_schema(source.encode()).tree  # which is in no cache
    assert one.tree != other.tree
    assert one.tree is not None
    prompt = parse_prompt(
        "<prompt>" + "".join(f"<{n}>" for n in names) + "".join(f"</{n}>" for n in names[::-1]) + "</prompt>"
    )
    assert prompt.ok
    assert prompt.tree is not None
    bound = bind(one.tree, prompt.tree)
    assert bound.ok
    assert len(bound.imports) == 255


def siblings(count: int) -> str:
    modules = "".join(f'<module name="m{n}">t</module>' for n in range(count))
    return f'<schema name="a">{modules}</schema>'


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small limit of elements, attributes and comments."""
    monkeypatch.setattr(scanned_text, "MAX_ITEMS", 2_000)
    return 2_000


def test_as_many_siblings_as_a_document_may_have(most: int) -> None:
    count = (most - 2) // 2
    parsed = parse_schema(siblings(count))
    assert parsed.ok
    assert parsed.tree is not None
    assert len(parsed.tree.modules()) == count
    assert parsed.tree.module(f"m{count - 1}") is not None


def test_further_siblings_are_an_error(most: int) -> None:
    parsed = parse_schema(siblings(most))
    (fault,) = (found for found in parsed.diagnostics if found.severity == "error")  # advice does not hide it
    assert fault.code == "E120"
    assert parsed.tree is not None
    assert len(parsed.tree.modules()) == most // 2 - 1
    assert parsed.source.startswith("<module", fault.span.start)


@pytest.mark.parametrize("piece", ["<", "&", "]]>", "<!x", "<a b='", "\x01", "</a", "<?x?>"])
def test_a_document_of_faults_is_not_read_to_its_end(piece: str) -> None:
    parsed = parse_schema("<schema name='a'>" + piece * 500_000)
    assert len(parsed.diagnostics) == MAX_DIAGNOSTICS + 1
    hidden = parsed.diagnostics[-1]
    assert hidden.code == "E119"
    count, _, words = hidden.message.partition(" or more errors")
    assert words
    assert MAX_ERRORS - MAX_DIAGNOSTICS <= int(count) < 2 * MAX_ERRORS


def test_comments_and_attributes_count_too(most: int) -> None:
    comments = parse_schema("<schema name='a'>" + "<!-- x -->" * most + "</schema>")
    values = " ".join(f"a{n}=''" for n in range(most))
    attributes = parse_schema(f"<schema {values}/>")
    assert comments.diagnostics[-1].code == "E120"
    assert "E120" in {found.code for found in attributes.diagnostics}


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "&",
        "<!--",
        "<![CDATA[",
        "<!x",
        "<!DOCTYPE [",
        "<?",
        '<a b="',
        "<a b='<c d=\"",
        "</a",
        "</",
        "]]>",
        "<a ",
        "a<b/",
    ],
)
def test_repeated_faults_take_linear_time(piece: str) -> None:
    def parsing(count: int) -> int:
        return calls(lambda: parse_schema("<schema>" + piece * count))

    parsing(10)  # what is made once is made
    assert parsing(800) < 8.5 * parsing(100)


def test_many_siblings_bind() -> None:
    count = 500
    schema = parse_schema(siblings(count))
    prompt = parse_prompt("<prompt>" + "".join(f"<m{n}/>" for n in reversed(range(count))) + "</prompt>")
    assert schema.tree is not None
    assert prompt.tree is not None
    bound = bind(schema.tree, prompt.tree)
    assert bound.ok
    assert bound.imports[:2] == (f"m{count - 1}", f"m{count - 2}")
    assert len(bound.parts) == count


def test_a_scaffold_of_many_unknown_modules_stays_cheap() -> None:
    def parsing(count: int) -> int:
        names = " ".join(f"y{n}" for n in range(count))
        source = f'<schema name="a"><module name="m">t</module><scaffold modules="{names}"/></schema>'
        assert not parse_schema(source).ok
        return calls(lambda: parse_schema(source.encode()))  # which is in no cache

    assert parsing(20_000) - parsing(10_000) < 50_000


def test_many_unknown_imports_stay_cheap() -> None:
    def binding(count: int) -> int:
        schema = schema_tree(siblings(count))
        prompt = prompt_tree("<prompt>" + "".join(f"<n{n}/>" for n in range(count)) + "</prompt>")
        assert not bind(schema, prompt).ok
        return calls(lambda: bind(schema, prompt))

    assert binding(800) < 2 * binding(200)


@pytest.mark.parametrize("parse", [parse_schema, parse_prompt])
@pytest.mark.parametrize("tag", ["param", "parameter", "arg", "module", "union", "scaffold", "user", "x"])
def test_elements_left_open_in_one_another_take_no_longer(parse: Callable[[str], object], tag: str) -> None:
    """Each one, read once for itself and once for the element round it, would double the work."""
    root = "schema" if parse is parse_schema else "prompt"
    few, more, most = (calls(lambda n=n: parse(f"<{root}>" + f"<{tag} a='b'>text" * n)) for n in (4, 8, 12))
    assert most - more < 1.2 * (more - few)
    assert calls(lambda: parse(f"<{root}>" + f"<{tag} a='b'>text" * 100)) < 30 * more


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("<schema name='a'/>", "schema"),
        ("<prompt/>", "prompt"),
        ("<!-- <schema> --><?xml version='1.0'?>\n<prompt", "prompt"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><schema>", "schema"),
        ("<other/>", None),
        ("text", None),
        ("", None),
        ("<schemata/>", None),
        ("\ufeff<schema/>", "schema"),
    ],
)
def test_the_kind_of_a_document(source: str, kind: str | None) -> None:
    assert document_kind(source) == kind


def test_the_kind_of_a_hostile_document_is_found_in_linear_time() -> None:
    """Where each piece were searched to the end of the text, this would last for minutes."""
    for piece in ("<!--", "<![CDATA[", "<!DOCTYPE [", "<?", "<!x", "x"):
        assert document_kind(piece * 200_000) is None
        few, many = (calls(lambda n=n: document_kind(piece * n)) for n in (500, 4_000))  # noqa: B023
        assert many < 8.5 * few


# Files named by src


def parse_src(base: Path | None, src: str) -> tuple[list[str], list[Module]]:
    parsed = parse_schema(f'<schema name="a"><module name="m" src="{src}"/></schema>', base=base)
    assert parsed.tree is not None
    return [found.code for found in parsed.diagnostics], list(parsed.tree.modules())


def test_a_src_file_is_verbatim(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "unit.py").write_bytes("\n  <a> &amp; é\r\n\t\n".encode())
    found, (module,) = parse_src(tmp_path, "code/unit.py")
    assert found == []
    assert [child.text for child in module.children if isinstance(child, Text)] == ["\n  <a> &amp; é\r\n\t\n"]
    assert module.src == "code/unit.py"


@pytest.mark.parametrize(
    "src",
    [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/../x",
        "..",
        "~/x",
        "C:/x",
        "c:x",
        "\\\\host\\x",
        "a\\..\\x",
        "",
        " ",
        "a&#10;b",
    ],
)
def test_a_src_path_stays_inside(tmp_path: Path, src: str) -> None:
    (tmp_path / "x").write_text("secret")
    (tmp_path / "base" / "a").mkdir(parents=True)
    found, (module,) = parse_src(tmp_path / "base", src)
    assert found == ["E208"]
    assert module.children == ()


def test_a_link_may_stay_inside_but_not_lead_out(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "secret").write_text("secret")
    (base / "real").write_text("fine")
    (base / "inside").symlink_to("real")
    (base / "outside").symlink_to(tmp_path / "secret")
    (base / "folder").symlink_to(tmp_path)
    (base / "round").symlink_to("round")
    assert parse_src(base, "inside")[0] == []
    assert parse_src(base, "outside")[0] == ["E208"]
    assert parse_src(base, "folder/secret")[0] == ["E208"]
    assert parse_src(base, "round")[0] == ["E209"]


def test_a_base_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_text("fine")
    (tmp_path / "link").symlink_to("real")
    assert parse_src(tmp_path / "link", "x")[0] == []


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe", "missing", "folder/missing", "x" * 300):
        assert parse_src(tmp_path, name)[0] == ["E209"], name


def test_a_src_file_is_limited_and_utf8(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"a" * (MAX_BYTES + 1))
    (tmp_path / "most").write_bytes(b"a" * MAX_BYTES)
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    assert parse_src(tmp_path, "big")[0] == ["E209"]
    assert parse_src(tmp_path, "most")[0] == []
    assert parse_src(tmp_path, "latin")[0] == ["E209"]


def test_an_empty_src_file_gives_an_empty_module(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    found, (module,) = parse_src(tmp_path, "empty")
    assert found == ["W603"]
    assert module.children == ()
