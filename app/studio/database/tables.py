"""The tables of the user's database, and their migrations.

- `texts`: the schemas and prompts of runs and batches, each once, as UTF-8 with lone surrogates.
- `runs`: finished runs and fidelity measurements. `frame` is the final frame and `summary` its row in the
  list, both JSON. `belongs` names texts, settings and model; `measured` is the time of the measurement or "".
- `batches`: batches with their counts of rows; `about` is `app.studio.batches.record.about`.
- `batch_rows`: the rows of batches as JSON; `result` is null and `ended` has no order until a row has ended.
- `workspaces`: the open workspace as number 0, and its earlier versions in order, as JSON.
- `forms`: the input of each page as JSON.
- `sweeps`: reports of the Benchmark page as JSON.
- `recent_models`: models as JSON of `ModelChoice`.
- `recent_documents`: places of documents without their texts.

In the last three the latest row has the largest rowid.

`whole_digest` is a schema with the files that it reads, or the empty text. `bytes` is the size of a run or a
batch without its `texts`.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations
from sqlite_utils.db import ForeignKey

from engine.base.errors import PromptCacheError

migrations = Migrations("studio")
_DIGESTS = {"schema_digest": str, "prompt_digest": str, "whole_digest": str}
_COUNTS = dict.fromkeys(("rows", "answered", "failed", "judged", "passed", "bytes"), int)


@migrations()
def create_tables(db: Database) -> None:
    """Creates the tables of the first published version."""
    tables = {
        "texts": {"digest": str, "text": bytes},
        "runs": {
            **dict.fromkeys(("id", "name", "note", "origin"), str),
            **_DIGESTS,
            "belongs": str,
            "measured": str,
            "bytes": int,
            "summary": str,
            "frame": str,  # last, because they are large
        },
        "batches": {
            **dict.fromkeys(("id", "name", "started", "state", "fault"), str),
            **_DIGESTS,
            **_COUNTS,
            "about": str,
        },
        "workspaces": {"number": int, "workspace": str},
        "forms": {"page": str, "form": str},
        "sweeps": {"name": str, "report": str},
        "recent_models": {"name": str, "choice": str},
        "recent_documents": dict.fromkeys(("origin", "name", "kind", "used"), str),
    }
    for name, columns in tables.items():
        db.create_table(name, columns, pk=next(iter(columns)), not_null=columns)
    rows = {"batch": str, "number": int, "row": str, "result": str, "ended": int}
    cascade = ForeignKey("batch_rows", "batch", "batches", "id", on_delete="CASCADE")
    db.create_table("batch_rows", rows, pk=("batch", "number"), foreign_keys=[cascade])
    db.table("runs").create_index(["belongs"])


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


_OURS = {"create_tables"}
