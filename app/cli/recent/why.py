"""`pml why`: asks a running server why a request computed tokens again."""

from __future__ import annotations

import datetime
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import click

from app.cli.base.options import debug_option, json_option
from app.cli.base.output import print_json, say, table
from app.cli.base.param_types import Whole
from engine.base.errors import PromptCacheError

_SECONDS = 30.0
_PATH = "/v1/prompt_cache/requests"


@click.command()
@click.argument("request_id", metavar="[REQUEST_ID]", required=False)
@click.option(
    "--url",
    default="http://127.0.0.1:8000",
    show_default=True,
    envvar="PML_SERVE_URL",
    show_envvar=True,
    help="The address of the server or studio.",
)
@click.option("--api-key", envvar="PML_API_KEY", show_envvar=True, help="The key of the requests, if any.")
@click.option(
    "--latest", type=Whole(1, 100), default=20, show_default=True, help="Number of listed requests."
)
@json_option
@debug_option
def why(request_id: str | None, url: str, api_key: str | None, latest: int, as_json: bool) -> None:
    """Explain why a server computed text of a request again.

    REQUEST_ID is the id of an answer, such as chatcmpl-… or msg_…, or its header x-request-id. Without it,
    the latest requests are listed. The server must still run.
    """
    place = f"/{urllib.parse.quote(request_id, safe='')}" if request_id else f"?page_size={latest}"
    found = _asked(f"{url.rstrip('/').removesuffix('/v1')}{_PATH}{place}", api_key)
    if as_json:
        print_json(found)
    elif request_id:
        _explain(found)
    elif not found["requests"]:
        say("The server holds no requests: it has answered none, or --recent is 0.")
    else:
        rows = [
            [one["id"], _time(one["at"]), f"{one['read']:,} of {one['prompt']:,}", _reason(one)]
            for one in found["requests"]
        ]
        say(table(["ID", "TIME", "TOKENS READ", "WHY NOT MORE"], rows))


def _asked(url: str, key: str | None) -> Any:
    """The server's answer.

    Raises:
        PromptCacheError: it does not answer, or refuses.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise PromptCacheError(f"{url!r} is not a URL. Write one such as http://127.0.0.1:8000.")
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            words = json.load(error)["error"]["message"]
        except (ValueError, LookupError, TypeError):
            words = f"The server answered with status {error.code}."
        raise PromptCacheError(words) from None
    except (OSError, ValueError) as error:
        raise PromptCacheError(
            f"No server answers at {url}: {error}. Start it, or name it with --url."
        ) from None


def _explain(found: Any) -> None:
    reason = found["why"]
    say(f"{found['read']:,} of {found['prompt']:,} prompt tokens were read from the cache.")
    if reason is None:
        say("The request has modules; its cache report has a reason for each.")
        return
    say(reason["sentence"])
    if reason["before"] is not None:
        say(f"  before: {reason['before']!r}\n  now:    {reason['now']!r}")
    if reason["compared_with"]:
        say(f"Compared with {reason['compared_with']}.")
    if reason["suggestion"]:
        say(reason["suggestion"])


def _reason(one: Any) -> str:
    reason = one["why"]
    if reason is None:
        return "modules"
    return f"{reason['reason']} in {reason['block']}" if reason["block"] else str(reason["reason"])


def _time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")
