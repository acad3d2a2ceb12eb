"""Generates programs that request a prompt's answer, from a template for each client in `assets/programs`."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import assets
from app.studio.web.literals import Name, javascript, javascript_text, json_text, python, python_text
from engine.base.errors import PromptCacheError
from engine.base.token_bias import biases_of
from engine.inference.run_settings import RunSettings

Client = Literal["openai-python", "anthropic-python", "curl", "openai-javascript"]
CLIENTS: tuple[Client, ...] = get_args(Client)
KEY = "PML_API_KEY"
"""The environment variable of the API key."""
HOTTEST = (2, 1)  # maximum temperature of OpenAI's and Anthropic's APIs
MOST_STOPS = 4  # maximum stops of OpenAI's API
LONG = 8  # longer texts are folded

_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_DRAWN = ("top_p", "top_k", "min_p", "seed")
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_KNOWN: Mapping[str, frozenset[str]] = {
    "openai-python": frozenset(
        {
            *("model", "messages", "max_completion_tokens", "temperature", "top_p", "seed", "stop"),
            *("presence_penalty", "frequency_penalty", "logit_bias", "response_format"),
        }
    ),
    "anthropic-python": frozenset(
        {"model", "system", "messages", "max_tokens", "stop_sequences", "output_config"}
    ),
}
"""Named arguments of Python clients; other fields go into `extra_body`."""
_KEYS: Mapping[Client, str] = {
    **dict.fromkeys(("openai-python", "anthropic-python"), f'os.environ["{KEY}"]'),
    "openai-javascript": f"process.env.{KEY}",
    "curl": "",
}
_FILTERS: Mapping[Client, Mapping[str, Callable[..., str]]] = {
    "openai-python": {"text": python_text, "literal": python},
    "anthropic-python": {"text": python_text, "literal": python},
    "openai-javascript": {"text": javascript_text, "literal": javascript},
    "curl": {"literal": json_text},
}


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
    environment = _environment()
    environment.filters |= _FILTERS[client]
    by_name = client != "curl" and bool(sought.schema)
    texts = (Name("schema"), Name("prompt")) if by_name else (sought.schema, sought.prompt)
    fields = request_of(client, sought, *texts)
    known = {name: value for name, value in fields.items() if name in _KNOWN.get(client, ())}
    further = {name: value for name, value in fields.items() if name not in known}
    return environment.get_template(f"{client}.jinja").render(
        address=sought.address,
        url=sought.url_of_schema,
        schema=sought.schema,
        prompt=sought.prompt,
        kept=sought.kept,
        fields=fields,
        arguments=known | ({"extra_body": further} if further else {}),
        keyed=sought.keyed,
        key_name=KEY,
        key=_KEYS[client] if sought.keyed else '"none"',
    )


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
    fields |= {
        name: value for name in _PENALTIES if (value := getattr(settings, name)) != getattr(usual, name)
    }
    if biases := biases_of(settings.logit_bias):
        fields["logit_bias"] = {str(token): bias for token, bias in biases.items()}
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


def _environment() -> Environment:
    loader = FileSystemLoader(Path(assets.__file__).parent / "programs")
    return Environment(
        loader=loader,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
