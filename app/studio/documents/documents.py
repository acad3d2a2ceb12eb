"""Diagnostics, the module tree, picks and completions of a schema and a prompt.

Pure functions of both texts, except that prompts may use names of earlier versions of a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.base.pml_keywords import ATTRIBUTES, ELEMENTS, EMPTY, IN_PROMPTS, OPTION, PROMPT_ATTRIBUTES, preview
from app.studio.documents.requests import Argument, Move, Pick
from app.studio.runs.text_diff import common_ends
from app.studio.web.source_offsets import to_utf16
from engine.base.errors import PromptCacheError
from engine.exchange import export
from engine.pml import (
    ROLES,
    Diagnostic,
    EarlierSchemas,
    Fix,
    Module,
    NewText,
    Parsed,
    Prompt,
    PromptError,
    Role,
    RoleClose,
    RoleOpen,
    Schema,
    Text,
    Union,
    apply_edits,
    bind,
    folded,
    mended,
    move_pick,
    parse_prompt,
    parse_schema,
    read_picks,
    set_argument,
    set_pick,
)
from engine.pml.diagnostics.quick_fixes import Diagnose
from engine.pml.edit.formatter import format_source
from engine.pml.tree.parts import part_text

_MOST_SHOWN = 6  # lines and texts of a preview
_LONGEST_SHOWN = 90  # characters of each

PROMPT_FORMS = ("openai", "decisions", "anthropic", "text")


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
    """A parameter of a module."""

    name: str
    length: int
    default: str


class TreeRow(TypedDict):
    """One row of the module tree; a union has only a depth."""

    kind: Literal["module", "union"]
    depth: int
    name: NotRequired[str]
    path: NotRequired[str]
    preview: NotRequired[str]
    params: NotRequired[list[Parameter]]


class Word(TypedDict):
    """An element for completion."""

    name: str
    kind: str
    detail: str
    info: NotRequired[str]
    parents: NotRequired[list[str]]
    empty: NotRequired[bool]


class Attribute(TypedDict):
    """An attribute for completion."""

    name: str
    detail: str


class EditorWords(TypedDict):
    """Completions and help of one editor."""

    elements: list[Word]
    attributes: dict[str, list[Attribute]]
    help: dict[str, str]


class WordsOfBoth(TypedDict):
    """Completions and help of both editors."""

    schema: EditorWords
    prompt: EditorWords


class Picks(TypedDict):
    """The picks of a prompt: paths, and arguments by path and name."""

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
    """The parse of both documents.

    Attributes:
        schema: the parsed schema.
        basis: the schema for prompt and picker: `schema`, or the last version without errors.
        stale: whether `basis` is an earlier version.
        prompt: the parsed prompt.
        bound: errors of the prompt against `basis`.
    """

    schema: Parsed[Schema]
    basis: Parsed[Schema]
    stale: bool
    prompt: Parsed[Prompt]
    bound: tuple[Diagnostic, ...]

    @property
    def of_prompt(self) -> tuple[Diagnostic, ...]:
        """All diagnostics of the prompt; those against an earlier schema say so."""
        words = " (checked against the last schema without errors)" if self.stale else ""
        return (*self.prompt.diagnostics, *(replace(d, message=d.message + words) for d in self.bound))


class Documents:
    """Checks and edits of the two documents. Safe to use from several threads."""

    def __init__(self) -> None:
        self._earlier = EarlierSchemas()

    def schema(self, source: str, base: Path | None = None) -> Parsed[Schema]:
        """Returns the parsed schema and remembers this version of it."""
        parsed = parse_schema(source, base=base)
        self._earlier.add(parsed)
        return parsed

    def check(
        self, schema: str, prompt: str, *, fallback: str | None = None, base: Path | None = None
    ) -> Checked:
        """Checks both documents.

        Args:
            schema: the schema's text.
            prompt: the prompt's text.
            fallback: the last schema text without errors. The prompt is bound to it while `schema` has errors
                and the same name.
            base: the folder of `src` attributes.
        """
        parsed = self.schema(schema, base)
        stale, basis = False, parsed
        if not parsed.ok and fallback is not None:
            last = self.schema(fallback, base)
            stale = parsed.tree is None or last.tree is None or parsed.tree.name in ("", last.tree.name)
            basis = last if stale else parsed
        parsed_prompt = parse_prompt(prompt, base=base)
        bound: tuple[Diagnostic, ...] = ()
        if basis.tree is not None and parsed_prompt.tree is not None:
            bound = bind(basis.tree, parsed_prompt.tree, self._earlier.of(basis.tree)).diagnostics
        return Checked(parsed, basis, stale, parsed_prompt, bound)


def diagnostics_json(diagnostics: Iterable[Diagnostic], source: str) -> list[Mark]:
    """Returns diagnostics for the editor: UTF-16 offsets, in text order, each once, without follow-ups."""
    offset = to_utf16(source)
    shown = {diagnostic.in_place(source) for diagnostic in folded(diagnostics)}
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
    """Returns a document after a quick fix.

    Args:
        source: the document.
        code: the diagnostic's code.
        place: the diagnostic's start offset in UTF-16.
        title: the title of the fix.
        diagnose: returns the diagnostics of a document.

    Raises:
        PromptCacheError: there is no such diagnostic, or its fix would do harm.
    """
    fault, fix = _chosen(source, code, place, title, diagnose(source))
    result = mended(source, fault, diagnose, fix)
    if result is None:
        raise PromptCacheError(
            f"“{title}” would add more errors than it fixes, so nothing was changed. Fix the other "
            "errors first, or fix this one by hand."
        )
    return result


class ReadText(TypedDict):
    """A text that the model reads; `path` is of its module, or "" for other text."""

    role: str
    path: str
    text: str


class FixPreview(TypedDict):
    """The effect of a quick fix.

    `removed` and `added` are lines of the document. `reads` is the assembled prompt around the change, with
    `above` and `below` texts left out. `errors` counts the errors of the prompt after the fix.
    """

    removed: list[str]
    added: list[str]
    reads: list[ReadText]
    above: int
    below: int
    errors: int


def fix_preview(before: str, after: str, was: Checked, now: Checked) -> FixPreview:
    """Returns the effect of a quick fix.

    Args:
        before: the document.
        after: the document after the fix.
        was: both documents.
        now: both documents after the fix.
    """
    old, new = before.split("\n"), after.split("\n")
    head, tail = common_ends(old, new)
    texts, former = _assembled(now), _assembled(was)
    same, _ = common_ends(former, texts)
    start = max(0, len(texts) - _MOST_SHOWN if texts == former else same - 1)
    shown = texts[start : start + _MOST_SHOWN]
    return {
        "removed": [line[:_LONGEST_SHOWN] for line in old[head : len(old) - tail][:_MOST_SHOWN]],
        "added": [line[:_LONGEST_SHOWN] for line in new[head : len(new) - tail][:_MOST_SHOWN]],
        "reads": [{"role": role, "path": path, "text": _gist(text)} for role, path, text in shown],
        "above": start,
        "below": len(texts) - start - len(shown),
        "errors": sum(one.severity == "error" for one in now.of_prompt),
    }


def _gist(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST_SHOWN else f"{words[: _LONGEST_SHOWN - 1]}…"


def _assembled(checked: Checked) -> list[tuple[str, str, str]]:
    """Returns the texts of a prompt in reading order, each with its role and module."""
    if checked.basis.tree is None or checked.prompt.tree is None:
        return []
    texts: list[tuple[str, str, str]] = []
    role = ""
    for part in bind(checked.basis.tree, checked.prompt.tree).parts:
        if isinstance(part, RoleOpen | RoleClose):
            role = part.role if isinstance(part, RoleOpen) else ""
            continue
        place, text = (role, "" if isinstance(part, NewText) else part.module), part_text(part)
        if texts and texts[-1][:2] == place:
            texts[-1] = (*place, texts[-1][2] + text)
        elif text.strip():
            texts.append((*place, text))
    return texts


def mended_schema(
    schema: str, prompt: str, code: str, place: int, title: str, found: Iterable[Diagnostic]
) -> str:
    """Returns the schema after a fix that a diagnostic of the prompt, among `found`, offers for it.

    Raises:
        PromptCacheError: there is no such diagnostic.
    """
    _, fix = _chosen(prompt, code, place, title, found)
    return apply_edits(schema, fix.edits) if fix.of_schema else schema


def _chosen(
    source: str, code: str, place: int, title: str, found: Iterable[Diagnostic]
) -> tuple[Diagnostic, Fix]:
    """Returns the diagnostic of a place and its fix with a title."""
    offset = to_utf16(source)
    matches = (d for d in folded(found) if (d.code, offset(d.span.start)) == (code, place))
    chosen = next(((fault, fix) for fault in matches for fix in fault.fixes if fix.title == title), None)
    if chosen is None:
        raise PromptCacheError("The document has changed since. Check its marks again.")
    return chosen


def first_error(diagnostics: Iterable[Diagnostic]) -> Diagnostic | None:
    """Returns the first error in the text."""
    errors = [d for d in diagnostics if d.severity == "error"]
    return min(errors, key=lambda d: d.span.start, default=None)


def tree_json(schema: Schema) -> list[TreeRow]:
    """Returns modules and unions for the picker in document order with depths, without turns.

    A flat list, because JSON parsers limit nesting.
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


def question(prompt: Prompt | None) -> str:
    """Returns the text of the last turn of the user, without the modules that the prompt imports."""
    children = prompt.children if prompt is not None else ()
    turns = [child.children for child in children if isinstance(child, Role) and child.role == "user"]
    last = turns[-1] if turns else children
    return " ".join(" ".join(child.text for child in last if isinstance(child, Text)).split())


def picks_json(schema: Schema, prompt: str) -> Picks:
    """Returns the picks of a prompt: module paths, and arguments by path and name."""
    picks = read_picks(prompt, schema)
    return {
        "paths": list(picks.paths),
        "arguments": {path: dict(named) for path, named in picks.arguments.items()},
    }


def words_json(schema: Schema | None) -> WordsOfBoth:
    """Returns the completions of each editor: elements, attributes, and help by element name."""
    in_schema: list[Word] = [
        {"name": name, "kind": "keyword", "detail": detail, "empty": name in EMPTY}
        for name, detail in ELEMENTS.items()
    ]
    in_prompt: list[Word] = [
        {"name": name, "kind": "keyword", "detail": IN_PROMPTS[name], "parents": ["prompt"]}
        for name in (*ROLES, "decide", "answer-format")
    ]
    in_prompt.append(
        {"name": "option", "kind": "keyword", "detail": OPTION, "parents": ["decide", "answer-format"]}
    )
    attributes: dict[str, list[Attribute]] = {
        element: [{"name": name, "detail": detail} for name, detail in named.items()]
        for element, named in PROMPT_ATTRIBUTES.items()
    }
    explained = {name: f"<{name}>\n{detail}" for name, detail in ELEMENTS.items()}
    helped = {word["name"]: f"<{word['name']}>\n{word['detail']}" for word in in_prompt}
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


def edited_prompt(schema: Schema, prompt: str, edit: Argument | Pick | Move) -> str:
    """Returns the prompt after one change of its picks."""
    if isinstance(edit, Move):
        return move_pick(prompt, schema, edit.path, edit.later)
    if isinstance(edit, Pick):
        return set_pick(prompt, schema, edit.path, edit.on)
    return set_argument(prompt, schema, edit.path, edit.argument, edit.value or None)


def formatted(source: str) -> str:
    """Returns a document in its canonical format.

    Raises:
        PromptCacheError: it is not well-formed.
    """
    try:
        return format_source(source)
    except PromptError as error:
        raise PromptCacheError(f"The document has an error, so it was not formatted: {error}") from None


def exported(form: str, checked: Checked, base: Path | None) -> Exported:
    """Returns the schema or the prompt in another form.

    Raises:
        PromptCacheError: the documents have errors, or the form cannot express them.
    """
    fault, of_prompt = first_error(checked.schema.diagnostics), first_error(checked.of_prompt)
    prompt = checked.prompt.tree if of_prompt is None else None
    if form in PROMPT_FORMS and fault is None:
        fault = of_prompt
    if fault is not None:
        raise PromptError((fault,))
    if checked.schema.tree is None:
        raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
    result = export(form, checked.schema.tree, prompt, base)
    return {
        "text": result.text,
        "filename": result.filename,
        "media_type": result.media_type,
        "notes": [f"{note[:1].upper()}{note[1:]}." for note in result.notes],
    }
