"""The table of mistakes in documents, `mistakes.tsv`: one mistake a line.

The columns are: the code; who reads the document (`schema`, `prompt`, or a prompt that is bound to the schema
`travel` or `trip`); the document, with each place that has the code between « and »; words of the message or
hint; `quick` if the first quick fixes make the document valid, `hand` if a person does; the document then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.pml import Diagnostic, bind, parse_prompt, parse_schema
from tests.tables import rows

TRAVEL = """<schema name="travel">
  <user>
    <module name="trip-plan">
      I want to be away for <param name="duration" len="5"/>.
      <union>
        <module name="domestic">The city of <param name="city" len="10" default="Lyon"/>.</module>
        <module name="overseas">
          <union>
            <module name="tokyo">Tokyo is large.</module>
            <module name="rome">Rome is old.</module>
          </union>
        </module>
      </union>
    </module>
    <module name="budget"><module name="notes">Spend little.</module></module>
    <module name="food"><module name="notes">Eat well.</module></module>
  </user>
  <module name="shot"><user>Q</user><assistant>A</assistant></module>
</schema>
"""
TRIP = """<schema name="travel">
  <system>You plan.</system>
  <user>
    <module name="trip">I go for <param name="duration" len="5"/>.
      <union>
        <module name="domestic">Home, in <param name="city" len="4" default="Lyon"/>.</module>
        <module name="overseas">Away.
          <union> <module name="tokyo">Neon.</module> <module name="rome">Ruins.</module> </union>
        </module>
      </union>
    </module>
    <module name="budget">Cheap. <module name="notes">Spend little.</module></module>
    <module name="food">Good. <module name="notes">Eat well.</module></module>
    <module name="tone">Be brief.</module>
  </user>
</schema>
"""
SCHEMAS = {name: parse_schema(source) for name, source in (("travel", TRAVEL), ("trip", TRIP))}


@dataclass(frozen=True)
class Mistake:
    """A line of the table."""

    code: str
    reader: str
    marked: str
    says: str
    fix: str
    after: str

    @property
    def source(self) -> str:
        """The document without its marks."""
        return self.marked.replace("«", "").replace("»", "")

    @property
    def places(self) -> list[tuple[int, int]]:
        """The marked places in the document."""
        marks = [match.start() - count for count, match in enumerate(re.finditer("[«»]", self.marked))]
        return [*zip(marks[::2], marks[1::2], strict=True)]

    def diagnose(self, source: str) -> Sequence[Diagnostic]:
        """The diagnostics of this document, or of a changed one."""
        if self.reader == "schema":
            return parse_schema(source).diagnostics
        parsed = parse_prompt(source)
        schema = SCHEMAS[self.reader].tree if self.reader in SCHEMAS else None
        bound = bind(schema, parsed.tree).diagnostics if schema and parsed.tree else ()
        return (*parsed.diagnostics, *bound)


MISTAKES = [Mistake(*row) for row in rows(Path(__file__).with_name("mistakes.tsv"))]
