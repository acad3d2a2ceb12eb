"""LiteLLM as a library and as a proxy before the server, used through the vendors' clients."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import litellm
from anthropic import Anthropic
from openai import OpenAI

from tests.clients.__main__ import Check
from tests.clients.shapes import FIELDS, shape

QUESTION: Any = [{"role": "user", "content": "Where is the beach?"}]
START_SECONDS = 120
KEY = "sk-of-this-test-alone-0123456789"


def checks(url: str, model: str) -> dict[str, Check]:
    """Returns checks of the library, and one that starts the proxy."""
    found: dict[str, Check] = {f"library, {name}": partial(_library, url, model, name) for name in FIELDS}
    return {**found, "proxy": partial(_proxy, url, model)}


def _library(url: str, model: str, name: str) -> None:
    wanted = shape(name)
    told = litellm.completion(
        model=f"openai/{model}",
        api_base=f"{url}/v1",
        api_key="none",
        messages=QUESTION,
        response_format=wanted,
        max_tokens=200,
        temperature=0,
    )
    wanted.model_validate_json(told.choices[0].message.content)


@contextlib.contextmanager
def _running(url: str, model: str) -> Iterator[str]:
    """Starts a proxy; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = f"{{model: openai/{model}, api_base: '{url}/v1', api_key: none}}"
        path = Path(folder, "config.yaml")
        path.write_text(f"model_list: [{{model_name: ours, litellm_params: {settings}}}]\n")
        words = ["--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
        known = {**os.environ, "LITELLM_MASTER_KEY": KEY}
        program = [str(Path(sys.executable).with_name("litellm")), *words]
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen(program, env=known, stdout=log, stderr=log) as proxy,
        ):
            address, end = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
            try:
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        if httpx.get(f"{address}/health/liveliness").status_code == 200:
                            break
                    if proxy.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(Path(folder, "log").read_text()[-300:])
                    time.sleep(0.5)
                yield address
            finally:
                proxy.terminate()


def _proxy(url: str, model: str) -> None:
    with _running(url, model) as address:
        client = OpenAI(base_url=f"{address}/v1", api_key=KEY)
        asked: dict[str, Any] = {"model": "ours", "messages": QUESTION, "max_tokens": 60}
        assert client.chat.completions.create(**asked).usage
        assert [*client.chat.completions.create(**asked, stream=True)]
        wanted = shape("nested list")
        parsed = client.chat.completions.parse(**asked, response_format=wanted).choices[0].message.parsed
        assert isinstance(parsed, wanted)
        told = Anthropic(base_url=address, api_key=KEY).messages.create(**asked)
        assert told.usage.output_tokens
