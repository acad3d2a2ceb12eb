"""The help's documents: each is cut into blocks, its links lead somewhere, and markup stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.studio.documents.requests import Nothing, OneDocument
from app.studio.workspace.help import Help, HelpBlock, HelpSpan, blocks, docs_folder
from engine.base.errors import PromptCacheError

HELP = Help()
TITLES = HELP.list_help(Nothing())["documents"]
READ = {one["name"]: HELP.read_help(OneDocument(name=one["name"]))["blocks"] for one in TITLES}


def spans_of(found: list[HelpBlock]) -> list[HelpSpan]:
    cells = [span for block in found for row in block.get("rows", []) for cell in row for span in cell]
    return [span for block in found for span in block.get("spans", [])] + cells


def words(block: HelpBlock) -> str:
    return "".join(span["text"] for span in block.get("spans", []))


def test_every_document_is_offered_by_its_title() -> None:
    folder = docs_folder()
    assert folder is not None
    assert {one["name"] for one in TITLES} == {path.stem for path in folder.glob("*.md")}
    assert TITLES[0] == {"name": "glossary", "title": "Glossary"}
    for one in TITLES:
        first = READ[one["name"]][0]
        assert (first["kind"], first["level"], words(first)) == ("heading", 1, one["title"])


@pytest.mark.parametrize("name", READ)
def test_links_within_the_help_lead_to_a_document_and_its_heading(name: str) -> None:
    for span in spans_of(READ[name]):
        href = span.get("href", "")
        if not href.startswith("#"):
            assert href == "" or href.startswith("https://")
            continue
        wanted, _, anchor = href[1:].partition("/")
        anchors = {block.get("anchor") for block in READ[wanted or name]}
        assert not anchor or anchor in anchors, href


def test_blocks_say_what_a_document_says() -> None:
    source = """# One `two`

Some *soft* and **hard** words, a [link](pml.md#unions) and [code](../app/x.py).

1. first
   with `more`

   a second paragraph
   - inner
2. next

| a | b |
|---|---|
| 1 | `<b>` |

```xml
<schema name="s"/>
```

<script>alert(1)</script>
"""
    found = blocks(source)
    assert [(one["kind"], one["level"], one.get("marker")) for one in found] == [
        ("heading", 1, None),
        ("paragraph", 0, None),
        ("item", 1, "1."),
        ("paragraph", 1, None),
        ("item", 2, "•"),
        ("item", 1, "2."),
        ("table", 0, None),
        ("code", 0, None),
    ]
    assert found[0].get("anchor") == "one-two"
    assert words(found[2]) == "first with more"
    assert [(one["text"], one["style"]) for one in found[1].get("spans", [])][1] == ("soft", "em")
    assert [one.get("href") for one in found[1].get("spans", []) if one["text"] in ("link", "code")] == [
        "#pml/unions",
        None,
    ]
    assert found[6].get("rows", [])[1][1] == [{"text": "<b>", "style": "code"}]
    assert found[7].get("text") == '<schema name="s"/>'


@pytest.mark.parametrize("name", ["nothing", "../README", "", "/etc/passwd"])
def test_only_documents_of_the_help_are_read(name: str) -> None:
    with pytest.raises(PromptCacheError, match="no document"):
        HELP.read_help(OneDocument(name=name))


def test_an_installation_without_documents_says_so(tmp_path: Path) -> None:
    alone = Help(folder=tmp_path)
    assert alone.list_help(Nothing()) == {"documents": []}
    with pytest.raises(PromptCacheError, match="in this installation"):
        alone.read_help(OneDocument(name="glossary"))
