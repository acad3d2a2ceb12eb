"""Makes `python -m app` the same as `pml`."""

from __future__ import annotations

from app.cli import main

main()
