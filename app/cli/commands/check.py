"""`pml check`: reports errors in schemas and prompts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.base.documents import file_report, folder_of, read_schema, read_text, rendered
from app.cli.base.options import ModelOptions, debug_option, json_option, model_option
from app.cli.base.output import counted, print_json, say
from app.cli.base.param_types import DOCUMENT
from engine.base.errors import PathError
from engine.files.text_files import EncodingError, TextFileError
from engine.pml import Diagnostic, Prompt, Schema, bind, document_kind, folded, parse_prompt, parse_schema
from engine.pml.diagnostics.spelling import Speller

if TYPE_CHECKING:
    from engine import Engine


@dataclass(frozen=True)
class Finding:
    """The result for one file.

    Attributes:
        path: the file.
        kind: `schema`, `prompt`, or None if unknown.
        source: its text.
        tree: its parsed content, as far as possible.
        diagnostics: errors, warnings and notes.
        bound_to: name of the schema of a prompt; None if unbound.
        unbound: why a prompt is unbound.
        fault: why the file is unreadable; empty if it is readable.
        misnamed: whether the path leads to no file.
    """

    path: str
    kind: str | None = None
    source: str = ""
    tree: Schema | Prompt | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    bound_to: str | None = None
    unbound: str = " by itself; name its schema with --schema to check its imports"
    fault: str = ""
    misnamed: bool = False

    @property
    def ok(self) -> bool:
        """Returns whether the file was read and has no errors."""
        return not self.fault and self._count("error") == 0

    def to_json(self) -> dict[str, object]:
        """Returns the file's entry of `--json`."""
        if self.fault:
            return file_report(self.path, self.kind, ()) | {"ok": False, "error": self.fault}
        bound: dict[str, object] = {"schema": self.bound_to} if self.kind == "prompt" else {}
        return file_report(self.path, self.kind, self.diagnostics, **bound)

    def to_text(self) -> str:
        """Returns the diagnostics and a final line about the file."""
        if self.fault:
            return self.fault
        tally = [counted(self._count(grade), grade) for grade in ("error", "warning") if self._count(grade)]
        verdict = f"{self.path}: {self.kind or 'document'}, {', '.join(tally) if tally else 'ok'}"
        if isinstance(self.tree, Prompt) and self.ok and self.bound_to is None:
            verdict += self.unbound
        return "\n".join([rendered(self.diagnostics, self.source, self.path), verdict]).lstrip("\n")

    def _count(self, severity: str) -> int:
        return sum(diagnostic.severity == severity for diagnostic in self.diagnostics)


@dataclass(frozen=True)
class Schemas:
    """The available schemas for prompts."""

    given: Schema | None  # the schema of --schema
    among: list[Finding]  # results of the schemas among the files, including invalid ones
    speller: Speller = field(default_factory=Speller)  # finds the intended name

    def of(self, prompt: Prompt) -> Finding | Schema | None:
        """Returns the schema of a prompt, or its result if it is among the files."""
        if self.given is not None:
            return self.given
        named = {finding.tree.name: finding for finding in self.among if isinstance(finding.tree, Schema)}
        if prompt.schema is None:
            return self.among[0] if len(self.among) == 1 else None
        near = self.speller.nearest(prompt.schema.removesuffix(".pml"), named)
        return named.get(prompt.schema) or named.get(near or "")

    def unbound(self, prompt: Prompt) -> str:
        """Returns why a prompt is unbound; "" if no schemas are among the files."""
        if not self.among:
            return ""
        if prompt.schema is None:
            return " by itself; several schemas are given, so name its own with --schema"
        return f" by itself: no given schema has the name {prompt.schema!r}; name it with --schema"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=DOCUMENT)
@click.option(
    "--schema",
    "schema_path",
    type=DOCUMENT,
    metavar="FILE",
    help="Bind the prompts among FILE to this schema.",
)
@model_option
@json_option
@debug_option
def check(
    files: tuple[str, ...],
    schema_path: str | None,
    model: str | None,
    as_json: bool,
) -> int:
    """Validate schemas and prompts.

    One pass finds every error of a file and shows it with its line. A prompt is checked against the schema
    of --schema, else against the FILE that its `schema` attribute names, or the only one if it names none.
    With --model, tokens are checked too: arguments over their length, prompts over the context window.

    FILE may be - for standard input. Exit status 1 if a file has an error, 2 if a path has no file.
    """
    named = read_schema(schema_path) if schema_path else None
    schema_tree = named.tree if named else None
    findings = [_read(path) for path in files]
    schemas = Schemas(schema_tree, [finding for finding in findings if isinstance(finding.tree, Schema)])
    with tokenizing(model) as engine:
        findings = [_deepened(finding, schemas, engine) for finding in findings]
    findings = [replace(finding, diagnostics=folded(finding.diagnostics)) for finding in findings]
    if as_json:
        print_json({"files": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            say(finding.to_text(), err=bool(finding.fault))
    if any(finding.misnamed for finding in findings):
        return 2
    return 0 if all(finding.ok for finding in findings) else 1


@contextmanager
def tokenizing(model: str | None) -> Iterator[Engine | None]:
    """An engine that only counts tokens, with a temporary store; None without a model."""
    if model is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        engine = ModelOptions(model, cache_dir=Path(folder) / "segments").open()
        try:
            yield engine
        finally:
            engine.close()


def _read(path: str) -> Finding:
    try:
        source: str | bytes = read_text(path)
    except EncodingError as error:
        source = error.data
    except TextFileError as error:
        return Finding(path, fault=str(error), misnamed=isinstance(error, PathError))
    kind = document_kind(source if isinstance(source, str) else parse_prompt(source).source)
    if kind == "prompt":
        prompt = parse_prompt(source, base=folder_of(path))
        return Finding(path, kind, prompt.source, prompt.tree, prompt.diagnostics)
    schema = parse_schema(source, base=folder_of(path))
    return Finding(path, kind, schema.source, schema.tree, schema.diagnostics)


def _deepened(finding: Finding, schemas: Schemas, engine: Engine | None) -> Finding:
    """Adds diagnostics that need the prompt's schema or a model."""
    tree = finding.tree
    if tree is None:
        return finding
    if isinstance(tree, Schema):
        more = engine.check(tree) if engine and finding.ok else ()
        return replace(finding, diagnostics=finding.diagnostics + more)
    schema = schemas.of(tree)
    if isinstance(schema, Finding):
        if not schema.ok:
            return replace(finding, unbound=f", but not checked against {schema.path}, which has errors")
        assert isinstance(schema.tree, Schema)
        schema = schema.tree
    if schema is None:
        return replace(finding, unbound=schemas.unbound(tree) or finding.unbound)
    more = engine.check(schema, tree) if engine and finding.ok else bind(schema, tree).diagnostics
    return replace(finding, diagnostics=finding.diagnostics + more, bound_to=schema.name)
