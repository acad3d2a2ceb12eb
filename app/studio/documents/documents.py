"""A schema and a prompt as the page needs them: diagnostics, the module tree, picks, and words to complete.

Pure functions of the two texts, plus one cache of parsed schemas. Knows no tokenizer and no gradio.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.base.pml_keywords import ATTRIBUTES, ELEMENTS, EMPTY, preview
from app.studio.documents.requests import Argument, Pick
from app.studio.web.digests import digest, reads_files
from app.studio.web.source_offsets import to_utf16
from engine.base.errors import PromptCacheError
from engine.exchange import export
from engine.pml import (
    ROLES,
    Diagnostic,
    Module,
    Parsed,
    Prompt,
    PromptError,
    Role,
    Schema,
    Union,
    bind,
    mended,
    parse_prompt,
    parse_schema,
    read_picks,
    set_argument,
    set_pick,
)
from engine.pml.diagnostics.quick_fixes import Diagnose
from engine.pml.edit.formatter import format_source

PARSED_SCHEMAS = 16

PROMPT_FORMS = ("openai", "anthropic", "text")


Mark = TypedDict(
    "Mark",
    {
        "code": str,
        "severity": Literal["error", "warning", "info"],
        "message": str,
        "fixes": list[str],
        "from": int,
        "to": int,
        "line": int,
        "column": int,
    },
)


class Parameter(TypedDict):
    """A blank of a module."""

    name: str
    length: int
    default: str


class TreeRow(TypedDict):
    """One row of the module tree; a union has no more than its depth."""

    kind: Literal["module", "union"]
    depth: int
    name: NotRequired[str]
    path: NotRequired[str]
    preview: NotRequired[str]
    params: NotRequired[list[Parameter]]


class Word(TypedDict):
    """An element that can be completed."""

    name: str
    kind: str
    detail: str
    info: NotRequired[str]
    parents: NotRequired[list[str]]
    empty: NotRequired[bool]


class Attribute(TypedDict):
    """An attribute that can be completed."""

    name: str
    detail: str


class EditorWords(TypedDict):
    """What one editor can complete and explain."""

    elements: list[Word]
    attributes: dict[str, list[Attribute]]
    help: dict[str, str]


class WordsOfBoth(TypedDict):
    """What both editors can complete and explain."""

    schema: EditorWords
    prompt: EditorWords


class Picks(TypedDict):
    """What a prompt has picked: paths, and arguments by path and name."""

    paths: list[str]
    arguments: dict[str, dict[str, str]]


class Exported(TypedDict):
    """A document in another form."""

    text: str
    filename: str
    media_type: str
    notes: list[str]


@dataclass(frozen=True)
class Checked:
    """One look at both documents.

    Attributes:
        schema: the parsed schema, as it stands.
        basis: the schema that prompt and picker go by: this one, or the last one without errors.
        stale: `basis` is not `schema`.
        prompt: the parsed prompt.
        bound: faults of the prompt against `basis`.
    """

    schema: Parsed[Schema]
    basis: Parsed[Schema]
    stale: bool
    prompt: Parsed[Prompt]
    bound: tuple[Diagnostic, ...]

    @property
    def of_prompt(self) -> tuple[Diagnostic, ...]:
        """Every fault that stands in the prompt; those against an earlier schema say so."""
        words = " (checked against the last schema without errors)" if self.stale else ""
        return (*self.prompt.diagnostics, *(replace(d, message=d.message + words) for d in self.bound))


class Documents:
    """Checks and edits of the two documents. Safe to use from several threads."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[str, Parsed[Schema]] = OrderedDict()
        self._lock = threading.Lock()

    def schema(self, source: str, base: Path | None = None) -> Parsed[Schema]:
        """The parsed schema; the same object again for the same text, unless it reads other files."""
        key = f"{digest(source)} {base}"
        with self._lock:
            if key in self._parsed:
                self._parsed.move_to_end(key)
                return self._parsed[key]
        parsed = parse_schema(source, base=base)
        if reads_files(source):
            return parsed
        with self._lock:
            self._parsed[key] = parsed
            while len(self._parsed) > PARSED_SCHEMAS:
                self._parsed.popitem(last=False)
        return parsed

    def check(
        self, schema: str, prompt: str, *, fallback: str | None = None, base: Path | None = None
    ) -> Checked:
        """Checks both documents.

        Args:
            schema: the schema's text.
            prompt: the prompt's text.
            fallback: the last schema text without errors; the prompt is bound to it while `schema` has some,
                unless `schema` has another name.
            base: the folder that `src` attributes of the schema are read from.
        """
        parsed = self.schema(schema, base)
        stale, basis = False, parsed
        if not parsed.ok and fallback is not None:
            last = self.schema(fallback, base)
            stale = parsed.tree is None or last.tree is None or parsed.tree.name in ("", last.tree.name)
            basis = last if stale else parsed
        parsed_prompt = parse_prompt(prompt)
        bound: tuple[Diagnostic, ...] = ()
        if basis.tree is not None and parsed_prompt.tree is not None:
            bound = bind(basis.tree, parsed_prompt.tree, self._earlier(basis.tree)).diagnostics
        return Checked(parsed, basis, stale, parsed_prompt, bound)

    def _earlier(self, schema: Schema) -> list[Schema]:
        """What a schema said before, as far as that is remembered, the latest first."""
        with self._lock:
            trees = [parsed.tree for parsed in reversed(self._parsed.values()) if parsed.ok]
        return [one for one in trees if one is not None and one is not schema and one.name == schema.name]


def diagnostics_json(diagnostics: Iterable[Diagnostic], source: str) -> list[Mark]:
    """Diagnostics for the editor: offsets in UTF-16, in the order of the text, each once."""
    offset = to_utf16(source)
    shown = {one.in_place(source) for one in diagnostics}
    unique = sorted(shown, key=lambda d: (d.span.start, d.span.end, d.code, d.message))
    return [
        {
            "code": d.code,
            "severity": d.severity,
            "message": d.message,
            "fixes": [fix.title for fix in d.fixes],
            "from": offset(d.span.start),
            "to": offset(d.span.end),
            "line": d.line,
            "column": d.column,
        }
        for d in unique
    ]


def mended_document(source: str, code: str, place: int, title: str, diagnose: Diagnose) -> str:
    """A document after a quick fix of one of its faults.

    Args:
        source: the document.
        code: the fault's code.
        place: the offset at which the fault begins, in UTF-16.
        title: which of its fixes.
        diagnose: finds the faults of a document.

    Raises:
        PromptCacheError: there is no such fault, or its fix would do harm.
    """
    offset = to_utf16(source)
    found = (d for d in diagnose(source) if (d.code, offset(d.span.start)) == (code, place))
    chosen = next(((fault, fix) for fault in found for fix in fault.fixes if fix.title == title), None)
    if chosen is None:
        raise PromptCacheError("The document has changed since. Look at its marks again.")
    result = mended(source, chosen[0], diagnose, chosen[1])
    if result is None:
        raise PromptCacheError(
            f"“{title}” would bring more faults than it mends here, so nothing was changed. Mend the "
            "other faults first, or this one by hand."
        )
    return result


def first_error(diagnostics: Iterable[Diagnostic]) -> Diagnostic | None:
    """The error that stands first in the text."""
    errors = [d for d in diagnostics if d.severity == "error"]
    return min(errors, key=lambda d: d.span.start, default=None)


def tree_json(schema: Schema) -> list[TreeRow]:
    """The modules and unions for the picker in document order, each with its depth; turns are left out.

    A list, for JSON itself may not be nested as deep as a schema.
    """
    rows: list[TreeRow] = []
    pending: list[tuple[object, int]] = [(child, 0) for child in reversed(schema.children)]
    while pending:
        node, depth = pending.pop()
        below: tuple[object, ...] = ()
        match node:
            case Role():
                pending.extend((child, depth) for child in reversed(node.children))
            case Union():
                rows.append({"kind": "union", "depth": depth})
                below = node.members
            case Module():
                rows.append(_module_json(node, depth))
                below = node.children
        pending.extend((child, depth + 1) for child in reversed(below))
    return rows


def _module_json(module: Module, depth: int) -> TreeRow:
    return {
        "kind": "module",
        "depth": depth,
        "name": module.name,
        "path": module.path,
        "preview": preview(module),
        "params": [
            {"name": param.name, "length": param.length, "default": param.default or ""}
            for param in module.params()
        ],
    }


def picks_json(schema: Schema, prompt: str) -> Picks:
    """What the prompt has picked: module paths, and arguments by path and name."""
    picks = read_picks(prompt, schema)
    return {
        "paths": list(picks.paths),
        "arguments": {path: dict(named) for path, named in picks.arguments.items()},
    }


def words_json(schema: Schema | None) -> WordsOfBoth:
    """What each editor can complete and explain: elements, their attributes, help by element name."""
    in_schema: list[Word] = [
        {"name": name, "kind": "keyword", "detail": detail, "empty": name in EMPTY}
        for name, detail in ELEMENTS.items()
    ]
    in_prompt: list[Word] = [
        {"name": role, "kind": "keyword", "detail": ELEMENTS[role], "parents": ["prompt"]} for role in ROLES
    ]
    attributes: dict[str, list[Attribute]] = {"prompt": [{"name": "schema", "detail": "the schema's name"}]}
    explained = {name: f"<{name}>\n{detail}" for name, detail in ELEMENTS.items()}
    helped: dict[str, str] = {role: explained[role] for role in ROLES}
    for module in schema.modules() if schema is not None else ():
        parent = module.path.rpartition("/")[0].rpartition("/")[2]
        own = module.params()
        in_prompt.append(
            {
                "name": module.name,
                "kind": "class",
                "detail": parent or "module",
                "info": preview(module),
                "parents": [parent or "prompt"],
                "empty": not any(isinstance(child, Module | Union) for child in module.contents()),
            }
        )
        attributes[module.name] = [{"name": p.name, "detail": f"at most {p.length} tokens"} for p in own]
        limits = "".join(f"\n{p.name}: at most {p.length} tokens" for p in own)
        helped.setdefault(module.name, f"{module.path}\n{preview(module)}{limits}")
    return {
        "schema": {
            "elements": in_schema,
            "attributes": {
                element: [{"name": name, "detail": detail} for name, detail in named.items()]
                for element, named in ATTRIBUTES.items()
            },
            "help": explained,
        },
        "prompt": {"elements": in_prompt, "attributes": attributes, "help": helped},
    }


def edited_prompt(schema: Schema, prompt: str, edit: Argument | Pick) -> str:
    """The prompt after one change in the picker."""
    if isinstance(edit, Pick):
        return set_pick(prompt, schema, edit.path, edit.on)
    return set_argument(prompt, schema, edit.path, edit.argument, edit.value or None)


def formatted(source: str) -> str:
    """A document in its canonical form.

    Raises:
        PromptCacheError: it is not well-formed.
    """
    try:
        return format_source(source)
    except PromptError as error:
        raise PromptCacheError(f"The document is left as it is, for it has a fault: {error}") from None


def exported(form: str, checked: Checked, base: Path | None) -> Exported:
    """The schema, or the prompt, in another form.

    Raises:
        PromptCacheError: the documents have errors, or the form cannot hold what is in them.
    """
    fault, of_prompt = first_error(checked.schema.diagnostics), first_error(checked.of_prompt)
    prompt = checked.prompt.tree if of_prompt is None else None
    if form in PROMPT_FORMS and fault is None:
        fault = of_prompt
    if fault is not None:
        raise PromptError((fault,))
    if checked.schema.tree is None:
        raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
    found = export(form, checked.schema.tree, prompt, base)
    return {
        "text": found.text,
        "filename": found.filename,
        "media_type": found.media_type,
        "notes": [f"{note[:1].upper()}{note[1:]}." for note in found.notes],
    }
