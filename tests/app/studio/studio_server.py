"""A studio in a process of its own, asked over HTTP as its page asks."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
SERVE = """
import sys
from pathlib import Path
from app.studio import launch
folder = Path(sys.argv[1])
studio = launch(
    port=0, open_browser=False, block=False,
    cache_dir=folder / "cache", data_dir=folder / "data", schemas_dir=folder / "documents",
)
print(studio.url, flush=True)
sys.stdin.read()
studio.close()
"""
CONFIG = "window.gradio_config = "


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Served:
    """A running studio."""

    def __init__(self, folder: Path) -> None:
        self.documents = folder / "documents"
        self.documents.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        page = self.send("GET", "/").body.decode()
        config, _ = json.JSONDecoder().raw_decode(page, page.index(CONFIG) + len(CONFIG))
        components = config["components"]
        self._shell = next(c["id"] for c in components if c["props"].get("elem_id") == "shell")

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request."""
        connection = http.client.HTTPConnection(str(urlsplit(self.url).netloc), timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def ask(self, question: str, request: Any) -> Any:
        """The answer to a question of the page, which has to be one."""
        asked = {"data": request, "component_id": self._shell, "fn_name": question, "session_hash": "test"}
        body, headers = json.dumps(asked), {"content-type": "application/json"}
        answer = self.send("POST", "/gradio_api/component_server/", body, headers)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    def stop(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()
