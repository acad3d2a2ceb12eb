"""promptfoo with concurrent requests (`-j`), by npx."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from tests.clients.__main__ import Check

CITIES = ("Lisbon", "Oslo", "Rome", "Kyoto", "Lima", "Cairo", "Quito", "Hanoi")


def checks(url: str, model: str) -> dict[str, Check]:
    """Returns a check that asks for all cities at once."""
    if shutil.which("npx") is None:
        raise ModuleNotFoundError("npx is not installed", name="npx")
    return {"eight cities, -j 8": partial(_evaluated, url, model)}


def _evaluated(url: str, model: str) -> None:
    settings = {"apiBaseUrl": f"{url}/v1", "apiKey": "none", "max_tokens": 8, "temperature": 0}
    plan = {
        "prompts": ["You are a guide. Answer in one word. Where is {{city}}?"],
        "providers": [{"id": f"openai:chat:{model}", "config": settings}],
        "tests": [
            {"vars": {"city": city}, "assert": [{"type": "javascript", "value": "output.length > 0"}]}
            for city in CITIES
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "promptfooconfig.json"), Path(folder, "out.json")
        path.write_text(json.dumps(plan))
        words = [
            "npx",
            "--yes",
            "promptfoo@latest",
            "eval",
            "-c",
            str(path),
            "-o",
            str(out),
            "-j",
            "8",
            "--no-cache",
        ]
        quiet = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "HOME": folder}
        done = subprocess.run(words, env={**os.environ, **quiet}, capture_output=True, text=True, timeout=900)
        found = json.loads(out.read_text())["results"]["stats"] if out.exists() else {}
        assert found.get("successes") == len(CITIES), (found, done.stderr[-300:])
