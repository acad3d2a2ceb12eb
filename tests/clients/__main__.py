"""`python -m tests.clients URL MODEL [NAME …]` runs other programs against `pml serve` and prints what fails.

The project does not install them. `pip install instructor langchain-openai "litellm[proxy]"` does, in an
environment of its own; promptfoo needs `npx`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module

NAMES = ("agent", "instructor", "langchain", "litellm", "promptfoo")
Check = Callable[[], object]
"""Raises an exception if a program does not get what it asks for."""


def main(url: str, model: str, names: list[str]) -> int:
    """Runs the programs of these names, or all; returns the exit status."""
    failed = 0
    for name in names or NAMES:
        try:
            checks: dict[str, Check] = import_module(f"tests.clients.with_{name}").checks(url, model)
        except ModuleNotFoundError as error:
            print(f"{name}: not run, because {error.name} is not installed")
            continue
        faults = {what: fault for what, check in checks.items() if (fault := _fault(check))}
        print(f"{name}: {len(checks) - len(faults)} of {len(checks)}")
        for what, fault in faults.items():
            print(f"  {what}: {fault}")
        failed += len(faults)
    return int(failed > 0)


def _fault(check: Check) -> str:
    try:
        check()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {where.name}: {str(error)[:300]}"
    return ""


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(
            "Usage: python -m tests.clients URL MODEL [NAME …], such as http://127.0.0.1:8000 demo"
        )
    raise SystemExit(main(sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3:]))
