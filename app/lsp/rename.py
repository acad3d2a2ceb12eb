"""Renames a module, parameter or schema, in the schema and in its prompts.

The edits are first tried on copies. An invalid name, or one that changes the meaning of a prompt, is
rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.base.document_index import Document, Library
from app.lsp.occurrences import definition, occurrences
from app.lsp.targets import Target
from app.lsp.view import View
from engine.base.errors import PromptCacheError
from engine.pml import (
    NAME,
    RESERVED,
    ArgumentText,
    Edit,
    NewText,
    Schema,
    SchemaText,
    apply_edits,
    bind,
    has_errors,
)
from engine.pml.diagnostics.diagnostic import quote
from engine.pml.parse.schema_attributes import MAX_PATH
from engine.pml.xml.suggestions import name_advice

Edits = dict[Path, list[Edit]]

NO_NAME: Final = "Only modules, parameters and schemas can be renamed. Put the cursor on a name."


class RenameError(PromptCacheError):
    """A rename is not possible; the text explains why."""


def old_name(target: Target) -> str | None:
    """Returns the current name of a target; None if it cannot be renamed."""
    match target.kind:
        case "module":
            return target.path.rpartition("/")[2]
        case "param" | "schema":
            return target.name
    return None


def rename(view: View, target: Target, new: str) -> Edits:
    """Returns the edits of a rename, by document; raises RenameError if it is not possible."""
    with view.library.looking_once():
        return _rename(view, target, new)


def _rename(view: View, target: Target, new: str) -> Edits:
    old, home = old_name(target), view.home
    if old is None:
        raise RenameError(NO_NAME)
    schema = view.library.schema(home).tree if home is not None else None
    if home is None or schema is None:
        raise RenameError("The schema of this prompt is not in its folder. Open it, or put it there first.")
    if new == old:
        return {}
    _require_name(target, new)
    _require_free(view.library, home, schema, target, new)
    defined = definition(view, target)
    if defined is not None and defined[0].path != home.path:
        file = defined[0].path.name
        raise RenameError(f"{quote(old)} is defined in {file}, an included file. Rename it there.")
    spans_by_path = occurrences(view, target)
    names = {path: [Edit(span, new) for span in spans] for path, spans in spans_by_path.items()}
    _require_defined_once(view.library, home, target, names)
    _require_same_meaning(view.library, home, schema, names)
    return names


def _require_name(target: Target, new: str) -> None:
    if not NAME.fullmatch(new):
        raise RenameError(f"{quote(new)} cannot name a {_noun(target)}: {name_advice(new)}.")
    if target.kind == "module" and new in RESERVED:
        raise RenameError(f"{quote(new)} is an element of PML, so no module can have that name.")


def _require_free(library: Library, home: Document, schema: Schema, target: Target, new: str) -> None:
    if target.kind == "schema":
        others = [file for file in library.schemas(home.path) if file.path != home.path and file.name == new]
        if others:
            raise RenameError(f"{others[0].path.name} defines a schema {quote(new)} already.")
        return
    module = schema.module(target.path)
    if module is None:
        raise RenameError(f"The schema has no module {quote(target.path)}. Fix the schema first.")
    if target.kind == "param":
        if new in {param.name for param in module.params()}:
            raise RenameError(f"Module {quote(target.path)} has a parameter {quote(new)} already.")
        return
    above = target.path.rpartition("/")[0]
    existing = schema.index.members.get(above, {}).get(new)
    if existing is not None:
        line = schema.lines.line(existing.name_span.start)
        raise RenameError(f"Module {quote(existing.path)} already exists, at line {line}.")
    longest = max(len(path) for path in schema.index.by_path if f"{path}/".startswith(f"{target.path}/"))
    if longest - len(module.name) + len(new) > MAX_PATH:
        raise RenameError(f"A path would have more than {MAX_PATH} characters. Choose a shorter name.")


def _require_defined_once(library: Library, home: Document, target: Target, edits: Edits) -> None:
    """Rejects an ambiguous module, and path lists with `&`, which hides the spans of names."""
    at_home = View(library, home)
    if target.kind == "module":
        places = [element for element in at_home.elements() if at_home.path_of(element) == target.path]
        if len(places) != 1:
            raise RenameError(f"{len(places)} modules are named {quote(target.path)}. Fix that first.")
        for element in at_home.elements():
            modules = element.get("modules")
            if modules is not None and "&" in home.text[modules.value_span.start : modules.value_span.end]:
                raise RenameError("A scaffold names modules with a reference like &#97;. Write it out first.")
    if home.path not in edits:
        raise RenameError(f"{home.path.name} does not define this {_noun(target)}.")


def _require_same_meaning(library: Library, home: Document, schema: Schema, edits: Edits) -> None:
    """Rejects edits that cause a new error or change the content of a prompt."""
    renamed = library.imagined(home.path, apply_edits(home.text, edits[home.path]))
    after = library.schema(renamed).tree
    if after is None or _errors(library, renamed) > _errors(library, home):
        raise RenameError(f"{home.path.name} would have an error with this name.")
    for prompt in library.prompts(home.path):
        before = library.prompt(prompt).tree
        changed = library.imagined(prompt.path, apply_edits(prompt.text, edits.get(prompt.path, [])))
        tree = library.prompt(changed).tree
        if before is None or tree is None:
            continue
        was, now = bind(schema, before), bind(after, tree)
        if _said(was.parts) != _said(now.parts) or (
            has_errors(now.diagnostics) and not has_errors(was.diagnostics)
        ):
            raise RenameError(
                f"With this name {prompt.path.name} would import another module. Nest the import there as in "
                "the schema first, or choose another name."
            )


def _said(parts: tuple[object, ...]) -> list[tuple[str, str]]:
    """The texts and turns of a bound prompt, in order."""
    content: list[tuple[str, str]] = []
    for part in parts:
        match part:
            case SchemaText():
                content.append(("schema", part.node.text))
            case ArgumentText() | NewText():
                content.append((type(part).__name__, part.text))
            case _:
                content.append((type(part).__name__, getattr(part, "role", "")))
    return content


def _errors(library: Library, document: Document) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in library.diagnostics(document))


def _noun(target: Target) -> str:
    return {"param": "parameter"}.get(target.kind, target.kind)
