"""Which schema a prompt goes by, and what counts where an editor has another text than the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.base.document_index import STALE, Library
from app.lsp.occurrences import definition
from app.lsp.rename import RenameError, rename
from app.lsp.targets import target_at
from app.lsp.view import View
from engine.files.text_files import TextFileError

SCHEMA = """<schema name="trip"><module name="tokyo">東京 🗼</module>
<module name="rome">Ruins.</module></schema>
"""
PROMPT = '<prompt schema="trip"><tokyo/>Where?</prompt>\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trip.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "one.pml").write_text(PROMPT, encoding="utf-8")
    return tmp_path


def codes(library: Library, path: Path) -> list[str]:
    return [found.code for found in library.diagnostics(library.document(path))]


def test_a_prompt_goes_by_the_schema_of_its_folder(folder: Path) -> None:
    library = Library()
    basis = library.basis(library.document(folder / "one.pml"))
    assert basis is not None
    assert (basis.document.path, basis.stale) == (folder / "trip.pml", False)
    assert [prompt.path.name for prompt in library.prompts(folder / "trip.pml")] == ["one.pml"]
    assert codes(library, folder / "one.pml") == []


def test_what_is_open_counts_before_what_is_on_the_disk(folder: Path) -> None:
    library = Library()
    library.hold(folder / "trip.pml", SCHEMA.replace("tokyo", "kyoto"))
    assert codes(library, folder / "one.pml") == ["E402"]
    library.release(folder / "trip.pml")
    assert codes(library, folder / "one.pml") == []


def test_a_file_that_changes_is_read_again(folder: Path) -> None:
    library = Library()
    assert codes(library, folder / "one.pml") == []
    (folder / "trip.pml").write_text(SCHEMA.replace("tokyo", "kyoto-by-night"), encoding="utf-8")
    assert codes(library, folder / "one.pml") == ["E402"]


def test_while_a_schema_is_broken_its_last_sound_state_counts(folder: Path) -> None:
    library = Library()
    library.hold(folder / "trip.pml", SCHEMA)
    library.hold(folder / "trip.pml", '<schema name="trip"><module name="to')
    assert codes(library, folder / "one.pml") == []
    library.hold(folder / "one.pml", PROMPT.replace("tokyo", "venice"))
    (found,) = library.diagnostics(library.document(folder / "one.pml"))
    assert found.code == "E402"
    assert found.message.endswith(STALE)


def test_of_two_schemas_of_one_name_the_one_called_like_the_prompt_counts(folder: Path) -> None:
    (folder / "copy.pml").write_text(SCHEMA.replace("tokyo", "kyoto"), encoding="utf-8")
    (folder / "copy.prompt.1.pml").write_text(PROMPT.replace("tokyo", "kyoto"), encoding="utf-8")
    library = Library()
    assert codes(library, folder / "copy.prompt.1.pml") == []
    assert codes(library, folder / "one.pml") == []


def test_a_prompt_without_a_name_goes_by_the_file_it_is_called_like(folder: Path) -> None:
    (folder / "other.pml").write_text('<schema name="other"><module name="m">x</module></schema>', "utf-8")
    (folder / "trip.prompt.pml").write_text("<prompt><tokyo/>When?</prompt>", encoding="utf-8")
    (folder / "loose.pml").write_text("<prompt><tokyo/></prompt>", encoding="utf-8")
    library = Library()
    assert codes(library, folder / "trip.prompt.pml") == []
    assert library.basis(library.document(folder / "trip.prompt.pml")) is not None
    assert library.basis(library.document(folder / "loose.pml")) is None


def test_a_text_that_was_never_saved_goes_by_an_open_schema(folder: Path) -> None:
    library = Library()
    prompt = library.hold(Path("untitled:Untitled-1"), PROMPT)
    assert library.basis(prompt) is None
    library.hold(folder / "trip.pml", SCHEMA)
    assert library.basis(prompt) is not None
    assert library.diagnostics(prompt) == ()


def test_a_folder_of_many_prompts_is_looked_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (folder / f"p{number}.pml").write_text(PROMPT, encoding="utf-8")
    looks: list[Path] = []
    iterdir = Path.iterdir

    def counted(path: Path) -> Iterator[Path]:
        looks.append(path)
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", counted)
    library = Library()
    assert len(library.prompts(folder / "trip.pml")) == 21
    assert len(looks) == 1
    with library.looking_once():
        assert all(library.diagnostics(one) == () for one in library.beside(folder / "one.pml"))
        assert len(looks) == 2
        library.hold(folder / "trip.pml", SCHEMA.replace("tokyo", "kyoto"))
        assert codes(library, folder / "p3.pml") == ["E402"]
    assert len(library.prompts(folder / "trip.pml")) == 21


def test_what_cannot_be_read_is_left_out(folder: Path) -> None:
    (folder / "latin.pml").write_bytes(b'<schema name="\xe9"/>')
    (folder / "link.pml").symlink_to(folder / "nowhere.pml")
    library = Library()
    assert [one.path.name for one in library.beside(folder / "one.pml")] == ["one.pml", "trip.pml"]
    with pytest.raises(TextFileError, match="is not UTF-8"):
        library.document(folder / "latin.pml")


def test_other_xml_is_none_of_ours(folder: Path) -> None:
    library = Library()
    assert library.diagnostics(library.hold(folder / "page.xml", "<html><body/></html>")) == ()
    assert library.diagnostics(library.hold(folder / "page.pml", "<html><body/></html>")) != ()


def test_modules_of_included_files_are_found_where_they_are_defined(tmp_path: Path) -> None:
    (tmp_path / "rules.pml").write_text('<schema name="r"><module name="brief">Be brief.</module></schema>')
    main = '<schema name="s"><module name="m"><include src="rules.pml"/></module></schema>'
    (tmp_path / "s.pml").write_text(main)
    (tmp_path / "one.pml").write_text('<prompt schema="s"><m><brief/></m></prompt>')
    library = Library()
    view = View(library, library.document(tmp_path / "one.pml"))
    assert library.sources(library.document(tmp_path / "s.pml")) == [tmp_path / "rules.pml"]
    target = target_at(view, view.document.text.index("brief"))
    assert target is not None
    found = definition(view, target)
    assert found is not None
    document, span = found
    assert (document.path.name, document.text[span.start : span.end]) == ("rules.pml", "brief")
    with pytest.raises(RenameError, match=r"'brief' is defined in rules\.pml, an included file"):
        rename(view, target, "short")
