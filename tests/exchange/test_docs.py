"""The page on export and import: its template is one, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

from engine.exchange import FORMS, export, import_from
from engine.pml import parse_prompt, parse_schema

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "exchange.md").read_text(encoding="utf-8")


def test_every_form_has_a_row() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == set(FORMS)


def test_the_template_is_what_an_export_gives_and_an_import_takes(tmp_path: Path) -> None:
    shown = re.findall(r"```jinja\n(.*?)\n```", PAGE, re.S)[0]
    (tmp_path / "trip.jinja").write_text(shown, encoding="utf-8")
    schema = import_from(tmp_path / "trip.jinja").schema
    assert [module.path for module in schema.modules()] == ["plan", "tokyo", "rome"]
    union = "<union><module name='tokyo'>Tokyo …</module><module name='rome'>Rome …</module></union>"
    source = (
        "<schema name='trip'><user><module name='plan'>I want to be away for "
        f"<param name='duration' len='5' default='3 days'/>.</module>{union}</user></schema>"
    )
    tree, prompt = parse_schema(source).tree, parse_prompt("<prompt><plan/><tokyo/></prompt>").tree
    assert tree is not None
    assert export("jinja", tree, prompt).text.partition("#}")[2] == shown
