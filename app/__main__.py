"""`python -m app` is the same as `pml`."""

from __future__ import annotations

from app.cli import main

main()
