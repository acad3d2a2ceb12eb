"""Checks the scaffolds of a schema: unknown modules and useless scaffolds."""

from __future__ import annotations

from collections.abc import Sequence

from engine.pml.diagnostics.diagnostic import NOTHING, Edit, Reporter, Span, quote, swap
from engine.pml.diagnostics.spelling import Speller
from engine.pml.tree.tree import Scaffold, Schema
from engine.pml.xml.names import PATH


def check_scaffolds(
    schema: Schema, scaffolds: Sequence[tuple[Scaffold, Span]], text: str, report: Reporter, above: str = ""
) -> None:
    """Reports errors in scaffolds, each given with the span of its list of paths in `text`.

    `above` is the prefix of the paths: the path of the including module and a slash, or "".
    """
    speller = Speller()
    for scaffold, span in scaffolds:
        named = set(scaffold.modules)
        known = [above + path for path in scaffold.modules if schema.module(above + path) is not None]
        for word in PATH.finditer(text, span.start, span.end):
            path = word[0]
            if report.full:
                break
            if schema.module(above + path) is None and path in named:
                meant = schema.index.by_name.get(path, ())
                near = meant[0].path if len(meant) == 1 else None
                near = near or speller.nearest(above + path, schema.index.by_path)
                near = near.removeprefix(above) if near else None
                remedy = f"did you mean {quote(near)}?" if near else "use the paths of modules"
                message = f"the schema has no module {quote(path)}; {remedy}"
                place = Span(*word.span())
                report.add("E306", message, place, near or "", swap(place, near))
        clash = _clash(schema, known)
        if clash is not None:
            first, second = clash
            both = f"{quote(first)} and {quote(second)}"
            message = f"{both} are members of the same union, so no prompt imports both; keep one"
            report.add("W606", message, span)
        elif len(named) == 1 and known:
            message = "a scaffold of one module changes nothing; name another, or remove it"
            start, end = scaffold.span.start, scaffold.span.end
            alone = text.startswith("<scaffold", start) and text.find(">", start) == end - 1
            report.add("W606", message, span, NOTHING, (Edit(scaffold.span, ""),) if alone else ())


def _clash(schema: Schema, paths: list[str]) -> tuple[str, str] | None:
    """Returns two paths under different members of one union."""
    chosen: dict[int, tuple[str, str]] = {}
    for path in paths:
        member = path
        while member:
            union = schema.union_of(member)
            if union is not None:
                other_member, other = chosen.setdefault(id(union), (member, path))
                if other_member != member:
                    return other, path
            member = member.rpartition("/")[0]
    return None
