"""The events of a run as JSON objects, the same from this process and from a studio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.base.errors import ClosedError, PromptCacheError
from engine.base.events import Finished, ReuseTaken
from engine.inference.run_settings import RunSettings
from engine.pml import Diagnostic, PromptError
from engine.pml.diagnostics.diagnostic import Span

if TYPE_CHECKING:
    from engine import Engine
    from engine.prepared import Mode, PreparedPrompt

Line = dict[str, Any]


def answering(
    engine: Engine, prompt: PreparedPrompt, settings: RunSettings, mode: Mode, *, check: bool = True
) -> Iterator[Line]:
    """Answers a prompt as lines. Closing the iterator stops the answer.

    Args:
        engine: computes the answer.
        prompt: the prompt.
        settings: the settings of the run.
        mode: one side, or both.
        check: as in `PreparedPrompt.stream`.

    Yields:
        The engine's description, then the run's events.

    Raises:
        PromptError: the prompt does not fit the schema or the context window.
    """
    stream = prompt.stream(settings, mode=mode, check=check)
    try:
        yield {
            "event": "begun",
            "placement": engine.placement(settings.placement),
            "probe": engine.model.probe.to_json(),
            "keeps": engine.store.settings.budget > 0,
        }
        for event in stream:
            yield event.to_json()
            if isinstance(event, Finished) and event.answer.reuse is not None:
                yield {"event": "reuse", "taken": asdict(event.answer.reuse)}
        if mode == "cached":
            from engine.prompt.passages import saw_all  # readers of these lines load no tokenizer

            yield {"event": "read", "saw_all": saw_all(prompt.passages(settings))}
    finally:
        stream.close()


def checking(prompt: PreparedPrompt, settings: RunSettings, told: Sequence[Line]) -> Iterator[Line]:
    """Checks an answer whose repair `--reuse` chose, as lines; a failure is one of them."""
    answers = {line["side"]: line["answer"]["token_ids"] for line in told if line["event"] == "finished"}
    taken = next((taken_in(line) for line in told if line["event"] == "reuse"), None)
    if taken is None:
        return
    yield {"event": "answered"}
    both = "uncached" in answers
    try:
        checked = prompt.check_answer(answers["uncached" if both else "cached"], taken, settings, every=both)
    except Exception as error:  # the answer is complete
        yield {"event": "unchecked", "why": str(error)}
    else:
        yield {"event": "reuse", "taken": asdict(checked)}


def taken_in(line: Line) -> ReuseTaken:
    """Returns the repair in a line of a run."""
    reuse = line["taken"]
    return ReuseTaken(**{**reuse, "scaffold": tuple(reuse["scaffold"])})


def of_fault(error: Exception) -> Line:
    """Returns an error as a line; `own` if another process could compute the run."""
    if isinstance(error, PromptError):
        return {"event": "fault", "diagnostics": [_told(diagnostic) for diagnostic in error.diagnostics]}
    known = isinstance(error, PromptCacheError)
    return {
        "event": "fault",
        "message": str(error) if known else f"unexpected {type(error).__name__}: {error}".rstrip(": "),
        "own": not known or isinstance(error, ClosedError),
    }


def raise_fault(line: Line) -> None:
    """Raises the error of a line from `of_fault`.

    Raises:
        PromptError: a document has errors.
        PromptCacheError: any other error.
    """
    if "diagnostics" in line:
        raise PromptError(tuple(_diagnostic(diagnostic) for diagnostic in _list(line["diagnostics"])))
    raise PromptCacheError(str(line["message"]))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _told(found: Diagnostic) -> dict[str, Any]:
    origin = found.origin and [found.origin.start, found.origin.end]
    return {**found.to_json(), "span": [found.span.start, found.span.end], "origin": origin}


def _diagnostic(told: dict[str, Any]) -> Diagnostic:
    origin = Span(*told["origin"]) if told.get("origin") else None
    return Diagnostic(**{**told, "span": Span(*told["span"]), "origin": origin})
