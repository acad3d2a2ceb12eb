"""The Serve page: the API's address, code for clients, and recent requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.server.http.access import name_of
from app.studio.documents.documents import Checked, first_error
from app.studio.documents.requests import Count, Flag, Nothing, Texts, Words, request
from app.studio.model.api import ALIAS
from app.studio.pages.page import Page
from app.studio.pages.snippets import Client, Folded, Sought, folded, notes_on, snippet
from app.studio.runs.settings import PageSettings
from app.studio.web.chart import Drawn, sent
from app.studio.web.endpoints import endpoint
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.exchange import export
from engine.exchange.answer_formats import to_anthropic_format, to_openai_format
from engine.exchange.to_messages import to_anthropic, to_openai_marked
from engine.pml import Diagnostic, Prompt, PromptError, Schema, bind, reads_files
from engine.pml.edit.writer import self_contained_prompt, write_prompt
from engine.pml.xml.names import NAME

if TYPE_CHECKING:
    from app.server.core.metrics import Request

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
LAST = 4  # final characters that identify a long key
LONG = 16

State = Literal["ok", "loading", "draining", "off"]
Way = Literal["inline", "kept", "messages"]


@request
class Since:
    """A query for changed requests.

    Attributes:
        change: the last change that the page has; 0 for none.
    """

    change: Count = 0


@request
class SwitchApi:
    """Whether the API accepts requests."""

    on: Flag


@request
class NameModel:
    """Further names of the model in requests."""

    names: tuple[Words, ...]


@request
class WriteSnippet(Texts):
    """A program to generate for the open prompt.

    Attributes:
        client: the client library.
        way: whether requests contain the schema, name it, or send messages instead.
        address: the server's address as the page sees it.
        settings: run settings.
    """

    client: Client
    way: Way = "inline"
    address: Words
    settings: Mapping[str, Any] = field(default_factory=dict)


class TokensOfRequest(TypedDict):
    """The tokens of a request; `rest` are prompt tokens neither read nor written."""

    prompt: int
    read: int
    written: int
    rest: int
    generated: int


class WhyRead(TypedDict):
    """Why tokens of a request were computed again; see `app.server.recent.reasons.Why`."""

    reason: str
    sentence: str
    suggestion: str


class RecordedSchema(TypedDict):
    """A schema of recorded requests, and a prompt; `notes` say what they leave out."""

    name: str
    schema: str
    prompt: str
    requests: int
    notes: list[str]


class ServedRequest(TypedDict):
    """An API request; see `app.server.core.metrics.Request`."""

    number: int
    at: float
    path: str
    dialect: str
    model: str
    who: str
    status: int | None
    outcome: Literal["waiting", "answering", "done", "ended", "refused"]
    stopped: str
    sentence: str
    tokens: TokensOfRequest | None
    ttft_ms: float | None
    seconds: float
    id: str
    why: WhyRead | None


class ServedNow(TypedDict):
    """The API's state; the changed requests, oldest first, and the last change.

    `own_aliases` are names from the page and `aliases` names from the command line. `since` is the start of
    the list of requests in seconds since 1970; None before it.
    """

    state: State
    model: str
    aliases: list[str]
    own_aliases: list[str]
    since: float | None
    keys: int
    origins: list[str]
    requests: list[ServedRequest]
    change: int


class Snippet(TypedDict):
    """A program, and its folded lines; `fault` says why it does not use the open prompt."""

    text: str
    folded: list[Folded]
    notes: list[str]
    schema: str
    fault: NotRequired[str]


class ServePage(Page):
    """The server side of the Serve page."""

    name, title = "serve", "Serve"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._api, self._documents = parts, parts.api, parts.documents
        stored = parts.drafts.form(self.name).get("aliases", [])
        self._api.add_aliases(
            tuple(name for name in stored if isinstance(name, str) and ALIAS.fullmatch(name))
        )

    @endpoint
    def served(self, request: Since) -> ServedNow:
        """Returns the API's state, and the changed requests."""
        return self._now(request.change)

    @endpoint
    def switch_api(self, request: SwitchApi) -> ServedNow:
        """Switches the API on or off."""
        self._api.switch(request.on)
        return self._now(0)

    @endpoint
    def name_model(self, request: NameModel) -> ServedNow:
        """Sets further names of the model, and stores them for the next start."""
        names = tuple(dict.fromkeys(filter(None, (name.strip() for name in request.names))))
        for name in names:
            if not ALIAS.fullmatch(name):
                raise PromptCacheError(
                    "A name has at most 100 letters, digits and . _ - / : @ +, without spaces. Change "
                    f"{name[:100]!r}."
                )
        names = tuple(name for name in names if name not in (self._model, *self._api.offer.aliases))
        self._parts.drafts.keep_form(self.name, {"aliases": list(names)})
        self._api.add_aliases(names)
        return self._now(0)

    @endpoint
    def draw_hits(self, _request: Nothing) -> Drawn:
        """Returns the chart of the latest requests."""
        if (service := self._api.service) is None:
            return {"figure": {"data": [], "layout": {}}}
        from app.studio.pages.hits_chart import hits_chart

        return {"figure": sent(hits_chart(list(service.figures.recent)))}

    @endpoint
    def record_schema(self, _request: Nothing) -> RecordedSchema:
        """Makes a schema of the latest request and those like it: what differs becomes parameters."""
        from app.server.recent.schema import NAME, alike, schema_of

        service = self._api.service
        with self._parts.taken() as engine:
            everyone = [] if service is None else [one.record for one in [*service.figures.recent][::-1]]
            records = alike([record for record in everyone if record is not None])
            made = schema_of(records, lambda words: len(engine.model.tokenize(words)))
        notes = list(made.notes)
        return {
            "name": NAME,
            "schema": made.schema,
            "prompt": made.prompt,
            "requests": len(records),
            "notes": notes,
        }

    @endpoint
    def write_snippet(self, request: WriteSnippet) -> Snippet:
        """Returns a program for the open prompt, or a plain sample if the prompt has errors."""
        base = self._parts.library.base_of(request.origin)
        checked = self._documents.check(request.schema, request.prompt, base=base)
        settings, client = PageSettings.read(request.settings), request.client
        common = request.address, self._model or "MODEL", bool(self._api.offer.keys), settings
        fault, tree = _fault(request, checked), checked.schema.tree
        fault = fault or self._counted_fault(request, checked, base, settings)
        if fault or tree is None:
            plain = snippet(client, Sought(*common, body=HELLO))
            return {"text": plain, "folded": [], "notes": [], "schema": "", "fault": fault}
        notes = notes_on(client, settings)
        if request.way == "messages":
            body, said = _messages(client, tree, checked)
            content = Sought(*common, body=body)
        else:
            whole, said = _whole(request.schema, tree, base)
            name = tree.name if request.way == "kept" and NAME.fullmatch(tree.name or "") else ""
            asked = (
                request.prompt if checked.prompt.tree is None else _alone(request.prompt, checked.prompt.tree)
            )
            content = Sought(*common, schema=whole, prompt=asked, kept=name)
        text = snippet(client, content)
        return {
            "text": text,
            "folded": folded(client, content, text),
            "notes": [*notes, *said],
            "schema": tree.name or "",
        }

    def _counted_fault(
        self, request: WriteSnippet, checked: Checked, base: Path | None, settings: PageSettings
    ) -> str:
        """Returns an error that only a tokenizer finds; "" if there is none or no model."""
        if not self._parts.opening.there or checked.prompt.tree is None:
            return ""
        try:
            with self._parts.taken() as engine:
                schema = engine.schema(request.schema, base=base)
                of_schema = schema.check(scope=settings.scope)
                of_prompt = schema.prompt(checked.prompt.tree).check(scope=settings.scope)
        except PromptError as error:
            of_schema, of_prompt = (), error.diagnostics
        return _sentence(of_schema, [diagnostic for diagnostic in of_prompt if diagnostic not in of_schema])

    def _why(self, request: Request) -> WhyRead | None:
        """Explains what a request computed again; None while the model is loading."""
        service = self._api.service
        if service is None or service.state != "ok" or request.record is None:
            return None
        why = service.why(request.record)
        if why is None:
            return None
        return {"reason": why.reason, "sentence": why.sentence, "suggestion": why.suggestion}

    @property
    def _model(self) -> str:
        return self._parts.engine.model.stored.name if self._parts.opening.there else ""

    def _now(self, change: int) -> ServedNow:
        service, offer = self._api.service, self._api.offer
        last, changed = (0, []) if service is None else service.figures.since(change)
        if change > last:  # the number is from an earlier start of the studio
            last, changed = (0, []) if service is None else service.figures.since(0)
        names = _names(offer.keys)
        return {
            "state": ("loading" if self._api.on else "off") if service is None else service.state,
            "model": self._model,
            "aliases": list(offer.aliases),
            "own_aliases": list(self._api.own_aliases),
            "since": None if service is None else float(service.created),
            "keys": len(offer.keys),
            "origins": sorted(offer.origins),
            "requests": [{**_told(request, names), "why": self._why(request)} for request in changed],
            "change": last,
        }


def _fault(request: WriteSnippet, checked: Checked) -> str:
    """Returns why the prompt has no request, and the fix; "" if it has one."""
    if not request.schema.strip():
        return "No schema is open. Open a sample from the gallery, or write one on the Author page."
    return _sentence(checked.schema.diagnostics, checked.of_prompt)


def _sentence(of_schema: Iterable[Diagnostic], of_prompt: Iterable[Diagnostic]) -> str:
    for kind, found in (("schema", of_schema), ("prompt", of_prompt)):
        if (first := first_error(found)) is not None:
            return f"The {kind} has an error in line {first.line}: {first.message} Fix it on the Author page."
    return ""


def _messages(client: Client, schema: Schema, checked: Checked) -> tuple[dict[str, Any], list[str]]:
    """Returns the prompt as messages with a vendor's cache marks, and notes.

    Raises:
        ExchangeError: the prompt is empty.
    """
    assert checked.prompt.tree is not None
    parts, answer = bind(schema, checked.prompt.tree).parts, checked.prompt.tree.format
    of_anthropic = client == "anthropic-python"
    body, notes = to_anthropic(parts) if of_anthropic else to_openai_marked(parts)
    if answer is not None:
        fields, more = to_anthropic_format(answer) if of_anthropic else to_openai_format(answer)
        body, notes = {**body, **fields}, (*notes, *more)
    return body, [f"{note[:1].upper()}{note[1:]}." for note in notes]


def _whole(source: str, schema: Schema, base: Path | None) -> tuple[str, list[str]]:
    """Returns the schema's text with its files inlined, because the server reads none, and notes."""
    if not reads_files(source):
        return source, []
    return export("pml", schema, None, base).text, ["The schema includes the text of its files."]


def _alone(source: str, prompt: Prompt) -> str:
    """Returns the prompt's text with its file inlined, because the server reads none."""
    tree = self_contained_prompt(prompt)
    return source if tree is prompt else write_prompt(tree)


def _names(keys: tuple[str, ...]) -> dict[str, str]:
    """Maps digests of keys to display names: a number, and the end of a long key."""
    return {
        name_of(key): f"key {number}{f' (…{key[-LAST:]})' if len(key) >= LONG else ''}"
        for number, key in enumerate(keys, 1)
    }


def _told(one: Request, names: Mapping[str, str]) -> ServedRequest:
    usage = one.usage
    tokens: TokensOfRequest | None = None
    if usage is not None:
        tokens = {
            "prompt": usage.prompt,
            "read": usage.read,
            "written": usage.written,
            "rest": usage.rest,
            "generated": usage.generated,
        }
    return {
        "number": one.number,
        "at": one.at,
        "path": one.path,
        "dialect": one.dialect,
        "model": one.model,
        "who": names.get(one.client, ""),
        "status": one.status,
        "outcome": one.outcome,
        "stopped": one.stopped,
        "sentence": one.sentence,
        "tokens": tokens,
        "ttft_ms": one.ttft_ms,
        "seconds": one.seconds,
        "id": one.record.names[0] if one.record is not None and one.record.names else "",
        "why": None,
    }
