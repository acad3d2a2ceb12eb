"""Generates programs that request a prompt's answer, for four clients.

The request's fields are built once; each client has its own syntax.
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
"""The environment variable of the API key."""
HOTTEST = (2, 1)  # maximum temperature of OpenAI's and Anthropic's APIs
MOST_STOPS = 4  # maximum stops of OpenAI's API
LONG = 8  # longer texts are folded

_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_DRAWN = ("top_p", "top_k", "seed")
_KNOWN: Mapping[str, frozenset[str]] = {
    "openai-python": frozenset(
        {"model", "messages", "max_completion_tokens", "temperature", "top_p", "seed", "stop"}
    ),
    "anthropic-python": frozenset({"model", "system", "messages", "max_tokens", "stop_sequences"}),
}
"""Named arguments of Python clients; other fields go into `extra_body`."""


_USED: Mapping[Client, Sequence[str]] = {
    "openai-python": (
        "used = answer.usage.prompt_tokens_details",
        'summary = f"{used.cached_tokens} of {answer.usage.prompt_tokens} tokens read"',
        'print(f"{summary}, {used.cache_write_tokens} written")',
    ),
    "anthropic-python": (
        "used = answer.usage",
        'summary = f"{used.cache_read_input_tokens} tokens read, {used.cache_creation_input_tokens} written"',
        'print(f"{summary}, {used.input_tokens} computed")',
    ),
    "openai-javascript": (
        "const { prompt_tokens, prompt_tokens_details: used } = answer.usage;",
        "const summary = `${used.cached_tokens} of ${prompt_tokens} tokens read`;",
        "console.log(`${summary}, ${used.cache_write_tokens} written`);",
    ),
}
"""Code that prints the cached tokens."""
_USAGE_BELOW = """awk '{ sub(/"usage":/, "\\n&") } 1'"""
"""Puts the token counts on a line of their own; the output remains JSON."""


class Folded(TypedDict):
    """Lines of a long text in a program, from 0."""

    first: int
    last: int


@dataclass(frozen=True)
class Sought:
    """The content of a request.

    Attributes:
        address: the server's address, as `http://127.0.0.1:7860`.
        model: the name of the model.
        keyed: whether the server needs a key.
        settings: the run settings.
        schema: PML without references to files; "" for messages.
        prompt: PML that imports from the schema.
        kept: the name under which the schema is uploaded first; "" if each request contains it.
        body: `messages`, and Anthropic's `system`, for a request without schema.
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
            raise PromptCacheError(f"{self.address[:100]!r} is not the address of a server. Reload the page.")

    @property
    def url_of_schema(self) -> str:
        """The URL to upload the schema to."""
        return f"{self.address}/v1/prompt_cache/schemas/{urllib.parse.quote(self.kept, safe='')}"


def snippet(client: Client, sought: Sought) -> str:
    """Returns a program that sends the request.

    Raises:
        PromptCacheError: the server's address is not valid.
    """
    return _WRITERS[client](sought)


def folded(client: Client, sought: Sought, source: str) -> list[Folded]:
    """Returns the inner lines of long texts, which the page folds.

    Args:
        client: the client library.
        sought: the content of the request.
        source: the program.
    """
    if client == "curl":  # each text is one line
        return []
    write, folds = javascript_text if client == "openai-javascript" else python_text, list[Folded]()
    for text in dict.fromkeys([sought.schema, sought.prompt, *_texts(sought.body)]):
        if (lines := text.count("\n")) >= LONG:
            for place in re.finditer(re.escape(write(text)), source):
                first = source.count("\n", 0, place.start()) + 1
                folds.append({"first": first, "last": first + lines - 2})
    return sorted(folds, key=lambda fold: fold["first"])


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _texts(item)
        case Sequence():
            for item in value:
                yield from _texts(item)


def request_of(client: Client, sought: Sought, schema: object, prompt: object) -> dict[str, Any]:
    """Returns the fields of a request.

    Args:
        client: the client library.
        sought: the content of the request.
        schema: a placeholder for the schema's text.
        prompt: a placeholder for the prompt's text.
    """
    of_anthropic = client == "anthropic-python"
    settings = sought.settings
    fields: dict[str, Any] = {"model": sought.model, "messages": [], **sought.body}
    fields["max_tokens" if of_anthropic else "max_completion_tokens"] = settings.max_new_tokens
    fields["temperature"] = min(settings.temperature, HOTTEST[of_anthropic])
    usual = RunSettings()
    if settings.temperature > 0:
        fields |= {
            name: value for name in _DRAWN if (value := getattr(settings, name)) != getattr(usual, name)
        }
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
    """Returns notes on settings that requests do not support."""
    usual, notes = RunSettings(), list[str]()
    if settings.repair != usual.repair or settings.placement != usual.placement:
        notes.append("Repair and placement apply only to runs in the studio; requests do not support them.")
    if client != "anthropic-python" and len(settings.stop) > MOST_STOPS:
        notes.append(f"A request has at most {MOST_STOPS} stop texts; the others are left out.")
    if settings.temperature > (hottest := HOTTEST[client == "anthropic-python"]):
        notes.append(f"A request has a temperature of at most {hottest}.")
    return notes


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
            "# Once: the server stores it under its name, also across restarts.",
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
            "// Once: the server stores it under its name, also across restarts.",
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
    """Writes JSON after a quoted heredoc delimiter, so the shell expands nothing."""
    lines = list[str]()
    if sought.kept:
        lines += ["# Once: the server stores it under its name, also across restarts."]
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
