"""Runs a stored run's prompt on another model, or on another server of this machine.

The result is a stored run, linked with the first one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import TypedDict

from app.models.model_choice import ModelChoice
from app.studio.history import Record, RunStore
from app.studio.history.exchange import SERVER, messages_of
from app.studio.history.runner import RunRequest, Runs
from app.studio.model.local_server import LocalServer, stream
from app.studio.model.model_switcher import Switching
from app.studio.runs.run_frame import RunFrame, Side
from app.studio.runs.run_state import Run
from app.studio.runs.settings import PageSettings
from app.studio.web.jobs import Job, Jobs, StoppedError
from app.studio.web.json_answers import Json, JsonOf
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine

COMPARE = "comparison of two models"
TEMPLATE = "The server applied its own chat template. Its times include the request."


class ComparedModels(TypedDict):
    """The ids of both stored runs, and the second run so far; `second` is "" until it is stored."""

    first: str
    second: str
    run: Annotated[Json, JsonOf(RunFrame)] | None


@dataclass
class Comparison:
    """The state of a comparison; see `ComparedModels`."""

    first: str
    run: Run | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the state for the page."""
        run = self.run
        told: ComparedModels = {
            "first": self.first,
            "second": run.kept if run else "",
            "run": run.to_json() if run else None,
        }
        return dict(told)

    def finished(self) -> Comparison:
        """Returns this state if the second run is stored.

        Raises:
            PromptCacheError: the run failed before it had an answer.
            StoppedError: it was stopped before.
        """
        run = self.run
        if run is None or (not run.kept and run.state == "stopped"):
            raise StoppedError
        if not run.kept:
            raise PromptCacheError(run.message or " ".join(run.warnings) or "The model generated no text.")
        return self


def compare_with_model(
    key: str, switching: Switching, runs: Runs, first: Record, choice: ModelChoice, *, apart: bool
) -> Job:
    """Starts to run a stored run's prompt on another model.

    Args:
        key: the key of the job.
        switching: loads the model; the current one answers again at the end.
        runs: runs the prompt.
        first: the stored run.
        choice: the other model.
        apart: whether both models do not fit into memory together.

    Raises:
        PromptCacheError: another model is loading.
    """
    state = Comparison(first.id)

    def work(job: Job) -> Comparison:
        def use(engine: Engine) -> None:
            request = _request(key, engine, first)
            with job.changing():
                state.run = runs.prepared(request)
            runs.answer(job, state.run, request)
            job.tell(0, 0, f"unloading {choice.name}")

        switching.lend(job, choice, use, apart=apart)
        return state.finished()

    return switching.begin_loading(Job(key, work, COMPARE, f"loading {choice.name}", result=state))


def _request(key: str, engine: Engine, first: Record) -> RunRequest:
    frame, of = first.told, first.told["of"]
    return RunRequest(
        key,
        engine,
        engine.schema(first.whole),
        first.prompt,
        PageSettings.of_run(frame["settings"]),
        frame["mode"],
        (of["schema"], of["prompt"]),
        first.whole,
        "" if first.contained else first.origin,
        first.id,
    )


def compare_with_server(key: str, jobs: Jobs, store: RunStore, first: Record, server: LocalServer) -> Job:
    """Starts to run a stored run's prompt on a server of this machine.

    The uncached side is the first request. The cached side repeats it, so the server may use its own cache.

    Raises:
        PromptCacheError: other work excludes it.
    """
    state = Comparison(first.id)

    def work(job: Job) -> Comparison:
        run = _run_on(server, first)
        with job.changing():
            state.run = run
        try:
            _answer(job, run, server, messages_of(first.whole, first.prompt))
        except PromptCacheError as error:
            with job.changing():
                run.state, run.message = "failed", str(error)
        with job.changing():
            run.conclude()
        if run.answered:
            frame, origin = cast(dict[str, Any], run.frame()), "" if first.contained else first.origin
            record = Record(first.whole, first.prompt, frame, origin=origin, linked=first.id)
            store.keep(record)
            run.kept = record.id
        return state.finished()

    return jobs.start(Job(key, work, COMPARE, f"asking {server.model}", result=state))


def _run_on(server: LocalServer, first: Record) -> Run:
    frame, of = first.told, first.told["of"]
    order: tuple[Side, ...] = ("uncached", "cached") if frame["mode"] == "both" else (frame["mode"],)
    run = Run(
        frame["schema"],
        replace(PageSettings.of_run(frame["settings"]), repeats=1),
        order,
        {
            "name": server.model,
            "fingerprint": "",
            "device": f"{SERVER}{server.base_url}",
            "dtype": "",
            "weights": "",
        },
        texts=(of["schema"], of["prompt"]),
        warnings=(TEMPLATE,),
    )
    run.started = datetime.now().astimezone().isoformat(timespec="seconds")
    return run


def _answer(job: Job, run: Run, server: LocalServer, messages: list[dict[str, str]]) -> None:
    """Requests the sides of a run in order; a cached side alone follows a request that is not recorded."""

    def stopping() -> bool:
        return job.stopping

    if run.order == ("cached",):
        for _ in stream(server, messages, replace(run.settings, max_new_tokens=1), stopping):
            pass
    for name in run.order:
        if stopping():
            return
        side = run.sides[name]
        with job.changing():
            side.state = "working"
        begun, first, pieces = time.perf_counter(), 0.0, 0
        for piece in stream(server, messages, run.settings, stopping):
            now = time.perf_counter()
            with job.changing():
                if piece.text and not side.timelines:
                    first = now
                    side.timelines.append({"prefill": 1000 * (now - begun)})
                    side.state = "streaming"
                side.text += piece.text
                pieces += bool(piece.text)
                side.tokens |= piece.tokens
                side.ended = piece.ended or side.ended
                counted = side.tokens.get("generated", pieces)
                if counted > 2 and pieces > 2 and now > first:
                    side.tokens_per_second = (counted - 1) / (now - first)
        if stopping():
            return
        with job.changing():
            side.tokens.setdefault("generated", pieces)
            side.state = "done"
