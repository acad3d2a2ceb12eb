"""Requests that are drawn: one meaning, spelled in the body of an endpoint and in the engine's own terms."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from engine import Block, Engine, Message, Named
from engine.base.events import Answer
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.prepared import PreparedPrompt

CHAT, TEXT, RESPONSES, MESSAGES = ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. "  # longer than a chunk
WORDS = ("harbour", "lamp", "river", "cold", "clock", "märz", "“so”", "7", "—", "東京", "&", "<end>", "boat")
DOCUMENTS = {
    "a": f"A. {LONG}",
    "b": f"B. {LONG} And more.\n",
    "c": f"\nC. {LONG}",
    "two-of-them": f"{LONG}{LONG}",
}
SEES = {"c": ("a",), "two-of-them": ("c", "b")}
TALK = f"""<schema name="drawn-talk">
  <system>Plan short journeys.</system>
  <user>
    <module name="rome">{LONG}Rome is best on foot.</module>
    <module name="oslo">Oslo has a fjord.</module>
    <module name="town">I like <param name="what" len="12" default="boats"/>.</module>
  </user>
  <assistant>I have read that.</assistant>
</schema>"""
NOTES = f"""<schema name="drawn-notes">Notes.
<module name="one">{LONG}</module>
<module name="two">One more: {LONG}</module>
<module name="three" cache="false">And this.</module></schema>"""
SCHEMAS = {"drawn-talk": TALK, "drawn-notes": NOTES}
IMPORTS = {
    "drawn-talk": ("<rome/>", "<oslo/>", '<town what="trains"/>'),
    "drawn-notes": ("<one/>", "<two/>", "<three/>"),
}
TIMES = {MESSAGES: ("1h", "5m", None), CHAT: ("12h", "30m", None), RESPONSES: ("12h", "30m", None)}
"""How long marks may ask for, the longest first, as the times of one request of Anthropic's have to come."""
MOST_MARKS = 4


@dataclass(frozen=True)
class Part:
    """A block of a turn."""

    text: str
    name: str = ""
    mark: bool = False
    ttl: str | None = None

    @property
    def block(self) -> Block:
        """The block as the engine has it."""
        return Block(self.text, Named(self.name, SEES.get(self.name, ())) if self.name else None)


@dataclass(frozen=True)
class Request:
    """A request that was drawn."""

    endpoint: str
    turns: tuple[tuple[str, tuple[Part, ...]], ...]
    most: int
    more: dict[str, Any] = field(default_factory=dict)
    schema: str = ""
    inline: bool = False
    imports: str = ""
    scope: Any = "anchored"
    penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stream_first: bool = False

    # As a body

    def body(self, model: str) -> dict[str, Any]:
        """Returns its body."""
        longest = "max_output_tokens" if self.endpoint == RESPONSES else "max_tokens"
        found = {"model": model, "temperature": 0, longest: self.most, **self.more}
        if self.penalty != 1:
            found["repetition_penalty"] = self.penalty
        if self.stop:
            found["stop_sequences" if self.endpoint == MESSAGES else "stop"] = [*self.stop]
        if self.schema:
            over = SCHEMAS[self.schema] if self.inline else self.schema
            found["prompt_cache"] = {"schema": over, "prompt": self._prompt(""), "scope": self.scope}
        return {**found, **self._said()}

    def _said(self) -> dict[str, Any]:
        if self.endpoint == TEXT:
            return {"prompt": self.turns[0][1][0].text}
        if self.endpoint == MESSAGES:
            heads = [parts for role, parts in self.turns[:1] if role == "system"]
            rest = [self._message(role, parts) for role, parts in self.turns[len(heads) :]]
            return {"messages": rest, **({"system": self._content("system", heads[0])} if heads else {})}
        said = [self._message(role, parts) for role, parts in self.turns]
        return {"input" if self.endpoint == RESPONSES else "messages": said}

    def _message(self, role: str, parts: Sequence[Part]) -> dict[str, Any]:
        return {"role": role, "content": self._content(role, parts)}

    def _content(self, role: str, parts: Sequence[Part]) -> Any:
        if len(parts) == 1 and parts[0] == Part(parts[0].text):
            return parts[0].text
        return [self._block(role, part) for part in parts]

    def _block(self, role: str, part: Part) -> dict[str, Any]:
        kinds = {"assistant": "output_text"} if self.endpoint == RESPONSES else {}
        usual = "input_text" if self.endpoint == RESPONSES else "text"
        found: dict[str, Any] = {"type": kinds.get(role, usual), "text": part.text}
        if part.name:
            sees = [*SEES.get(part.name, ())]
            found["module"] = {"name": part.name, "sees": sees} if sees else part.name
        if part.mark:
            field, kind = (
                ("cache_control", {"type": "ephemeral"})
                if self.endpoint == MESSAGES
                else ("prompt_cache_breakpoint", {"mode": "explicit"})
            )
            found[field] = {**kind, **({"ttl": part.ttl} if part.ttl else {})}
        return found

    def _prompt(self, behind: str) -> str:
        return f'<prompt schema="{self.schema}">{self.imports}{behind}</prompt>'

    # As the engine has it

    def answer(self, engine: Engine, stop: tuple[str, ...] | None = None) -> Answer:
        """Has an engine answer it."""
        settings = RunSettings(
            max_new_tokens=self.most,
            repetition_penalty=self.penalty,
            stop=self.stop if stop is None else stop,
            scope=self.scope,
            hold_conversation=False,
        )
        return engine.submit(self._prepared(engine), settings).result()

    def _prepared(self, engine: Engine) -> PreparedPrompt:
        if self.schema:
            return engine.schema(SCHEMAS[self.schema]).prompt(self._prompt(self._behind()))
        if self.endpoint == TEXT:
            text = Text(self.turns[0][1][0].text, NOWHERE)
            return engine.schema(Schema("completion", (), (), NOWHERE)).prompt(
                Prompt("completion", (text,), NOWHERE)
            )
        roles: dict[str, Any] = {"developer": "system"}
        return engine.conversation(
            [Message(roles.get(role, role), tuple(one.block for one in parts)) for role, parts in self.turns]
        )

    def _behind(self) -> str:
        """What it says behind its imports, as PML; texts begin and end without white space then."""
        if self.endpoint == TEXT:
            return escape(self.turns[0][1][0].text)
        said = [(role, "\n\n".join(escape(part.text) for part in parts)) for role, parts in self.turns]
        return "".join(f"<{role}>{text}</{role}>" for role, text in said)


def drawn(number: int) -> Request:
    """Draws a request: the same of the same number."""
    draw = random.Random(number)
    endpoint = draw.choice(ENDPOINTS)
    over = draw.random() < 0.25
    common: dict[str, Any] = {
        "most": draw.choice((1, 2, 3, 5, 8, 12)),
        "penalty": draw.choice((1.0, 1.0, 1.5)),
        "stream_first": draw.random() < 0.5,
    }
    more: dict[str, Any] = {}
    if draw.random() < 0.15:
        more["cache_salt"] = draw.choice(("mine", "yours"))
    if draw.random() < 0.3:
        more["include"] = ["prompt_cache"]
    if over:
        name = "drawn-notes" if endpoint == TEXT else "drawn-talk"
        chosen = draw.sample(IMPORTS[name], draw.randint(1, 3))
        common |= {
            "schema": name,
            "inline": draw.random() < 0.3,
            "imports": "".join(chosen),
            "scope": draw.choice(("anchored", "anchored", "isolated", "scaffold")),
        }
    if endpoint == TEXT:
        text = _words(draw, 12) if over else _text(draw)
        return Request(endpoint, (("user", (Part(text),)),), more=more, **common)
    if draw.random() < 0.2 and endpoint != RESPONSES:
        more |= _no_tools(draw, endpoint)
    turns = _plain_turns(draw) if over else _turns(draw, endpoint, more)
    return Request(endpoint, turns, more=more, **common)


def with_stop(request: Request, said: str, number: int) -> tuple[str, ...]:
    """Draws texts that end an answer, some of which stand in it."""
    draw = random.Random(-number - 1)
    if draw.random() < 0.6:
        return ()
    found = ["never said"] if draw.random() < 0.5 else []
    if said:
        at = draw.randrange(len(said))
        piece = said[at : at + draw.randint(1, 3)]
        if piece.strip() or request.endpoint != MESSAGES:
            found.insert(draw.randint(0, len(found)), piece)
    return tuple(dict.fromkeys(found))


def _words(draw: random.Random, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def _text(draw: random.Random) -> str:
    """A text that others begin with too, one that nobody does, or little."""
    begin = draw.choice(("", "", "", LONG, f"{LONG}{LONG}", DOCUMENTS["b"]))
    return f"{begin}{_words(draw, 12)}{draw.choice(('', '', ' ', chr(10)))}"


def _no_tools(draw: random.Random, endpoint: str) -> dict[str, Any]:
    """Tools that are there and may not be called, or none of them."""
    if draw.random() < 0.5:
        return {"tools": []}
    parameters = {"type": "object", "properties": {}}
    if endpoint == MESSAGES:
        tool = {"name": "tide", "description": "The tide.", "input_schema": parameters}
        return {"tools": [tool], "tool_choice": {"type": "none"}}
    function = {"name": "tide", "description": "The tide.", "parameters": parameters}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "none"}


def _plain_turns(draw: random.Random) -> tuple[tuple[str, tuple[Part, ...]], ...]:
    """Turns of texts alone, for behind a schema."""
    count = draw.choice((1, 1, 3))
    return tuple(
        (
            "assistant" if number % 2 else "user",
            tuple(Part(_words(draw, 12)) for _ in range(draw.randint(1, 2))),
        )
        for number in range(count)
    )


def _turns(
    draw: random.Random, endpoint: str, more: dict[str, Any]
) -> tuple[tuple[str, tuple[Part, ...]], ...]:
    """Turns with blocks, names and marks; what is said of the whole request goes into `more`."""
    roles = ["user", *["assistant", "user"] * draw.choice((0, 0, 1, 2))]
    if draw.random() < 0.6:
        roles.insert(0, "system" if endpoint == MESSAGES else draw.choice(("system", "developer")))
    names = _names(draw)
    found, marks = [], list[tuple[int, int]]()
    for turn, role in enumerate(roles):
        parts = [Part(_text(draw)) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
        if names and role != "assistant":
            taken = names if turn == len(roles) - 1 else names[: draw.randint(0, len(names))]
            names = names[len(taken) :]
            parts[:0] = [Part(DOCUMENTS[name], name) for name in taken]
        if draw.random() < 0.05 and len(parts) > 1:
            parts[-1] = Part("")
        marks += [(turn, place) for place, part in enumerate(parts) if part.text]
        found.append((role, parts))
    chosen = sorted(draw.sample(marks, min(len(marks), draw.choice((0, 0, 1, 2, MOST_MARKS)))))
    times = [draw.choice(TIMES[endpoint]) for _ in chosen]
    if endpoint == MESSAGES:
        times.sort(key=TIMES[endpoint].index)
        if (
            draw.random() < 0.1
            and len(chosen) < MOST_MARKS
            and (len(roles) - 1, len(parts) - 1) not in chosen
        ):
            more["cache_control"] = {"type": "ephemeral"}
    elif draw.random() < 0.2:
        more["prompt_cache_options"] = {
            "mode": draw.choice(("implicit", "explicit")),
            "ttl": draw.choice(("30m", "12h")),
        }
    elif draw.random() < 0.1:
        more["prompt_cache_retention"] = draw.choice(("24h", "in_memory"))
    for (turn, place), ttl in zip(chosen, times, strict=True):
        parts = found[turn][1]
        parts[place] = Part(parts[place].text, parts[place].name, True, ttl)
    return tuple((role, tuple(parts)) for role, parts in found)


def _names(draw: random.Random) -> list[str]:
    """Names of documents, with those that they see, in any order."""
    if draw.random() < 0.6:
        return []
    wanted = draw.sample([*DOCUMENTS], draw.randint(1, 3))
    while more := [one for name in wanted for one in SEES.get(name, ()) if one not in wanted]:
        wanted += dict.fromkeys(more)
    draw.shuffle(wanted)
    return wanted
