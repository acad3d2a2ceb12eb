"""`pml bench quality` over several files: what is measured once, what is resumed, how much is computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import quality
from benchmarks.labels import Labels
from benchmarks.quality import Variant
from benchmarks.quality_report import as_markdown
from benchmarks.tasks import read_questions, read_tasks
from engine.base.errors import PromptCacheError
from engine.model.network import Network
from tests.engine.tiny import save_tiny

REPAIRED = Variant("anchored", "impact:0.15")
TEXTS = {"pay": ["pay a bill", "pay my rent", "pay now"], "play": ["play a song", "play on", "play loud"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of every pass through the network."""
    forward, made = Network.forward, list[int]()

    def counted(self: Network, tokens: Sequence[int], *given: Any, **named: Any) -> Any:
        made.append(len(tokens))
        return forward(self, tokens, *given, **named)

    monkeypatch.setattr(Network, "forward", counted)
    return made


def questions(folder: Path, name: str = "q", count: int = 2) -> Path:
    file = folder / f"{name}.jsonl"
    records = [
        {"input": f"Is it {n}?", "documents": ["one thing", "and another"], "answers": ["x"], "metric": "f1"}
        for n in range(count)
    ]
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return file


def labelled(folder: Path) -> Path:
    file = folder / "labels.jsonl"
    lines = [
        {"split": "train" if at < 2 else "test", "text": text, "label": label}
        for label, texts in TEXTS.items()
        for at, text in enumerate([*texts, f"{label}?"])
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return file


def samples(measured: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """All samples without times, by file and name."""
    return {
        (file, result["name"]): [{k: v for k, v in s.items() if k != "ttft_ms"} for s in result["samples"]]
        for file, report in measured["files"].items()
        for result in report["results"]
    }


def test_files_have_a_report_each_and_one_together(model: str, tmp_path: Path) -> None:
    files = read_questions([questions(tmp_path, "a", 3), questions(tmp_path, "b", 3)], limit=2)
    measured = quality.run(model, files, [Variant("isolated")])
    assert {name: report["prompts"] for name, report in measured["files"].items()} == {"a": 2, "b": 2}
    assert [(one["name"], one["prompts"]) for one in measured["all"]] == [
        ("uncached", 4),
        ("isolated", 4),
        ("default", 4),
    ]
    words = as_markdown(measured)
    assert "## a\n" in words
    assert "## All files\n" in words
    assert words.count("| isolated |") == 3


def test_files_of_the_same_name_are_named_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = questions(tmp_path), questions(tmp_path / "other")
    assert [file.name for file in read_questions([one, two, one])] == [str(one), str(two)]


def test_the_default_is_a_run_without_options_over_segments_that_were_never_checked(
    model: str, tmp_path: Path
) -> None:
    measured = samples(quality.run(model, read_questions([questions(tmp_path)]), [REPAIRED]))
    assert measured["q", "default"] == measured["q", REPAIRED.name]
    assert all(sample["repaired_share"] > 0.1 for sample in measured["q", "default"])


def test_an_answer_and_its_reading_share_one_prefill(model: str, tmp_path: Path, passes: list[int]) -> None:
    """The whole prompt passes through the network once, though it is answered and read."""
    (file,) = read_questions([questions(tmp_path, count=1)])
    measured = quality.run(model, [file], [Variant("anchored")])
    (uncached,) = samples(measured)["q", "uncached"]
    whole, length = uncached["prompt_tokens"], uncached["answer_tokens"]
    assert passes.count(whole) == 1
    (anchored,) = samples(measured)["q", "anchored"]
    new = round(anchored["computed_share"] * whole)
    assert passes.count(new) == 1
    assert passes.count(length - 1) == 3  # each row reads the answer once, behind what it has computed


def test_a_stopped_run_goes_on_where_it_was(model: str, tmp_path: Path, passes: list[int]) -> None:
    files = read_questions([questions(tmp_path, "a"), questions(tmp_path, "b")])
    wanted = [Variant("anchored"), Variant("isolated")]
    whole = quality.run(model, files, wanted)
    all_passes = len(passes)
    passes.clear()
    told: list[str] = []

    def stop(done: int, _total: int, what: str) -> None:
        told.append(what)
        if done == 7:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        quality.run(model, files, wanted, folder=out, progress=stop)
    assert told[1].startswith("a:1, anchored, ")
    assert told[1].endswith(" left")
    before = len(passes)
    with (out / "samples.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"file": "b", "task": 0, "way')  # as a kill leaves it
    again = quality.run(model, files, wanted, folder=out)
    assert samples(again) == samples(whole)
    assert len(passes) - before < 0.6 * all_passes
    journal = (out / "samples.jsonl").read_bytes()
    passes.clear()
    assert samples(quality.run(model, files, wanted, folder=out)) == samples(whole)
    assert (out / "samples.jsonl").read_bytes() == journal
    assert max(passes) < 20  # those that a model makes when it is loaded


def test_further_variants_are_measured_alone(model: str, tmp_path: Path, passes: list[int]) -> None:
    files, out = read_questions([questions(tmp_path)]), tmp_path / "out"
    quality.run(model, files, [Variant("anchored")], folder=out)
    lines = (out / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    passes.clear()
    both = [Variant("anchored"), Variant("isolated")]
    more = quality.run(model, files, both, folder=out)
    added = (out / "samples.jsonl").read_text(encoding="utf-8").splitlines()[len(lines) :]
    assert ["scope=isolated" in json.loads(line)["way"] for line in added] == [True, True]
    assert samples(more) == samples(quality.run(model, files, both))


def test_samples_of_another_model_or_file_are_refused(model: str, tmp_path: Path) -> None:
    file, out = questions(tmp_path), tmp_path / "out"
    quality.run(model, read_questions([file]), [Variant("anchored")], folder=out)
    other = str(save_tiny(tmp_path / "other", seed=5))
    with pytest.raises(PromptCacheError, match=r"another setup: model .*; now model .*Name another folder"):
        quality.run(other, read_questions([file]), [Variant("anchored")], folder=out)
    with pytest.raises(PromptCacheError, match=r"another setup: max_tokens None; now max_tokens 99"):
        quality.run(model, read_questions([file]), [Variant("anchored")], folder=out, most_tokens=99)
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(PromptCacheError, match="another version of q, or by another metric"):
        quality.run(model, read_questions([file]), [Variant("anchored")], folder=out)


def test_a_folder_with_another_journal_is_refused(model: str, tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text("[1]\n", encoding="utf-8")
    with pytest.raises(PromptCacheError, match="line 1 is no sample"):
        quality.run(model, read_questions([questions(tmp_path)]), [Variant("anchored")], folder=tmp_path)
    (tmp_path / "samples.jsonl").write_bytes(b"\x00\xff\x00\n")
    with pytest.raises(PromptCacheError, match="line 1 is no sample"):
        quality.run(model, read_questions([questions(tmp_path)]), [Variant("anchored")], folder=tmp_path)


def test_longer_prompts_are_shortened_or_left_out(model: str, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    text = "".join(f"Line {n} of a text.\n" for n in range(30))
    given = {"input": "Which?", "answers": ["x"], "metric": "f1"}
    records = [{**given, "context": text}, {**given, "documents": [text]}, {**given, "context": "Short."}]
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    files = read_questions([file])
    report = quality.run(model, files, [Variant("anchored")], most_tokens=400)["files"]["q"]
    assert report["shortened"] == ["q:1"]
    (left_out,) = report["left_out"]
    assert left_out["task"] == "q:2"
    assert left_out["why"].endswith("at most 400 are to be measured.")
    first, last = (sample["prompt_tokens"] for sample in report["results"][0]["samples"])
    assert last < 350 < first <= 400


def test_labelled_texts_are_tasks_spread_over_their_labels(tmp_path: Path) -> None:
    tasks = read_tasks(labelled(tmp_path), limit=3)
    assert [task.answers for task in tasks] == [("pay",), ("play",), ("pay",)]
    assert tasks[0].classes == ("pay", "play")
    assert (tasks[0].metric, tasks[0].documents) == ("accuracy", 2)
    assert all(task.schema is tasks[0].schema for task in tasks)


def test_a_label_without_examples_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text('{"split": "test", "text": "x", "label": "pay"}\n', encoding="utf-8")
    with pytest.raises(PromptCacheError, match="the label 'pay' has no example of the split 'train'"):
        read_tasks(file)
    file.write_text('{"split": "dev", "text": "x", "label": "pay"}\n', encoding="utf-8")
    with pytest.raises(PromptCacheError, match="line 1: the split is 'dev'"):
        read_tasks(file)
    assert not Labels.are_in({"text": "x", "label": "pay"})


def test_a_schema_of_several_prompts_is_encoded_once(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = Network.encode, list[int]()

    def counted(self: Network, texts: Sequence[Any]) -> None:
        encoded.append(len(texts))
        encode(self, texts)

    monkeypatch.setattr(Network, "encode", counted)
    file, wanted = labelled(tmp_path), [Variant("anchored", "link:2")]
    quality.run(model, read_questions([file], limit=1), wanted)
    once = sum(encoded)
    measured = quality.run(model, read_questions([file]), wanted)
    assert sum(encoded) == 2 * once > len(TEXTS)
    report = measured["files"]["labels"]
    assert report["prompts"] == 4
    repaired = next(one for one in report["results"] if one["name"] == "anchored link:2")
    assert repaired["repaired_share"] > 0
    assert all(len(sample["text"].splitlines()) <= 1 for sample in repaired["samples"])
