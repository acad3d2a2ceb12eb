"""Other programs against a running server: `python -m tests.clients --help`."""
