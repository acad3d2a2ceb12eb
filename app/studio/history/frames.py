"""Reads the final frame of a run from untrusted JSON of any version.

Fields that are missing or of a wrong type are left out, so readers can rely on types. Values derived from
times are recomputed, so ratios always match the times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from app.studio.history.measurements import read_fidelity
from app.studio.runs.payback import apart, payback
from app.studio.runs.run_frame import (
    SIDES,
    Belongs,
    ComparedSoFar,
    EncodingFrame,
    Ended,
    ModelOfRun,
    Payback,
    ReuseFrame,
    RunFrame,
    SideFrame,
    Sides,
    State,
)
from app.studio.runs.run_state import digest_of_model
from app.studio.web.json_answers import Json

MOST_ENTRIES = 100  # of a list or a mapping; our frames have a tenth of that
LONGEST_WORDS = 10_000
LONGEST_TEXT = 5_000_000
LEAST_MS = 1e-6  # a nanosecond
MOST_MS = 366 * 24 * 3600 * 1000.0
_LEAST_RATIO, _LEAST_RATE = LEAST_MS / MOST_MS, 1000 / MOST_MS
_NEAR = 0.02  # tolerance for rounded times
STATES = frozenset({"done", "measured", "stopped", "failed"})
ENDS = frozenset({"eos", "length", "stop"})


def read_frame(sent: object) -> RunFrame:
    """Returns a frame with consistent fields of correct types for any input.

    The difference of its texts is left out.
    """
    frame = as_mapping(sent)
    state, sides = as_words(frame.get("state")), as_mapping(frame.get("sides"))
    read: Sides = {"cached": _side(sides.get("cached")), "uncached": _side(sides.get("uncached"))}
    order = [side for side in SIDES if read[side]["ttft_ms"] is not None] or list(SIDES)
    model, encoding = _model(frame.get("model")), _encoding(frame.get("encoding"))
    compared = _comparison(frame.get("comparison"), read)
    return {
        "format": int(as_number(frame.get("format")) or 0),
        "kept": "",
        "number": 0,
        "mode": "both" if len(order) > 1 else order[0],
        "question": as_words(frame.get("question")),
        "schema": as_words(frame.get("schema")),
        "of": _belongs(frame.get("of"), model),
        "started": _moment(frame.get("started")),
        "settings": _settings(frame),
        "placement": "schema" if frame.get("placement") == "schema" else "compact",
        "model": model,
        "order": order,
        "repeat": int(as_number(frame.get("repeat")) or 1),
        "timings": max(1, *(len(read[side]["samples_ms"]) for side in SIDES)),
        "state": cast(State, state if state in STATES else "stopped"),
        "message": as_words(frame.get("message")),
        "warnings": [as_words(warning) for warning in _list(frame.get("warnings"))],
        "encoding": encoding,
        "sides": read,
        "comparison": compared,
        "payback": _payback(frame, read, encoding, compared),
        "difference": None,
        "fidelity": read_fidelity(frame.get("fidelity")),
        "reuse": _reuse(frame.get("reuse")),
    }


def _belongs(sent: object, model: ModelOfRun) -> Belongs:
    """Returns what the run belongs to; early versions did not store it."""
    of = as_mapping(sent)
    return {
        "schema": as_words(of.get("schema")),
        "prompt": as_words(of.get("prompt")),
        "settings": as_words(of.get("settings")),
        "model": as_words(of.get("model")) or digest_of_model(model),
    }


def _model(sent: object) -> ModelOfRun:
    model = as_mapping(sent)
    return {
        "name": as_words(model.get("name")),
        "fingerprint": as_words(model.get("fingerprint")),
        "device": as_words(model.get("device")),
        "dtype": as_words(model.get("dtype")),
        "weights": as_words(model.get("weights")),
    }


def _encoding(sent: object) -> EncodingFrame:
    """Returns what was encoded in advance; its time is None if nothing was."""
    encoding = as_mapping(sent)
    segments = int(as_number(encoding.get("segments")) or 0)
    state = as_words(encoding.get("state"))
    return {
        "state": cast(State, state if state in STATES else "done" if segments else "not run"),
        "waits": False,
        "working": "",
        "done": 0,
        "total": 0,
        "modules": [as_words(module) for module in _list(encoding.get("modules"))],
        "segments": segments,
        "tokens": int(as_number(encoding.get("tokens")) or 0),
        "ms": as_time(encoding.get("ms")) if segments else None,
        "others": int(as_number(encoding.get("others")) or 0),
        "others_ms": as_time(encoding.get("others_ms")),
    }


def _comparison(sent: object, sides: Sides) -> ComparedSoFar:
    compared, comparison = as_mapping(sent), dict[str, Any]()
    cached, uncached = sides["cached"]["ttft_ms"], sides["uncached"]["ttft_ms"]
    least, most = as_number(compared.get("least_speedup")), as_number(compared.get("most_speedup"))
    if cached and uncached:
        comparison["ttft_speedup"] = ratio = uncached / cached
        if least and most and _LEAST_RATIO <= least <= ratio * (1 + _NEAR) and most >= ratio * (1 - _NEAR):
            comparison |= {"least_speedup": least, "most_speedup": most}
    if (divergence := as_number(compared.get("kl_first_token"))) is not None:
        comparison["kl_first_token"] = divergence
    for name in ("first_token_agrees", "same_text"):
        if isinstance(agrees := compared.get(name), bool):
            comparison[name] = agrees
    return cast(ComparedSoFar, comparison)


def _payback(
    frame: Mapping[str, Any], sides: Sides, encoding: EncodingFrame, compared: ComparedSoFar
) -> Payback | None:
    """Returns when the cache pays off."""
    payback_sent, cached = as_mapping(frame.get("payback")), sides["cached"]["ttft_ms"]
    if not frame.get("payback") or cached is None:
        return None
    first = as_time(payback_sent.get("first_ms"))
    if first is not None and first < (cached + (encoding["ms"] or 0)) * (1 - _NEAR):
        first = None
    encode_ms = None if first is None else first - cached
    clear = apart(compared) and as_mapping(frame.get("reuse")).get("scope") != ""
    uncached, repeated = sides["uncached"]["ttft_ms"], "least_speedup" in compared
    return payback(encode_ms, cached, uncached, clear=clear, repeated=repeated)


def _side(sent: object) -> SideFrame:
    side = as_mapping(sent)
    state, ended = as_words(side.get("state")), as_words(side.get("ended"))
    shown, stages = as_time(side.get("ttft_ms")) or None, as_times(side.get("timeline_ms"))
    rate = as_number(side.get("tokens_per_second"))
    if shown is not None and abs(sum(stages.values()) - shown) > _NEAR * shown:
        stages = {}  # they belong to another time
    return {
        "state": cast(State, state if state in STATES else "not run"),
        "waits": False,
        "working": "",
        "done": 0,
        "total": 0,
        "text": text[:LONGEST_TEXT] if isinstance(text := side.get("text"), str) else "",
        "ttft_ms": shown,
        "timeline_ms": stages,
        "tokens": {name: int(number) for name, number in as_numbers(side.get("tokens")).items()},
        "tokens_per_second": rate if rate and rate >= _LEAST_RATE else None,
        "samples_ms": _samples(side.get("samples_ms")),
        "cold_ms": _samples(side.get("cold_ms")),
        "waited_ms": as_time(side.get("waited_ms")) or 0.0,
        "ended": cast(Ended, ended if ended in ENDS else ""),
        "format_fault": fault if isinstance(fault := side.get("format_fault"), str) else None,
    }


def _reuse(sent: object) -> ReuseFrame | None:
    reuse = as_mapping(sent)
    if not isinstance(reuse.get("why"), str):
        return None
    return {
        "scope": as_words(reuse.get("scope")),
        "repair": as_words(reuse.get("repair")),
        "why": as_words(reuse.get("why")),
        "kl": as_number(reuse.get("kl")),
        "checked": reuse.get("checked") is True,
        "follows": False,  # a check belongs to its session
        "broken": reuse.get("broken") is True,
    }


def _samples(sent: object) -> list[float]:
    return [number for sample in _list(sent) if (number := as_time(sample)) is not None]


def _settings(frame: Mapping[str, Any]) -> Json:
    """Returns the settings."""
    settings: Json = {}
    for name, value in _some(frame.get("settings")):
        if isinstance(value, str | bool) or value is None or as_number(value) is not None:
            settings[as_words(name)] = as_words(value) if isinstance(value, str) else value
        elif isinstance(value, list):
            settings[as_words(name)] = [as_words(value_sent) for value_sent in _list(value)]
    return settings


def as_mapping(sent: object) -> Mapping[str, Any]:
    """Returns a mapping; empty if it is none."""
    return sent if isinstance(sent, dict) else {}


def _some(sent: object) -> list[tuple[str, Any]]:
    return [(str(name), value) for name, value in list(as_mapping(sent).items())[:MOST_ENTRIES]]


def _list(sent: object) -> list[Any]:
    return sent[:MOST_ENTRIES] if isinstance(sent, list) else []


def as_words(sent: object) -> str:
    """Returns a text, or ""; lone surrogates become question marks."""
    return sent[:LONGEST_WORDS].encode("utf-8", "replace").decode("utf-8") if isinstance(sent, str) else ""


def _moment(sent: object) -> str:
    """Returns a time as ISO 8601; "" if it is not valid."""
    words = as_words(sent)
    try:
        datetime.fromisoformat(words)
    except ValueError:
        return ""
    return words


def as_number(sent: object) -> float | None:
    """Returns a number of at least 0 that JSON can represent."""
    if isinstance(sent, bool) or not isinstance(sent, int | float):
        return None
    return sent if 0 <= sent <= 2**53 and math.isfinite(sent) else None


def as_numbers(sent: object) -> dict[str, float]:
    """Returns the numbers of a mapping."""
    return {as_words(name): number for name, item in _some(sent) if (number := as_number(item)) is not None}


def as_time(sent: object) -> float | None:
    """Returns milliseconds: 0, or from a nanosecond to a year, so every ratio is finite."""
    number = as_number(sent)
    return number if number is not None and (number == 0 or LEAST_MS <= number <= MOST_MS) else None


def as_times(sent: object) -> dict[str, float]:
    """Returns the times of a mapping."""
    return {name: number for name, number in as_numbers(sent).items() if as_time(number) is not None}
