"""A prompt as the program of another: what asks the server for its answer, in four clients' words.

What is asked is put together once, as fields of a request; each client spells it.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from app.studio.web.literals import Name, javascript, javascript_text, json_text, python, python_text
from engine.base.errors import PromptCacheError
from engine.inference.run_settings import RunSettings

Client = Literal["openai-python", "anthropic-python", "curl", "openai-javascript"]
CLIENTS: tuple[Client, ...] = get_args(Client)
KEY = "PML_API_KEY"
"""The variable of the environment that has the key, where one is asked."""
HOTTEST = (2, 1)  # temperature of a request to OpenAI's endpoints, and to Anthropic's
MOST_STOPS = 4  # that a request to OpenAI's endpoints may have
LONG = 8  # lines of a text, beyond which it is folded

_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_DRAWN = ("top_p", "top_k", "seed")
_KNOWN: Mapping[str, frozenset[str]] = {
    "openai-python": frozenset(
        {"model", "messages", "max_completion_tokens", "temperature", "top_p", "seed", "stop"}
    ),
    "anthropic-python": frozenset({"model", "system", "messages", "max_tokens", "stop_sequences"}),
}
"""Fields that a client of Python takes by their names; all others go into `extra_body`."""


_USED: Mapping[Client, Sequence[str]] = {
    "openai-python": (
        "used = answer.usage.prompt_tokens_details",
        'told = f"{used.cached_tokens} of {answer.usage.prompt_tokens} tokens read"',
        'print(f"{told}, {used.cache_write_tokens} written")',
    ),
    "anthropic-python": (
        "used = answer.usage",
        'told = f"{used.cache_read_input_tokens} tokens read, {used.cache_creation_input_tokens} written"',
        'print(f"{told}, {used.input_tokens} computed")',
    ),
    "openai-javascript": (
        "const { prompt_tokens, prompt_tokens_details: used } = answer.usage;",
        "const told = `${used.cached_tokens} of ${prompt_tokens} tokens read`;",
        "console.log(`${told}, ${used.cache_write_tokens} written`);",
    ),
}
"""What prints what the cache was worth."""
_USAGE_BELOW = """awk '{ sub(/"usage":/, "\\n&") } 1'"""
"""Puts the tokens of an answer into a line of their own; it stays JSON."""


class Folded(TypedDict):
    """Lines of a program, from 0 on, that belong to a long text."""

    first: int
    last: int


@dataclass(frozen=True)
class Sought:
    """What a program is to ask.

    Attributes:
        address: of the server, as `http://127.0.0.1:7860`.
        model: the name of the model.
        keyed: whether the server asks for a key.
        settings: how the prompt is run.
        schema: PML, of which the server reads no files; "" for a request without one.
        prompt: PML that imports from the schema.
        kept: the name under which the schema is put first; "" where each request brings it.
        body: `messages`, and `system` of Anthropic's, for a request without a schema.
    """

    address: str
    model: str
    keyed: bool
    settings: RunSettings
    schema: str = ""
    prompt: str = ""
    kept: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.address):
            raise PromptCacheError(f"{self.address[:100]!r} is no address of a server. Load the page again.")

    @property
    def url_of_schema(self) -> str:
        """Where the schema is put."""
        return f"{self.address}/v1/prompt_cache/schemas/{urllib.parse.quote(self.kept, safe='')}"


def snippet(client: Client, sought: Sought) -> str:
    """Returns a program that asks the server.

    Raises:
        PromptCacheError: the address of the server is none.
    """
    return _WRITERS[client](sought)


def folded(client: Client, sought: Sought, source: str) -> list[Folded]:
    """Returns the lines of a program that can be left unread: those of long texts, but their first and last.

    Args:
        client: who asks.
        sought: what is asked.
        source: the program.
    """
    if client == "curl":  # each text is one line
        return []
    write, found = javascript_text if client == "openai-javascript" else python_text, list[Folded]()
    for text in dict.fromkeys([sought.schema, sought.prompt, *_texts(sought.body)]):
        if (lines := text.count("\n")) >= LONG:
            for place in re.finditer(re.escape(write(text)), source):
                first = source.count("\n", 0, place.start()) + 1
                found.append({"first": first, "last": first + lines - 2})
    return sorted(found, key=lambda one: one["first"])


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for one in value.values():
                yield from _texts(one)
        case Sequence():
            for one in value:
                yield from _texts(one)


def request_of(client: Client, sought: Sought, schema: object, prompt: object) -> dict[str, Any]:
    """Returns the fields of a request.

    Args:
        client: who asks.
        sought: what is asked.
        schema: what stands for the text of the schema.
        prompt: what stands for that of the prompt.
    """
    of_anthropic = client == "anthropic-python"
    settings = sought.settings
    fields: dict[str, Any] = {"model": sought.model, "messages": [], **sought.body}
    fields["max_tokens" if of_anthropic else "max_completion_tokens"] = settings.max_new_tokens
    fields["temperature"] = min(settings.temperature, HOTTEST[of_anthropic])
    usual = RunSettings()
    if settings.temperature > 0:
        fields |= {one: value for one in _DRAWN if (value := getattr(settings, one)) != getattr(usual, one)}
    if settings.repetition_penalty != usual.repetition_penalty:
        fields["repetition_penalty"] = settings.repetition_penalty
    if settings.stop:
        stops = list(settings.stop)
        fields |= {"stop_sequences": stops} if of_anthropic else {"stop": stops[:MOST_STOPS]}
    if sought.schema:
        fields["prompt_cache"] = {
            "schema": sought.kept or schema,
            "prompt": prompt,
            "scope": settings.scope,
        }
    return fields


def notes_on(client: Client, settings: RunSettings) -> list[str]:
    """Returns what of the settings a request cannot say, a sentence each."""
    usual, found = RunSettings(), list[str]()
    if settings.repair != usual.repair or settings.placement != usual.placement:
        found.append("Repair and placement are settings of runs: requests are answered without them.")
    if client != "anthropic-python" and len(settings.stop) > MOST_STOPS:
        found.append(f"A request has {MOST_STOPS} stop texts at most; the others are left out.")
    if settings.temperature > (hottest := HOTTEST[client == "anthropic-python"]):
        found.append(f"The temperature of a request is {hottest} at most here.")
    return found


def _openai_python(sought: Sought) -> str:
    head = ["import httpx"] if sought.kept else []
    imports = [*head, "from openai import OpenAI"]
    return _python(sought, "openai-python", "OpenAI", f"{sought.address}/v1", imports)


def _anthropic_python(sought: Sought) -> str:
    head = ["import httpx"] if sought.kept else []
    imports = ["import anthropic", *head]
    return _python(sought, "anthropic-python", "anthropic.Anthropic", sought.address, imports)


def _python(sought: Sought, client: Client, made: str, base: str, imports: list[str]) -> str:
    key = f'os.environ["{KEY}"]' if sought.keyed else '"none"'
    lines = [*(["import os", ""] if sought.keyed else []), *imports, ""]
    if sought.schema:
        lines += [f"schema = {python_text(sought.schema)}", f"prompt = {python_text(sought.prompt)}", ""]
    if sought.kept:
        headers = f', headers={{"x-api-key": {key}}}' if sought.keyed else ""
        lines += [
            "# Once: the server keeps it under its name, over restarts too.",
            f"url = {python_text(sought.url_of_schema)}",
            f'httpx.put(url, json={{"pml": schema}}{headers}, timeout=60).raise_for_status()',
            "",
        ]
    fields = request_of(client, sought, Name("schema"), Name("prompt"))
    known = {name: value for name, value in fields.items() if name in _KNOWN[client]}
    if further := {name: value for name, value in fields.items() if name not in known}:
        known["extra_body"] = further
    call = "messages.create" if client == "anthropic-python" else "chat.completions.create"
    lines += [
        f"client = {made}(base_url={python_text(base)}, api_key={key})",
        f"answer = client.{call}(",
        *(f"    {name}={python(value, 1)}," for name, value in known.items()),
        ")",
        "print(answer.content[0].text)"
        if client == "anthropic-python"
        else "print(answer.choices[0].message.content)",
        *_USED[client],
    ]
    return "\n".join(lines) + "\n"


def _javascript(sought: Sought) -> str:
    key = f"process.env.{KEY}" if sought.keyed else '"none"'
    lines = ['import OpenAI from "openai";', ""]
    if sought.schema:
        lines += [
            f"const schema = {javascript_text(sought.schema)};",
            f"const prompt = {javascript_text(sought.prompt)};",
            "",
        ]
    if sought.kept:
        more = f', "x-api-key": {key}' if sought.keyed else ""
        lines += [
            "// Once: the server keeps it under its name, over restarts too.",
            f"const put = await fetch({javascript_text(sought.url_of_schema)}, {{",
            '  method: "PUT",',
            f'  headers: {{ "content-type": "application/json"{more} }},',
            "  body: JSON.stringify({ pml: schema }),",
            "});",
            "if (!put.ok) throw new Error(await put.text());",
            "",
        ]
    fields = request_of("openai-javascript", sought, Name("schema"), Name("prompt"))
    base = javascript_text(f"{sought.address}/v1")
    lines += [
        f"const client = new OpenAI({{ baseURL: {base}, apiKey: {key} }});",
        f"const answer = await client.chat.completions.create({javascript(fields)});",
        "console.log(answer.choices[0].message.content);",
        *_USED["openai-javascript"],
    ]
    return "\n".join(lines) + "\n"


def _curl(sought: Sought) -> str:
    """JSON behind a quoted word, in which a shell reads nothing as its own."""
    lines = list[str]()
    if sought.kept:
        lines += ["# Once: the server keeps it under its name, over restarts too."]
        lines += [*_posted(sought, f"-X PUT {sought.url_of_schema}", {"pml": sought.schema}), ""]
    fields = request_of("curl", sought, sought.schema, sought.prompt)
    lines += _posted(sought, f"{sought.address}/v1/chat/completions", fields, f" | {_USAGE_BELOW}")
    return "\n".join(lines) + "\n"


def _posted(sought: Sought, where: str, fields: Mapping[str, Any], then: str = "") -> list[str]:
    return [
        f"curl -sS -w '\\n' {where} \\",
        "  -H 'content-type: application/json' \\",
        *([f'  -H "authorization: Bearer ${KEY}" \\'] if sought.keyed else []),
        f"  --data-binary @- <<'JSON'{then}",
        json_text(fields),
        "JSON",
    ]


_WRITERS: Mapping[Client, Callable[[Sought], str]] = {
    "openai-python": _openai_python,
    "anthropic-python": _anthropic_python,
    "curl": _curl,
    "openai-javascript": _javascript,
}
