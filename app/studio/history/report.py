"""Renders runs as a standalone HTML page without scripts and external references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from app.studio.history.compare import Pieces, difference
from app.studio.history.ratings import Rating
from app.studio.history.record import Record, model_in_words
from app.studio.runs.differences import word_difference
from app.studio.runs.payback import apart
from app.studio.runs.run_frame import KeptFidelity, RunFrame, SideFrame
from engine.base.stopwatch import milliseconds
from engine.fidelity.findings import nats

DATA_ID = "prompt-cache-studio-runs"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Html(str):
    """Markup. Other text is escaped when inserted."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | None) -> Html:
    """Returns an element; write `class_` for class. Text children are escaped, None is left out."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = "".join(node if isinstance(node, Html) else escape(node) for node in children if node is not None)
    return Html(f"<{tag}{named}>{inner}</{tag}>")


def report(records: Sequence[Record], data: str) -> str:
    """Returns an HTML page of runs.

    Args:
        records: the runs in display order.
        data: JSON for the studio's import.
    """
    title = _title(records[0]) if len(records) == 1 else f"{len(records)} runs"
    style = (files("assets") / "studio" / "styles" / "report.css").read_text(encoding="utf-8")
    stored = Html(data.replace("<", "\\u003c"))  # cannot end a script or begin a comment
    body = element(
        "main",
        element("h1", title),
        element(
            "p",
            "Prompts answered with cached modules and without the cache. To work with these runs, "
            "import this file on the Runs page of Prompt Cache Studio.",
            class_="soft",
        ),
        _table(records) if len(records) > 1 else None,
        *(_article(record) for record in records),
    )
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', f'{title} · Prompt Cache Studio')}<style>{style}</style></head>\n"
        f"<body>{body}\n{element('script', stored, type='application/json', id=DATA_ID)}</body></html>\n"
    )


def _title(record: Record) -> str:
    frame = record.told
    return record.name or f"{frame['schema'] or 'Untitled'}, {_moment(frame)}"


def _moment(told: RunFrame) -> str:
    return told["started"].replace("T", " ")[:16] or "at an unknown time"


def _first(told: RunFrame) -> float | None:
    return told["payback"]["first_ms"] if told["payback"] else None


def _time(value: float | None) -> str:
    return "–" if value is None else milliseconds(value)


def _ratio(told: RunFrame) -> str:
    ratio = told["comparison"].get("ttft_speedup")
    if not ratio:
        return "–"
    if not apart(told["comparison"]):
        return "no clear difference"
    return f"{ratio:.1f}× faster" if ratio >= 1 else f"{1 / ratio:.1f}× slower"


def _table(records: Sequence[Record]) -> Html:
    titles = ("Run", "Schema", "Model", "First time", "From the cache", "Without the cache", "")
    rows = []
    for record in records:
        frame = record.told
        sides = frame["sides"]
        cells = (
            _time(_first(frame)),
            _time(sides["cached"]["ttft_ms"]),
            _time(sides["uncached"]["ttft_ms"]),
        )
        words = (_title(record), frame["schema"], model_in_words(frame["model"]))
        rows.append(
            element(
                "tr",
                *(element("td", cell) for cell in words),
                *(element("td", cell, class_="number") for cell in (*cells, _ratio(frame))),
            )
        )
    head = element(
        "tr", *(element("th", cell, class_="number" if n > 2 else None) for n, cell in enumerate(titles))
    )
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="all")


def _article(record: Record) -> Html:
    frame = record.told
    cached, uncached = frame["sides"]["cached"], frame["sides"]["uncached"]
    both = bool(cached["text"] and uncached["text"])
    pieces = difference(cached["text"], uncached["text"]) if both else None
    first = word_difference(cached["text"], uncached["text"])["first"] if both else None
    return element(
        "article",
        element("h2", _title(record)),
        element(
            "p",
            f"{frame['schema']} · {frame['model'].get('name', '')} · {_moment(frame)} · {frame['state']}",
            class_="soft",
        ),
        element("p", record.note, class_="text") if record.note else None,
        *(element("p", message) for message in (frame["message"], *frame["warnings"]) if message),
        _bars(frame),
        element(
            "p", f"The answers differ from word {first['word']}." if first else "The answers are the same."
        )
        if both
        else None,
        element(
            "div",
            _answer("From the cache", cached, pieces[0] if pieces else None, record.ratings["cached"]),
            _answer("Without the cache", uncached, pieces[1] if pieces else None, record.ratings["uncached"]),
            class_="answers",
        ),
        _fidelity(frame["fidelity"]),
        _facts("Settings", frame["settings"]),
        _facts("Model", frame["model"]),
        _document("Prompt", record.prompt, is_open=True),
        _document("Schema with the text of its files" if record.contained else "Schema", record.whole),
    )


def _bars(told: RunFrame) -> Html:
    sides = told["sides"]
    times = [
        ("First time, with encoding", "first", _first(told)),
        ("From the cache", "cached", sides["cached"]["ttft_ms"]),
        ("Without the cache", "uncached", sides["uncached"]["ttft_ms"]),
    ]
    longest = max((time for _, _, time in times if time), default=0.0) or 1.0
    cells = [
        cell
        for words, kind, time in times
        if time is not None
        for cell in (
            element("span", words),
            element("div", class_=f"bar {kind}", style=f"width:{100 * time / longest:.2f}%"),
            element("span", _time(time), class_="number"),
        )
    ]
    ratio = _ratio(told)
    return element(
        "section",
        element("h3", f"Time to first token{'' if ratio == '–' else f': {ratio}'}"),
        element("div", *cells, class_="bars"),
        element("p", told["payback"]["words"], class_="soft") if told["payback"] else None,
    )


def _answer(title: str, side: SideFrame, pieces: Pieces | None, rating: Rating) -> Html:
    text = [element("mark", item) if differs else item for item, differs in pieces or [(side["text"], False)]]
    tokens = side["tokens"].get("generated")
    rated = {"": "", "up": "rated good", "down": "rated bad"}[rating["thumb"]]
    facts = [side["state"], f"{tokens:g} tokens" if tokens else "", _rate(side), rated]
    return element(
        "section",
        element("h3", title),
        element("p", " · ".join(item for item in facts if item), class_="soft"),
        element("p", *text, class_="text"),
        element("p", f"Note: {rating['note']}", class_="text") if rating["note"] else None,
    )


def _fidelity(kept: KeptFidelity | None) -> Html | None:
    if kept is None:
        return None
    fidelity: Mapping[str, Any] = kept["found"]
    agrees = "the same" if fidelity["first_token_agrees"] else "another"
    modules = [
        (row["path"] or "fixed text", nats(row["harm"]), str(row["mends"])) for row in fidelity["modules"]
    ]
    fixes = [(row["what"], nats(row["kl_mean"]), str(row["flips"])) for row in fidelity["improvements"]]
    return element(
        "section",
        element("h3", "What reuse changed"),
        element("p", fidelity["advice"], class_="text"),
        element(
            "p",
            f"Measured {kept['measured'].replace('T', ' ')[:16]}. The cached side predicts {agrees} "
            f"first token (KL {nats(fidelity['kl_first_token'])} nats). KL per token: "
            f"{nats(fidelity['kl_mean'])} nats.",
            class_="soft",
        ),
        _rows(("Module", "KL (nats)", "Flipped tokens"), modules),
        _rows(("Fix", "Mean KL (nats)", "Flips left"), fixes) if fixes else None,
    )


def _rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    def line(tag: str, cells: Sequence[str]) -> Html:
        return element(
            "tr", *(element(tag, cell, class_="number" if n else None) for n, cell in enumerate(cells))
        )

    body = element("tbody", *(line("td", row) for row in rows))
    return element("table", element("thead", line("th", titles)), body)


def _rate(side: SideFrame) -> str:
    rate = side["tokens_per_second"]
    return f"{rate:.1f} tokens/s" if rate else ""


def _facts(title: str, facts: Mapping[str, Any]) -> Html | None:
    if not facts:
        return None
    rows = (
        element("div", element("dt", name), element("dd", _spelled(value))) for name, value in facts.items()
    )
    return element("details", element("summary", title), element("dl", *rows))


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(repr, value)) or "none"
    return "–" if value is None else str(value)


def _document(title: str, text: str, *, is_open: bool = False) -> Html:
    return element("details", element("summary", title), element("pre", text), open="" if is_open else None)
