"""The tree that schemas and prompts give, whole ones and broken ones, and the schemas of the papers."""

from __future__ import annotations

from engine.pml import Import, Module, Param, Role, Span, Text, Union, parse_prompt, parse_schema
from tests.pml.documents import prompt_tree
from tests.pml.documents import schema_tree as schema

PAPER_CODE = """<schema name="code-generation-game">
  <system>
    You are a sophisticated ...
  </system>
  <user>
    Please read the given source files...
    <module name="unit.py">
      class Unit:
        ...
    </module>
    <module name="player.py">
      class Player:
        ...
    </module>
  </user>
  <assistant>
    I have read and ...
  </assistant>
</schema>
"""

PAPER_TRAVEL = """<schema name="travel">
  <user>
    <module name="travel-plan"> I'm
      gearing up for a memorable escape
      ...
    <parameter name="duration" length="5
      " />
    ...
    <union>
      <module name='domestic'> My eyes
        are set ...
      <parameter name="city" length="
        10" />
      Given its domestic charm ...
    </module>
    <module name="overseas"> I'm
      yearning to tread ...
    <union>
      <module name="tokyo">
        Tokyo, Japan's bustling,...
      </module>
      <module name="europe">
        <union>
          <module name="rome">Rome</module>
          <module name="paris">Paris</module>
        </union>
      </module>
    </union>
    </module>
    </union>
    </module>
  </user>
</schema>
"""


PAPER_PERSONALIZATION = """<schema name="personalization-education">
  <system>Dialogues between people...
  </system>
  <user> **Tailor learning content ...
  <union>
    <module name="elementary">
      The elementary phase ..
    </module>
    <module name="middle-school">
      As students transition...
    </module>
  </union>
  2. Subject proficiency ...
  <union>
    <module name="beginner">
      A beginner is often at ...
    </module>
    <module name="expert">
      An expert stands at...
    </module>
  </union>
  3. Recent learning history
  <union>
    <module name="recently-studied">
      If a topic was engaged...
    </module>
    <module name="studied-6-months-before">
      Half a year is ample ...
    </module>
  </union>
  </user>
  <assistant>Noted.</assistant>
</schema>
"""


def test_the_schemas_of_the_paper_are_clean() -> None:
    assert parse_schema(PAPER_CODE).diagnostics == ()
    assert parse_schema(PAPER_TRAVEL).diagnostics == ()
    assert parse_schema(PAPER_PERSONALIZATION).diagnostics == ()


def test_the_structure_of_the_paper_is_read() -> None:
    tree = schema(PAPER_TRAVEL)
    assert [module.path for module in tree.modules()] == [
        "travel-plan",
        "travel-plan/domestic",
        "travel-plan/overseas",
        "travel-plan/overseas/tokyo",
        "travel-plan/overseas/europe",
        "travel-plan/overseas/europe/rome",
        "travel-plan/overseas/europe/paris",
    ]
    assert [(p.name, p.length) for module in tree.modules() for p in module.params()] == [
        ("duration", 5),
        ("city", 10),
    ]
    assert tree.parent_of("travel-plan/overseas/tokyo") == "travel-plan/overseas"
    assert tree.parent_of("travel-plan") is None
    assert tree.parent_of("nowhere/at-all") is None
    union = tree.union_of("travel-plan/overseas/europe/rome")
    assert union is not None
    assert [member.name for member in union.members] == ["rome", "paris"]
    assert tree.union_of("travel-plan") is None
    assert [module.path for module in tree.find("rome")] == ["travel-plan/overseas/europe/rome"]
    assert tree.find("travel-plan/domestic") == (tree.module("travel-plan/domestic"),)
    assert tree.find("nothing") == ()
    assert tree.module("rome") is None


def test_code_keeps_its_inner_indentation() -> None:
    module = schema(PAPER_CODE).module("unit.py")
    assert module is not None
    assert module.children[:1] == (Text("class Unit:\n  ...", Span(0, 0)),)


def test_attributes_reach_the_tree() -> None:
    tree = schema(
        '<schema name="a"><union scaffold="m"><module name="m" cache="false">'
        '<param name="p" len="007" default="a &amp; b" scaffold="x"/></module>'
        '<module name="n" cache="true">y</module></union><scaffold modules=" m  m "/></schema>'
    )
    module, other = tree.modules()
    assert (module.cache, other.cache) == (False, True)
    assert module.params() == (Param("p", 7, "a & b", "x", Span(0, 0)),)
    union = tree.children[0]
    assert isinstance(union, Union)
    assert union.scaffold == "m"
    assert tree.scaffolds[0].modules == ("m", "m")


def test_spans_cover_elements_and_names() -> None:
    source = '<schema name="a">é <module name="m">x<param name="p" len="1"/></module></schema>'
    tree = schema(source)
    module = tree.modules()[0]
    shown = [
        source[span.start : span.end] for span in (module.span, module.name_span, module.params()[0].span)
    ]
    assert shown == ['<module name="m">x<param name="p" len="1"/></module>', "m", '<param name="p" len="1"/>']
    assert source[tree.span.start : tree.span.end] == source


def test_equality_ignores_spans_only() -> None:
    one = '<schema name="a"><user><module name="m">x</module></user></schema>'
    assert schema(one) == schema(one.replace("<user>", "<user>\n  ").replace("</user>", "\n</user>"))
    for other in ('name="b"', 'name="a"><system>y</system', 'name="a" '):
        changed = one.replace('name="a"', other)
        assert (schema(one) == schema(changed)) == (other == 'name="a" ')
    assert schema(one) != schema(one.replace("x", "y"))
    assert schema(one) != schema(one.replace("user", "system"))
    assert schema(one) != "text"
    assert hash(schema(one)) == hash(schema(one))


def test_half_typed_documents_keep_their_tree() -> None:
    whole = schema(PAPER_TRAVEL)
    paths = [module.path for module in whole.modules()]
    at = PAPER_TRAVEL.index('      <module name="tokyo">')
    for typed in (
        "<",
        "<m",
        "<module",
        '<module name="',
        '<module name="x',
        "<module name=",
        "</",
        "&",
        "<!-",
        "<!--",
    ):
        broken = PAPER_TRAVEL[:at] + typed + "\n" + PAPER_TRAVEL[at:]
        parsed = parse_schema(broken)
        assert not parsed.ok, typed
        assert parsed.tree is not None
        assert [module.path for module in parsed.tree.modules() if module.name != "x"] == paths, typed


def test_a_lost_quote_or_bracket_keeps_the_tree() -> None:
    paths = [module.path for module in schema(PAPER_TRAVEL).modules()]
    for old, new in [
        ('<module name="tokyo">', '<module name="tokyo>'),
        ('<module name="tokyo">', '<module name="tokyo"'),
        ('<module name="tokyo">', "<module name=tokyo>"),
        ('<module name="tokyo">', '<modul name="tokyo">'),
        ('<module name="tokyo">', '<module nam="tokyo">'),
        ('<schema name="travel">', '<schema name="travel"'),
        ('<schema name="travel">', '<schema name="travel>'),
        ("</module>\n    </union>", "</modul>\n    </union>"),
        ("</schema>", ""),
        ('10" />', '10" >'),
    ]:
        assert old in PAPER_TRAVEL
        parsed = parse_schema(PAPER_TRAVEL.replace(old, new, 1))
        assert not parsed.ok, new
        assert parsed.tree is not None
        assert [module.path for module in parsed.tree.modules()] == paths, new


def test_modules_with_faulty_names_are_left_out() -> None:
    tree = schema(
        '<schema name="a"><module>x</module><module name="1">x</module><module name="user">x</module>'
        '<module name="m">first</module><module name="m">second</module></schema>'
    )
    assert [module.path for module in tree.modules()] == ["m"]
    assert tree.modules()[0].children == (Text("first", Span(0, 0)),)


def test_a_document_without_a_root_gives_no_tree() -> None:
    for source in ("", "   ", "text", "<!-- x -->", "<prompt/>"):
        parsed = parse_schema(source)
        assert parsed.tree is None
        assert not parsed.ok
        assert parsed.source == source
    assert parse_prompt("<schema name='a'/>").tree is None


def test_names_are_free_across_modules_but_not_across_roles() -> None:
    one, two = '<module name="x">1</module>', '<module name="x">2</module>'
    nested = f'<schema name="a"><module name="m">{one}</module><module name="n">{two}</module></schema>'
    assert parse_schema(nested).ok
    roles = f'<schema name="a"><system>{one}</system><user>{two}</user></schema>'
    assert [found.code for found in parse_schema(roles).diagnostics] == ["E302"]


def test_a_prompt_gives_imports_arguments_and_roles() -> None:
    source = (
        '<prompt schema="a">hi <m p="1" xml:space="default"><arg name="q">2</arg><n/>x</m>'
        "<user>ask</user></prompt>"
    )
    tree = prompt_tree(source)
    assert tree.schema == "a"
    assert source[tree.schema_span.start : tree.schema_span.end] == "a"
    begin, hi, seam, node, role = tree.children
    assert begin == Text("\n", Span(0, 0), seam=True, implied=True)
    assert seam == Text(" ", Span(0, 0), seam=True)
    assert isinstance(node, Import)
    assert isinstance(role, Role)
    assert hi == Text("hi", Span(0, 0))
    assert [(argument.name, argument.value) for argument in node.arguments] == [("p", "1"), ("q", "2")]
    assert isinstance(node.children[0], Import)
    assert (role.role, role.children) == ("user", (Text("ask", Span(0, 0)),))
    assert [source[a.span.start : a.span.end] for a in node.arguments] == ['p="1"', '<arg name="q">2</arg>']
    assert source[node.name_span.start : node.name_span.end] == "m"


def test_a_prompt_needs_no_schema_name() -> None:
    parsed = parse_prompt("<prompt>Hello</prompt>")
    assert parsed.ok
    assert parsed.tree is not None
    assert parsed.tree.schema is None


def test_printing_a_module_is_short() -> None:
    module = schema(PAPER_TRAVEL).modules()[0]
    assert isinstance(module, Module)
    assert repr(module) == "Module('travel-plan', True, None, 5 below)"
