"""`pml embed`: embeds the texts of a file."""

from __future__ import annotations

import hashlib
import io
import json
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from app.cli.base.files import FileWriteError, require_place, save
from app.cli.base.map_options import MapOptions, map_options, report_of, say_used
from app.cli.base.options import ModelOptions, debug_option, engine_options, json_option
from app.cli.base.output import (
    a_line_a_minute,
    counted,
    emit,
    print_json,
    progress_bar,
    say,
)
from app.cli.base.param_types import DOCUMENT, Name, UserPath, Whole
from app.cli.commands.batch import opened, time_words
from app.cli.embeddings.text_rows import RowsError, TextRows, read_text_rows

if TYPE_CHECKING:
    from engine import Engine
    from engine.embeddings.embedder import Embedder, Vectors

_CHUNK = 256  # texts between two saves
_SUFFIXES = (".npy", ".jsonl", ".parquet")


@click.command()
@click.argument("path", metavar="FILE", type=DOCUMENT)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Column with the texts; give it twice for pairs. A number counts the columns of a file without "
    "header. Default: text.",
)
@click.option("--gold", metavar="NAME", help="Column with a score for each pair: print Spearman's ρ.")
@click.option(
    "--pooling",
    type=Name(["last", "mean"]),
    default="last",
    show_default=True,
    help="The state of the last token, or the mean over the text.",
)
@click.option(
    "--template",
    metavar="NAME_OR_FILE",
    help="prompteol, echo, or a schema whose parameter `text` takes the text. Default: the text alone.",
)
@click.option("--dimensions", type=Whole(1, 1_000_000), help="Leading dimensions to return. Default: all.")
@click.option("--normalize/--no-normalize", default=True, show_default=True, help="Scale to length 1.")
@click.option(
    "--out",
    "output",
    type=UserPath(path_type=Path),
    metavar="FILE",
    help="A .npy, .jsonl or .parquet file. The last one requires the package pyarrow.",
)
@map_options
@click.option(
    "--compare", is_flag=True, help="With --maps: embed without maps too, and print the cosine similarities."
)
@click.option("--force", is_flag=True, help="Replace an existing file, or the partial file of another run.")
@engine_options
@json_option
@debug_option
def embed(
    path: str,
    columns: tuple[str, ...],
    gold: str | None,
    pooling: Literal["last", "mean"],
    template: str | None,
    dimensions: int | None,
    normalize: bool,
    output: Path | None,
    maps_folder: Path | None,
    threshold: float | None,
    compare: bool,
    force: bool,
    as_json: bool,
    **engine_choice: Any,
) -> None:
    """Embed the texts of FILE: lines, CSV, TSV or JSONL, or `-` for standard input.

    Prints JSONL without --out and --gold. With --out, the same command continues an interrupted run. A .npy
    file has the shape [rows, dimensions], or [rows, 2, dimensions] for pairs.
    """
    if len(columns) > 2 or (gold is not None and len(columns) != 2):
        raise click.UsageError("--column takes one column, or two for pairs; --gold requires two")
    map_choice = MapOptions(maps_folder, threshold)
    if compare and maps_folder is None:
        raise click.UsageError("--compare belongs to --maps.")
    if output is not None:
        if output.suffix not in _SUFFIXES:
            words = f"--out is {str(output)!r}; its name must end with {', '.join(_SUFFIXES)}"
            raise click.UsageError(words)
        if output.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise click.UsageError("--out FILE.parquet requires pyarrow: pip install pyarrow")
        require_place(output, force=force)
    with opened(path) as file:
        from engine.files.text_files import Lines

        rows = read_text_rows(Lines(file, path), path, columns, gold)
    engine = click.get_current_context().with_resource(ModelOptions(**engine_choice).open())
    from engine.embeddings.embedder import TextError
    from engine.embeddings.templates import BUILT_IN

    source = template if template is None or template in BUILT_IN else Path(template)
    plain = engine.embedder(pooling, source, dimensions=dimensions, normalize=normalize)
    embedder = replace(plain, maps=map_choice.open(engine.model))
    started = time.monotonic()
    try:
        vectors = _vectors(engine, embedder, rows, output, force=force)
    except TextError as error:
        row, column = divmod(error.number, len(rows.texts[0]))
        place = f": column {columns[column]!r}" if len(columns) == 2 else ""
        raise RowsError(f"{path}, line {rows.lines[row]}{place} {error.why}") from None
    report = _report(vectors, rows, started)
    if embedder.maps is not None:
        report["maps"] = report_of(embedder.maps)
    if compare:
        report["compared"] = _compared(vectors, plain, rows)
    if output is not None:
        _save(output, vectors, force=force)
    if as_json:
        print_json({"model": engine.model.name, **report, "output": output and str(output)})
    elif output is None and gold is None:
        emit(_lines(vectors))
    _say(report, output, gold is not None and not as_json)
    if embedder.maps is not None:
        say_used(embedder.maps)


def _vectors(
    engine: Engine, embedder: Embedder, rows: TextRows, output: Path | None, *, force: bool
) -> Vectors:
    """The embeddings [rows, columns, dimensions]; those of an earlier run are read from its partial file."""
    import numpy as np

    texts = [text for row in rows.texts for text in row]
    embedder.require(texts)
    width = embedder.dimensions or embedder.hidden
    found = np.empty((0, width), np.float32)
    part = None if output is None else output.with_name(f"{output.name}.part")
    head = _head(engine, embedder, texts)
    if part is not None:
        found = _resumed(part, head, width, force=force)
    if len(found):
        say(f"pml: {counted(len(found), 'text')} embedded before", err=True)
    before, started = len(found), time.monotonic()
    chunks = [found]
    with progress_bar() as bar:
        minutely = a_line_a_minute(of_total=True)

        def tell(start: int, done: int, *_: object) -> None:
            done += start
            took = max(time.monotonic() - started, 1e-3)
            rate = (done - before) / took
            words = (
                f"{rate:.1f} texts/s, {time_words((len(texts) - done) / rate)} left" if rate else "embedding"
            )
            for report in (bar, minutely):
                report(done, len(texts), words)

        try:
            for start in range(before, len(texts), _CHUNK):
                made = embedder.embed(texts[start : start + _CHUNK], partial(tell, start)).vectors
                chunks.append(made)
                if part is not None:
                    _append(part, made.tobytes())
                tell(start, len(made))
        except KeyboardInterrupt:
            if part is not None:
                done = f"{sum(map(len, chunks))} of {counted(len(texts), 'text')}"
                say(f"pml: {done} are in {part}. The same command resumes there.", err=True)
            raise
    return np.concatenate(chunks).reshape(len(rows.texts), -1, width)


def _head(engine: Engine, embedder: Embedder, texts: list[str]) -> bytes:
    """The first line of a partial file, which names the run."""
    parts = [engine.model.fingerprint, engine.model.dtype, embedder.template.parts, embedder.pooling]
    run = json.dumps([*parts, embedder.dimensions, embedder.normalize, texts, *_of_maps(embedder)])
    return f"pml embed {hashlib.sha256(run.encode()).hexdigest()}\n".encode()


def _of_maps(embedder: Embedder) -> list[Any]:
    """What of stored maps decides the embeddings."""
    maps = embedder.maps
    return [] if maps is None else [maps.threshold, maps.features.keys, maps.features.losses]


def _compared(vectors: Vectors, plain: Embedder, rows: TextRows) -> dict[str, Any]:
    """Compares with embeddings without maps: cosine similarities, and ρ of the others."""
    from engine.embeddings.similarity import cosines, spearman

    with progress_bar() as bar:
        made = plain.embed([text for row in rows.texts for text in row], bar)
    others = made.vectors.reshape(vectors.shape)
    width = vectors.shape[-1]
    same = cosines(vectors.reshape(-1, width), others.reshape(-1, width))
    found: dict[str, Any] = {"cosine_mean": float(same.mean()), "cosine_least": float(same.min())}
    if rows.gold:
        found["spearman_plain"] = spearman(cosines(others[:, 0], others[:, 1]), rows.gold)
    return found


def _resumed(part: Path, head: bytes, width: int, *, force: bool) -> Vectors:
    """The complete embeddings in a partial file, which is created or shortened to them."""
    import numpy as np

    data = part.read_bytes() if part.exists() else b""
    if data and not data.startswith(head):
        if not force:
            raise FileWriteError(
                f"{part} belongs to a run with other texts, options or model. Use --force to start anew."
            )
        data = b""
    whole = (len(data) - len(head)) // (4 * width) if data else 0
    found = np.frombuffer(data[len(head) : len(head) + 4 * width * whole], np.float32).reshape(whole, width)
    save(part, head + found.tobytes(), force=True)
    return found


def _append(part: Path, data: bytes) -> None:
    try:
        with part.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise FileWriteError(f"{part} cannot be written: {error.strerror or error}.") from None


def _report(vectors: Vectors, rows: TextRows, started: float) -> dict[str, Any]:
    from engine.embeddings.similarity import cosines, spearman

    count, columns, width = vectors.shape
    report: dict[str, Any] = {
        "rows": count,
        "columns": columns,
        "dimensions": width,
        "seconds": round(time.monotonic() - started, 3),
    }
    if rows.gold:
        report["spearman"] = spearman(cosines(vectors[:, 0], vectors[:, 1]), rows.gold)
    return report


def _save(output: Path, vectors: Vectors, *, force: bool) -> None:
    import numpy as np

    file = io.BytesIO()
    if output.suffix == ".npy":
        np.save(file, vectors[:, 0] if vectors.shape[1] == 1 else vectors)
    elif output.suffix == ".jsonl":
        file.write(_lines(vectors).encode())
    else:
        import pyarrow
        import pyarrow.parquet

        names = [f"embedding_{number}" for number in (1, 2)] if vectors.shape[1] == 2 else ["embedding"]
        parts = [pyarrow.array([*vectors[:, column]]) for column in range(len(names))]
        pyarrow.parquet.write_table(pyarrow.table(parts, names), file)
    save(output, file.getvalue(), force=force)
    output.with_name(f"{output.name}.part").unlink(missing_ok=True)


def _lines(vectors: Vectors) -> str:
    """One JSON object for each row."""
    made = []
    for index, row in enumerate(vectors.tolist()):
        own = {"embedding": row[0]} if len(row) == 1 else {"embeddings": row}
        made.append(json.dumps({"index": index, **own}) + "\n")
    return "".join(made)


def _say(report: dict[str, Any], output: Path | None, gold: bool) -> None:
    if gold:
        rho = report["spearman"]
        why = "all values are equal" if report["rows"] > 1 else "it needs at least two pairs"
        shown = f"{rho:.4f}" if rho is not None else f"undefined, because {why}"
        say(f"Spearman's ρ of {counted(report['rows'], 'pair')}: {shown}")
    if (found := report.get("compared")) is not None:
        words = f"cosine similarity {found['cosine_mean']:.4f}, at least {found['cosine_least']:.4f}"
        rho = found.get("spearman_plain")
        say(f"pml: without maps: {words}{f'; ρ {rho:.4f}' if rho is not None else ''}.", err=True)
    texts = counted(report["rows"] * report["columns"], "text")
    where = f" in {output}" if output is not None else ""
    say(f"pml: {texts}, {report['dimensions']} dimensions{where}; {report['seconds']} s.", err=True)
