"""Another model in the place of the one that answers: what ends, what stays, and what becomes of memory."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.models import model_fit
from app.models.model_choice import ModelChoice
from app.remote.presence import present
from app.remote.terms import Terms
from app.studio.model import model_switcher
from app.studio.model.engine_loader import Opening
from app.studio.model.model_switcher import in_page_words
from app.studio.model.presence import Announcing
from app.studio.model.remote_runs import Handed
from app.studio.web.jobs import Job
from engine import Engine
from engine.base.errors import ClosedError
from engine.checkpoint.model_catalogue import CATALOGUE, models_folder
from engine.quantize.memory_fit import Free
from tests.app.server.raw import eventually
from tests.app.studio.asked import Asked

SCHEMA = '<schema name="s"><module name="m">Text of a module.</module></schema>'
TEXTS = {"schema": SCHEMA, "prompt": '<prompt schema="s"><m/>Well?</prompt>'}


class Ended:
    """What comes of work that only waits."""

    def to_json(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Asked]:
    """A studio with the bundled model."""
    asked = Asked(tmp_path)
    kept = {"cache_dir": tmp_path / "cache"}
    asked.parts.switching.begun(Engine.open("demo", **kept), ModelChoice(), kept)
    yield asked
    asked.parts.opening.leave().close()


def switched(studio: Asked, name: str | Path, key: str, **given: Any) -> dict[str, Any]:
    begun = studio.ask("switch_model", {"key": key, "name": str(name), **given})
    assert begun.get("error") is None, begun["error"]
    return studio.ended(key)


def changed(studio: Asked, name: str | Path, key: str, *, apart: bool) -> dict[str, Any]:
    """Without a look at the room: what fits beside the other is loaded after it all the same."""
    studio.parts.switching.start(key, ModelChoice(str(name)), "finish", apart=apart)
    return studio.ended(key)


def waits(studio: Asked) -> bool:
    return "waiting for 1 run" in studio.ask("job_state", {"key": "k"})["what"]


def tokens(studio: Asked) -> int:
    measured = studio.ask("measure", {**TEXTS, "settings": {}})
    return int(measured["sizes"]["m"]["tokens"])


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)])
def test_another_model_answers_and_the_former_one_is_given_back(
    studio: Asked, tiny_model: Path, apart: bool
) -> None:
    former = studio.parts.engine
    network, threads = weakref.ref(former.model.network.module), threading.active_count()
    before, gone = tokens(studio), weakref.ref(former)
    del former
    gc.freeze()  # as a start does
    end = changed(studio, tiny_model, "k", apart=apart)
    assert end["fault"] == ""
    assert end["result"]["model"] == str(tiny_model)
    state = studio.ask("model")
    assert (state["model"]["name"], state["number"]) == (str(tiny_model), 2)
    assert tokens(studio) != before, "sizes are those of the other tokenizer"
    eventually(lambda: gone() is None and network() is None, "the former model is freed")
    eventually(lambda: threading.active_count() <= threads, "its threads end")
    assert studio.ask("models_state")["loaded"]["bytes_per_token"] == 2 * 2 * 2 * 8 * 4
    assert changed(studio, "demo", "k2", apart=apart)["result"]["model"] == "demo"
    assert tokens(studio) == before


@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_model_that_cannot_be_loaded_leaves_the_former_one(
    studio: Asked, tmp_path: Path, apart: bool
) -> None:
    (tmp_path / "none").mkdir()
    end = changed(studio, tmp_path / "none", "k", apart=apart)
    assert "config.json is missing" in end["fault"]
    assert end["result"] is None
    assert studio.ask("models_state")["loaded"]["model"] == "demo"
    assert studio.ask("models_state")["switching"] is None
    assert tokens(studio) > 0


@pytest.mark.parametrize("running", ["finish", "stop"])
def test_what_the_former_model_computes_ends_or_is_stopped(
    studio: Asked, tiny_model: Path, running: str
) -> None:
    former, may_end = studio.parts.engine, threading.Event()
    stopped = False

    def work(job: Job) -> Ended:
        nonlocal stopped
        while not may_end.is_set() and not job.stopping:
            time.sleep(0.01)
        stopped = job.stopping
        former.computing.require_open()  # it is there as long as its work
        return Ended()

    studio.parts.jobs.start(Job("run", work, "run"))
    assert studio.ask("models_state")["running"] == 1
    studio.ask("switch_model", {"key": "k", "name": str(tiny_model), "running": running})
    if running == "finish":
        eventually(lambda: waits(studio), "the switch waits for the run", 60)
        assert studio.ask("model")["model"]["name"] == str(tiny_model), "new work is the new model's already"
        may_end.set()
    assert studio.ended("k")["fault"] == ""
    assert studio.ended("run")["fault"] == ""
    assert stopped == (running == "stop")


@pytest.mark.long
def test_a_run_counts_as_work_of_the_model_that_began_it(studio: Asked, tiny_model: Path) -> None:
    sent = {"key": "run", **TEXTS, "settings": {"max_new_tokens": 3, "temperature": 0}}
    studio.ask("measure_fidelity", sent)
    assert switched(studio, tiny_model, "k")["fault"] == ""
    assert studio.ended("run")["fault"] == ""


def test_one_switch_at_a_time_and_none_before_the_first_model(studio: Asked, tmp_path: Path) -> None:
    hold = threading.Event()
    studio.parts.jobs.start(Job("run", lambda _: (hold.wait(60), Ended())[1], "run"))
    studio.ask("switch_model", {"key": "k", "name": "demo"})
    refused = studio.ask("switch_model", {"key": "k2", "name": "demo"})
    assert "Another model is loading" in refused["error"]
    hold.set()
    assert studio.ended("k")["fault"] == ""
    assert "Name a model" in studio.ask("switch_model", {"key": "k3", "name": "  "})["error"]
    early = Asked(tmp_path / "other")
    assert "still loading" in early.ask("switch_model", {"key": "k", "name": "demo"})["error"]
    assert early.ask("models_state")["options"] is None


def test_a_switch_that_is_stopped_changes_nothing(
    studio: Asked, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Engine.open
    made: list[Engine] = []

    def slow(*given: Any, **options: Any) -> Engine:
        studio.ask("stop_job", {"key": "k"})
        made.append(opened(*given, **options))
        return made[-1]

    monkeypatch.setattr(Engine, "open", slow)
    end = switched(studio, tiny_model, "k")
    assert end["fault"] == "Stopped."
    assert studio.ask("model")["model"]["name"] == "demo"
    for loaded in made:  # in vain
        with pytest.raises(ClosedError):
            loaded.computing.require_open()


def test_nobody_gets_an_engine_that_has_left() -> None:
    opening = Opening(patience=0)
    first: Any = object()
    assert opening.finish(first) is None
    assert opening.leave() is first
    assert not opening.there
    assert opening.number == 1
    assert opening.words == "loading"
    opening.progress(1, 2, "reading weights.gguf")
    assert opening.words == "reading the model's files, 50 %"
    opening.progress(0, 0, "probing x")
    assert opening.words == "checking that caching works with this model"
    second: Any = object()
    assert opening.finish(second) is None
    assert opening.engine is second
    assert opening.number == 2


def test_commands_are_told_what_the_studio_computes_with_now(
    studio: Asked, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    kept = {"cache_dir": tmp_path / "cache"}
    announcing = Announcing(7860, Handed(), kept)
    studio.parts.switching.listener = announcing
    announcing.expect(ModelChoice())(studio.parts.engine)
    (before,) = present()
    bundled, other = Terms.of("demo", **kept), Terms.of(str(tiny_model), **kept)
    assert before.held.serves(bundled)
    assert switched(studio, tiny_model, "k")["fault"] == ""
    (after,) = present()
    assert after.held.serves(other)
    assert not after.held.serves(bundled)
    assert after.held.refusal(other) == ""
    assert after.secret != before.secret
    announcing.leave()
    assert present() == []


def test_a_model_of_the_catalogue_is_no_recent_model_too(
    studio: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entry = CATALOGUE["smollm2"]
    models_folder().mkdir(parents=True)
    file = models_folder() / entry.file
    with file.open("wb") as made:
        made.truncate(entry.bytes)
    recent = studio.parts.switching.recent
    for name in ("smollm2", str(file), "some/other"):
        recent.add(ModelChoice(name))
    assert [choice.name for choice in recent.kept()] == ["some/other"]
    recent.add(ModelChoice("smollm2", quantize="int8"))
    assert recent.kept()[0].quantize == "int8", "the catalogue does not offer its options"


def test_a_name_is_looked_at_before_it_is_loaded(studio: Asked, tiny_model: Path) -> None:
    found = studio.ask("look_at_model", {"name": str(tiny_model)})
    loaded = switched(studio, tiny_model, "k")
    assert loaded["fault"] == ""
    state = studio.ask("models_state")
    assert found["look"]["verdict"] in ("fits", "tight")
    for name in ("family", "parameters", "bytes_per_token", "context_length", "dtype", "device"):
        assert found["look"][name] == state["loaded"][name], name
    assert state["recent"][0]["name"] == str(tiny_model.resolve())
    assert studio.ask("forget_model", {"name": str(tiny_model.resolve())})["recent"] == []
    assert state["shapes"][0] == "random:llama-100m"
    absent = studio.ask("look_at_model", {"name": "owner/name"})
    assert (absent["look"], absent["absent"]) == (None, True)
    wrong = studio.ask("look_at_model", {"name": "/no/such"})
    assert (wrong["look"], wrong["absent"]) == (None, False)
    assert wrong["sentence"].startswith("There is no folder")
    for name in (f" '{tiny_model}' ", f'"{tiny_model}"', tiny_model.as_uri()):
        assert studio.ask("look_at_model", {"name": name})["look"]["kind"] == "folder", name


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        (
            "it is in four bits already. Leave --quantize int4 out; --dtype bf16 computes with it as it is.",
            'It is in four bits already. Leave "Rounding" at "none"; "bf16" under "Number format" computes '
            "with it as it is.",
        ),
        (
            "add --device cpu, or leave --dtype fp16 out.",
            'Choose "cpu" under "Device", or leave "Number format" at "auto".',
        ),
        ("Make room, or choose another folder with --dir.", "Make room."),
        ("name others by a path with --model.", "Name others by a path."),
    ],
)
def test_a_refusal_names_the_fields_of_the_page(sentence: str, told: str) -> None:
    assert in_page_words(sentence) == told


def test_a_rounding_that_is_refused_names_the_field(studio: Asked, tiny_model: Path) -> None:
    wanted = {"name": str(tiny_model), "quantize": "int4", "dtype": "fp16"}
    looked = studio.ask("look_at_model", wanted)["sentence"]
    refused = studio.ask("switch_model", {"key": "k", **wanted})["error"]
    for said in (looked, refused):
        assert 'leave "Number format" at "auto"' in said
        assert "--" not in said


def test_nothing_is_fetched_unasked(studio: Asked) -> None:
    refused = studio.ask("switch_model", {"key": "k", "name": "owner/name"})
    assert "not on this machine" in refused["error"]
    asked = studio.ask("look_at_model", {"name": "owner/name", "ask": True})  # the tests are offline
    assert "the Hugging Face hub" in asked["sentence"]


def test_a_model_that_does_not_fit_is_refused_and_one_that_fits_alone_is_asked_about(
    studio: Asked, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Free(model_fit.RESERVE, 1 << 40)
    monkeypatch.setattr(model_fit, "free_memory", lambda _: room)
    refused = studio.ask("switch_model", {"key": "k", "name": "random:llama2-7b"})
    assert "does not fit" in refused["error"]
    look = studio.ask("look_at_model", {"name": str(tiny_model)})
    assert look["look"]["verdict"] == "apart", "the former one's 19 MiB are room enough"
    unasked = studio.ask("switch_model", {"key": "k", "name": str(tiny_model)})
    assert "demo is unloaded first" in unasked["error"]
    end = switched(studio, tiny_model, "k", apart=True)
    assert end["result"]["model"] == str(tiny_model)
    assert studio.ask("model")["number"] == 2


def test_the_open_schema_is_told_in_bytes(studio: Asked) -> None:
    sizes = studio.ask("schema_sizes", {"schema": SCHEMA})
    per_token = studio.parts.engine.model.bytes_per_token
    assert sizes["modules"][0]["path"] == "m"
    assert sizes["modules"][0]["bytes"] == sizes["modules"][0]["tokens"] * per_token
    assert sizes["tokens"] == sizes["anonymous_tokens"] + sizes["modules"][0]["tokens"]
    assert sizes["bytes"] == sizes["tokens"] * per_token
    assert sizes["memory"] == studio.parts.engine.memory_tier.budget
    assert "has errors" in studio.ask("schema_sizes", {"schema": "<schema"})["error"]
    assert len(studio.ask("known_models")["models"]) > 8


SENT = {**TEXTS, "settings": {"max_new_tokens": 3, "temperature": 0, "repeats": 1}}
SWEEP = {"axis": "cached", "values": ["12"], "new": 4, "modules": 2, "repeats": 1}
BEGUN: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("run_prompt", "measure_fidelity", "encode_all"), SENT),
    "start_sweep": SWEEP,
    "batch_start": {**SENT, "settings": {"max_new_tokens": 3}, "source": "table", "table": "text\nWell?\n"},
}


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(one, marks=() if one in ("run_prompt", "batch_start") else pytest.mark.long)
        for one in BEGUN
    ],
)
def test_work_computes_to_its_end_with_the_model_that_it_began_with(
    studio: Asked, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Another one tries to take its place between the moment the work looks for its model and its start."""
    former, other = studio.parts.engine, Engine.open(tiny_model, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(Engine, "open", lambda *_, **__: other)
    start, former_model = studio.parts.jobs.start, former.model

    wanted, unheard = ModelChoice(str(tiny_model)), Job("other", lambda _: Ended(), "switch")
    switch = threading.Thread(target=lambda: studio.parts.switching.load_beside(unheard, wanted, "finish"))

    def begun(job: Job) -> Job:
        switch.start()
        switch.join(0.3)  # it is loaded already, and would be placed at once
        return start(job)

    monkeypatch.setattr(studio.parts.jobs, "start", begun)
    state = studio.ask(question, {"key": "work", **BEGUN[question]})
    assert state.get("error") is None, state
    end = studio.ended("work")
    assert end["fault"] == "", "its engine is not closed under it"
    switch.join(60)
    assert studio.parts.engine is other
    named = {
        "run_prompt": lambda: end["result"]["model"]["fingerprint"],
        "start_sweep": lambda: end["result"]["report"]["model"]["fingerprint"],
    }
    assert named.get(question, lambda: former_model.fingerprint)() == former_model.fingerprint


@pytest.mark.parametrize("stage", ["loading", "waiting"])
def test_a_studio_that_is_closed_does_not_wait_for_a_switch(
    studio: Asked, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    hold, opened = threading.Event(), Engine.open

    def slow(*given: Any, **options: Any) -> Engine:
        hold.wait(60)
        return opened(*given, **options)

    if stage == "loading":
        monkeypatch.setattr(Engine, "open", slow)
        monkeypatch.setattr(model_switcher, "PATIENCE_SECONDS", 0.1)
    else:
        studio.parts.jobs.start(Job("run", lambda _: (hold.wait(60), Ended())[1], "run"))
    studio.parts.switching.start("k", ModelChoice(str(tiny_model)), "finish")
    eventually(lambda: stage != "waiting" or waits(studio), "the switch waits for the run", 60)
    studio.parts.switching.close()
    assert studio.parts.switching.job is not None
    assert studio.parts.switching.job.over == (stage == "waiting")
    hold.set()
    studio.ended("k")
