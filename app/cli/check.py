"""`pml check`: what is wrong with schemas and prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from app.cli.documents import DocumentError, file_report, folder_of, read_schema, read_text, rendered
from app.cli.options import ModelOptions, debug_option, engine_options, json_option
from app.cli.output import counted, print_json
from engine.pml import Diagnostic, Schema, bind, document_kind, parse_prompt, parse_schema

if TYPE_CHECKING:
    from engine import Engine


@dataclass(frozen=True)
class Finding:
    """What was found in one file.

    Attributes:
        path: The file.
        kind: `schema`, `prompt`, or None where it could not be told.
        source: Its text.
        diagnostics: Every fault and every piece of advice.
        note: How far the check went.
        fault: Why the file could not be read; empty where it could.
    """

    path: str
    kind: str | None = None
    source: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    note: str = ""
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Whether the file was read and holds no error."""
        return not self.fault and self._count("error") == 0

    def to_json(self) -> dict[str, object]:
        """Returns the file's entry of `--json`."""
        if self.fault:
            return file_report(self.path, self.kind, ()) | {"ok": False, "error": self.fault}
        return file_report(self.path, self.kind, self.diagnostics)

    def to_text(self) -> str:
        """Returns what a person reads: the diagnostics, then a line on the whole file."""
        if self.fault:
            return self.fault
        kind = self.kind or "document"
        tally = [counted(self._count(kind), kind) for kind in ("error", "warning") if self._count(kind)]
        verdict = f"{self.path}: {kind}, {', '.join(tally) if tally else 'ok'}{self.note}"
        return "\n".join([rendered(self.diagnostics, self.source, self.path), verdict]).lstrip("\n")

    def _count(self, severity: str) -> int:
        return sum(diagnostic.severity == severity for diagnostic in self.diagnostics)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--schema", "schema_path", metavar="FILE", help="Bind the prompts among FILE to this schema.")
@engine_options
@json_option
@debug_option
def check(files: tuple[str, ...], schema_path: str | None, as_json: bool, **engine_choice: Any) -> int:
    """Validate schemas and prompts.

    Every fault of a file is found in one pass and shown with its line. Which kind a file is follows from its
    root element. A prompt is bound to its schema where --schema names one: unknown modules, missing places,
    two members of one union. With --model, tokens are checked too: arguments over their length, prompts over
    the context window.

    FILE may be - for standard input. The exit status is 1 where any file has an error.
    """
    schema = read_schema(schema_path).tree if schema_path else None
    options = ModelOptions(**engine_choice)
    engine = options.open() if options.model else None
    findings = [_examine(path, schema, engine) for path in files]
    if as_json:
        print_json({"files": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            click.echo(finding.to_text(), err=bool(finding.fault))
    return 0 if all(finding.ok for finding in findings) else 1


def _examine(path: str, schema: Schema | None, engine: Engine | None) -> Finding:
    try:
        source = read_text(path)
    except DocumentError as error:
        return Finding(path, fault=str(error))
    kind = document_kind(source)
    if kind == "prompt":
        return _examine_prompt(Finding(path, kind, source), schema, engine)
    parsed = parse_schema(source, base=folder_of(path))
    diagnostics = parsed.diagnostics
    if engine is not None and parsed.tree is not None and parsed.ok:
        diagnostics += engine.check(parsed.tree)
    return Finding(path, kind, parsed.source, diagnostics)


def _examine_prompt(finding: Finding, schema: Schema | None, engine: Engine | None) -> Finding:
    parsed = parse_prompt(finding.source)
    finding = replace(finding, source=parsed.source, diagnostics=parsed.diagnostics)
    if parsed.tree is None or not parsed.ok:
        return finding
    if schema is None:
        return replace(finding, note="; not bound to a schema (name one with --schema)")
    if engine is not None:
        found = engine.check(schema, parsed.tree)
    else:
        found = bind(schema, parsed.tree).diagnostics
    return replace(finding, diagnostics=finding.diagnostics + found)
