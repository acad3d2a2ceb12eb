"""T10: how soon a mistake in a schema of 2,000 lines is known, to the parser and on the page."""

from __future__ import annotations

from benchmarks import editor
from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale


def mistakes(scale: Scale, say: Say) -> list[Group]:
    """T10: all diagnostics of the schema; from a key in the browser to its mark."""
    group = Group("2,000 lines", {"lines": editor.LINES})
    say("parsing")
    editor.parsing(1)
    group.add("diagnostics", editor.parsing(scale.parses))
    chromium = editor.chromium()
    if not scale.keys:
        group.notes.append("no browser was asked for")
    elif chromium is None:
        group.notes.append("no chromium was found, so the page was not measured (PML_CHROMIUM names one)")
    else:
        say("typing in a browser")
        group.add("key to mark", editor.marking(scale.keys, chromium))
    return [group]
