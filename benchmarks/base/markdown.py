"""Markdown tables, and their places between two marks of a document."""

from __future__ import annotations


def row(*cells: object) -> str:
    """One row of a table."""
    return f"| {' | '.join(str(c) for c in cells)} |"


def head(*cells: str) -> list[str]:
    """The head of a table."""
    return [row(*cells), f"|{'---|' * len(cells)}"]


def marks(name: str) -> tuple[str, str]:
    """The marks before and after a text."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def between(document: str, name: str) -> str | None:
    """The text between the marks; None if a mark is missing."""
    begin, end = marks(name)
    _, found, rest = document.partition(begin)
    inside, closed, _ = rest.partition(end)
    return inside.strip() if found and closed else None


def written(document: str, name: str, text: str) -> str:
    """The document with `text` between its marks."""
    begin, end = marks(name)
    if between(document, name) is None:
        raise ValueError(f"the document needs the marks {begin} and {end}")
    before, _, rest = document.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
