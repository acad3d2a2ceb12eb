"""Renaming on the page: both documents, from a caret in either."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from app.studio.documents.name_changes import renamed
from app.studio.documents.requests import RenameName
from engine.base.errors import PromptCacheError

SCHEMA = """<schema name="travel"><module name="trip">🗼 For <param name="days" len="5"/>.
  <union scaffold="tokyo"><module name="tokyo">Neon.</module><module name="rome">Old.</module></union>
  </module>
  <scaffold modules="trip trip/tokyo"/></schema>"""
PROMPT = '<prompt schema="travel"><!-- 🗼 --><trip days="3"><tokyo></tokyo></trip> Where?</prompt>'


def change(
    kind: Literal["schema", "prompt"], place: str, name: str, base: Path | None = None, schema: str = SCHEMA
) -> tuple[str, str]:
    text = {"schema": schema, "prompt": PROMPT}[kind]
    at = len(text[: text.index(place) + 1].encode("utf-16-le")) // 2
    answer = renamed(RenameName(schema=schema, prompt=PROMPT, kind=kind, at=at, name=name), base)
    return answer["schema"], answer["prompt"]


@pytest.mark.parametrize(("kind", "place"), [("schema", 'tokyo">Neon'), ("prompt", "tokyo>")])
def test_a_module_is_renamed_everywhere(kind: Literal["schema", "prompt"], place: str) -> None:
    assert change(kind, place, "kyoto") == (
        SCHEMA.replace("tokyo", "kyoto"),
        PROMPT.replace("tokyo", "kyoto"),
    )


@pytest.mark.parametrize(("kind", "place"), [("schema", 'days" len'), ("prompt", "days=")])
def test_a_parameter_is_renamed_with_its_arguments(kind: Literal["schema", "prompt"], place: str) -> None:
    assert change(kind, place, "span") == (SCHEMA.replace("days", "span"), PROMPT.replace("days", "span"))


@pytest.mark.parametrize("kind", ["schema", "prompt"])
def test_a_schema_is_renamed_with_the_attribute_of_its_prompt(kind: Literal["schema", "prompt"]) -> None:
    assert change(kind, 'travel">', "tour") == (
        SCHEMA.replace("travel", "tour"),
        PROMPT.replace("travel", "tour"),
    )


@pytest.mark.parametrize(
    ("place", "name", "says"),
    [
        ('tokyo">Neon', "rome", "Module 'trip/rome' already exists, at line 2."),
        ('tokyo">Neon', "new tokyo", "'new tokyo' cannot name a module: write 'new-tokyo' instead."),
        ('tokyo">Neon', "union", "'union' is an element of PML, so no module can have that name."),
        ("Old", "x", "Only modules, parameters and schemas can be renamed. Put the cursor on a name."),
    ],
)
def test_a_name_that_cannot_be_is_refused_in_a_sentence(place: str, name: str, says: str) -> None:
    with pytest.raises(PromptCacheError) as error:
        change("schema", place, name)
    assert str(error.value).startswith(says)


def test_other_files_of_the_folder_stay_out_of_it_and_included_modules_are_renamed_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "other.pml").write_text('<schema name="tour"><module name="x">x</module></schema>', "utf-8")
    (tmp_path / "more.pml").write_text('<schema name="m"><module name="sea">Sea.</module></schema>', "utf-8")
    assert change("schema", 'travel">', "tour", tmp_path)[1] == PROMPT.replace("travel", "tour")
    schema = SCHEMA.replace("<scaffold", '<include src="more.pml"/><scaffold').replace("/tokyo", " sea")
    with pytest.raises(PromptCacheError, match=r"^'sea' is defined in more\.pml, an included file\."):
        change("schema", 'sea"/>', "lake", tmp_path, schema)
