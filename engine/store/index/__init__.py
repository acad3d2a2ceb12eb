"""The index of the store: one SQLite database and what it records."""
