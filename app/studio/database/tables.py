"""The tables of the user's database, and their migrations.

- `texts`: the schemas and prompts of runs and batches, each once, as UTF-8 with lone surrogates.
- `runs`: finished runs and fidelity measurements. `frame` is the final frame and `summary` its row in the
  list, both JSON. `belongs` names texts, settings and model; `measured` is the time of the measurement or "".
  `ratings` is the user's rating of each side as JSON, or "". `linked` is the id of the run whose prompt
  another model answered, or "".
- `batches`: batches with their counts of rows; `about` is `app.studio.batches.record.about`.
- `batch_rows`: the rows of batches as JSON; `result` is null and `ended` has no order until a row has ended.
- `workspaces`: the open workspace as number 0, and its earlier versions in order, as JSON.
- `forms`: the input of each page as JSON.
- `sweeps`: reports of the Benchmark page as JSON.
- `chats`: chats with their documents as JSON of `Chat`, and their rows in the list.
- `recent_models`: models as JSON of `ModelChoice`.
- `recent_documents`: places of documents without their texts.

In the last four the latest row has the largest rowid.

`whole_digest` is a schema with the files that it reads, or the empty text. `bytes` is the size of a chat,
a run or a batch without its `texts`.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations
from sqlite_utils.db import ForeignKey

from engine.base.errors import PromptCacheError

migrations = Migrations("studio")
_OURS = {"create_tables", "add_ratings", "create_chats"}
_DIGESTS = "schema_digest prompt_digest whole_digest"
_NUMBERS = {"number", "bytes", "rows", "answered", "failed", "judged", "passed", "ended", "turns"}
_TABLES = {  # the columns of each table; the first is the key, and the largest are last
    "texts": "digest text",
    "runs": f"id name note origin {_DIGESTS} belongs measured bytes summary frame",
    "batches": f"id name started state fault {_DIGESTS} rows answered failed judged passed bytes about",
    "workspaces": "number workspace",
    "forms": "page form",
    "sweeps": "name report",
    "recent_models": "name choice",
    "recent_documents": "origin name kind used",
}


@migrations()
def create_tables(db: Database) -> None:
    """Creates the tables of the first published version."""
    for name, words in _TABLES.items():
        columns = _columns(words)
        db.create_table(name, columns, pk=next(iter(columns)), not_null=columns)
    rows = _columns("batch number row result ended")
    of_batch = ForeignKey("batch_rows", "batch", "batches", "id", on_delete="CASCADE")
    db.create_table("batch_rows", rows, pk=("batch", "number"), foreign_keys=[of_batch])
    db.table("runs").create_index(["belongs"])


@migrations()
def add_ratings(db: Database) -> None:
    """Adds the ratings of runs, and the links between runs of two models."""
    for column in ("ratings", "linked"):
        db.table("runs").add_column(column, str, not_null_default="")


@migrations()
def create_chats(db: Database) -> None:
    """Creates the table of chats."""
    columns = _columns("id title schema changed turns bytes chat")
    db.create_table("chats", columns, pk="id", not_null=columns)


def _columns(words: str) -> dict[str, type]:
    types = {"text": bytes, **dict.fromkeys(_NUMBERS, int)}
    return {name: types.get(name, str) for name in words.split()}


def is_current(db: Database) -> bool:
    """Whether exactly the migrations of this version were applied."""
    return _applied(db) == _OURS


def apply_migrations(db: Database, path: str) -> bool:
    """Brings the tables up to date, in the caller's transaction; returns whether they are new.

    Raises:
        PromptCacheError: the database is of a newer version; it is left unchanged.
    """
    applied = _applied(db)
    if applied - _OURS:
        raise PromptCacheError(
            f"A newer version of the studio wrote {path!r}. Use that version, or move the file away. The "
            "file is unchanged, and nothing is stored meanwhile."
        )
    migrations.apply(db)
    return not applied


def _applied(db: Database) -> set[str]:
    return {migration.name for migration in migrations.applied(db)}
