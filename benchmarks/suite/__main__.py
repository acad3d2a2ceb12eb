"""One part in a process of its own, as `benchmarks.suite.running` starts it."""

from __future__ import annotations

import sys

from benchmarks.suite.running import main

main(sys.argv[1:])
