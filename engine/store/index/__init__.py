"""The index of the store: one SQLite database and its records."""
