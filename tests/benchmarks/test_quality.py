"""`quality`: its metrics, its files, and its figures on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.base.options import ModelOptions
from benchmarks.quality import quality
from benchmarks.quality.figures import grouped, interval, paired, pooled
from benchmarks.quality.metrics import score
from benchmarks.quality.quality import Variant, variants
from benchmarks.quality.report import charts, words
from benchmarks.quality.tasks import cut, fits, own_questions, read_questions, read_tasks, shortened, suite
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.loading import load
from engine.pml import bind
from engine.pml.tree.conversation import conversation
from engine.store import Store
from tests.engine.tiny import save_tiny

WORLDS = (
    ("documents", 160, {"exact"}),
    ("travel", 40, {"mentions"}),
    ("learning", 40, {"mentions"}),
    ("code", 40, {"exact"}),
)


@pytest.mark.parametrize(
    ("metric", "answer", "references", "want"),
    [
        ("exact", " Ines Corvo. ", ["Ines Corvo."], 1.0),
        ("exact", "Ines", ["Ines Corvo."], 0.0),
        ("f1", "The answer: Ines Corvo!", ["Ines Corvo"], 0.8),  # 2·2 ÷ (3 + 2), as "the" is left out
        ("f1", "nothing of it", ["Ines", "of it"], 0.8),
        ("f1", "", ["Ines"], 0.0),
        ("rouge-l", "the cat sat on the mat", ["the cat lay on a mat"], 2 * 4 / 12),
        ("rouge-l", "", ["x"], 0.0),
        ("numbers", "It is 7, not 8", ["Paragraph 7"], 0.5),
        ("numbers", "none", ["Paragraph 7"], 0.0),
        ("edit-similarity", "\n# a comment\nreturn x\nmore", ["return y"], 2 * 7 / 16),
        ("edit-similarity", "", ["x"], 0.0),
        ("mentions", "Three days in Rome, then home.", ["Rome\nThree days"], 1.0),
        ("mentions", "Three days in Rome, then home.", ["Rome\nFour days"], 0.0),
    ],
)
def test_metrics(metric: str, answer: str, references: list[str], want: float) -> None:
    assert score(metric, answer, references) == pytest.approx(want)


def test_accuracy_counts_the_classes_that_are_named() -> None:
    classes = ["Person", "Place", "Other place"]
    assert score("accuracy", "Person", ["Person"], classes=classes) == 1
    assert score("accuracy", "Person or Place", ["Person"], classes=classes) == 0.5
    assert score("accuracy", "Other place", ["Other place"], classes=classes) == 1
    assert score("accuracy", "Place", ["Person"], classes=classes) == 0


def test_contexts_are_cut_at_passages_or_paragraphs_and_lose_nothing() -> None:
    passages = "Intro.\nPassage 1:\nOne.\n\nPassage 2:\nTwo.\n"
    assert cut(passages) == ["Intro.\n", "Passage 1:\nOne.\n\n", "Passage 2:\nTwo.\n"]
    prose = "".join(f"Sentence number {n} of this paragraph.\n" for n in range(300))
    pieces = cut(prose)
    assert "".join(pieces) == prose
    assert len(pieces) > 3
    assert max(len(piece) for piece in pieces) <= 2000
    assert cut("one line") == ["one line"]


def test_questions_in_longbenchs_format_become_prompts(tmp_path: Path) -> None:
    file = tmp_path / "hotpotqa.jsonl"
    record = {
        "input": "Who & what <is> it?",
        "context": "Passage 1:\nA & B\x00.\nPassage 2:\n<tag> text\n",
        "answers": ["A"],
        "dataset": "hotpotqa_e",
        "all_classes": None,
        "_id": "x1",
    }
    file.write_text(
        json.dumps(record) + "\n\n" + json.dumps({**record, "_id": None}) + "\n", encoding="utf-8"
    )
    first, second = read_tasks(file)
    assert (first.name, first.metric, first.documents, first.answers) == ("x1", "f1", 2, ("A",))
    assert second.name == "hotpotqa:3"
    bound = bind(first.schema, first.prompt)
    assert bound.ok
    turns = conversation(bound.parts)
    assert turns[1].text == "Read these documents.\nPassage 1:\nA & B .\nPassage 2:\n<tag> text"
    assert turns[-1].text.startswith("Who & what <is> it?")
    assert len(read_tasks(file, limit=1)) == 1
    assert read_tasks(file, metric="rouge-l")[0].metric == "rouge-l"
    assert first.new_tokens == 32  # LongBench's bound for this set


@pytest.mark.parametrize(
    ("given", "words"),
    [({"dataset": "dureader"}, "data set 'dureader' is scored is not known"), ({}, "names no data set")],
)
def test_a_data_set_whose_metric_is_not_known_is_refused(
    given: dict[str, str], words: str, tmp_path: Path
) -> None:
    """It used to be scored by F1 without a word."""
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"input": "x", "context": "y", "answers": "z", **given}), encoding="utf-8")
    with pytest.raises(PromptCacheError, match=words) as refused:
        read_tasks(file)
    assert "--metric" in str(refused.value)
    assert read_tasks(file, metric="f1")[0].metric == "f1"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: a line must be one JSON object"),
        ('{"input": "x", "context": "y", "metric": "f1"}', "line 2: the field 'answers' is missing"),
        ('{"input": "x", "answers": ["y"], "metric": "f1"}', "line 2: the field 'context' is missing"),
        (
            '{"input": "x", "context": "y", "answers": [], "metric": "f1"}',
            "line 2: the field 'answers' is empty",
        ),
        ('{"context": "y", "answers": ["z"], "metric": "luck"}', "line 2: the metric 'luck' is not known"),
        (
            '{"schema": "<schema name=\'s\'/>", "answers": ["z"], "metric": "f1"}',
            "line 2: the field 'prompt' is missing",
        ),
        (
            '{"schema": "<schema>", "prompt": "<prompt schema=\'s\'/>", "answers": ["z"], "metric": "f1"}',
            "line 2: its schema, line 1: E1",
        ),
    ],
)
def test_a_line_that_is_no_question_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(
        '{"input": "x", "context": "y", "answers": "z", "metric": "f1"}\n' + line + "\n", encoding="utf-8"
    )
    with pytest.raises(PromptCacheError) as refused:
        read_tasks(file)
    assert words in str(refused.value)


def test_folders_that_hold_no_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptCacheError, match="no such file or folder"):
        read_tasks(tmp_path / "none")
    with pytest.raises(PromptCacheError, match="holds no task"):
        read_tasks(tmp_path)
    (tmp_path / "s.pml").write_text("<schema name='s'>")
    (tmp_path / "s.prompt.1.pml").write_text("<prompt/>")
    with pytest.raises(PromptCacheError, match=r"s\.pml, line 1: E1"):
        read_tasks(tmp_path)


@pytest.mark.parametrize(("world", "count", "metrics"), WORLDS)
def test_the_held_out_prompts_can_all_be_asked(world: str, count: int, metrics: set[str]) -> None:
    tasks = read_tasks(suite("demo")[world])
    assert len(tasks) == count
    assert all(bind(task.schema, task.prompt).ok for task in tasks)
    assert {task.metric for task in tasks} == metrics
    assert all(task.kind for task in tasks)


def measured(model: Path, file: Path, wanted: list[Variant], **given: Any) -> dict[str, Any]:
    """The report of a file."""
    whole = quality.run(ModelOptions(str(model)), read_questions([file]), wanted, **given)
    report: dict[str, Any] = whole["files"][file.stem]
    return report


def test_figures_on_a_tiny_model(tmp_path: Path) -> None:
    """A scaffold over the whole prompt is the uncached answer, and long prompts are left out and named."""
    folder = save_tiny(tmp_path / "model")
    file = tmp_path / "q.jsonl"
    records = [
        {"input": f"Is it {n}?", "documents": ["one thing", "and another"], "answers": ["x"], "metric": "f1"}
        for n in "abc"
    ]
    records.append({"input": "Long?", "documents": ["long " * 2000], "answers": ["x"], "metric": "f1"})
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    report = measured(folder, file, variants(["scaffold", "isolated"], ["none", "link:99"]))
    assert report["prompts"] == 3
    assert len(report["left_out"]) == 1
    assert "E502" in report["left_out"][0]["why"]
    by_name = {result["name"]: result for result in report["results"]}
    assert by_name["uncached"]["computed_share"] == 1
    for exact in ("scaffold", "isolated link:99"):
        assert by_name[exact]["same_answer"] == 1
        assert by_name[exact]["kl_first_token"] < 1e-6
        assert by_name[exact]["first_token_agreement"] == 1
    assert by_name["isolated"]["kl_first_token"] > 1e-5
    assert by_name["scaffold"]["computed_share"] < by_name["isolated link:99"]["computed_share"] < 1
    assert by_name["isolated"]["by_documents"]["2"]["prompts"] == 3
    assert by_name["isolated"]["by_position"] == by_name["isolated"]["by_kind"] == {}
    assert [sample["task"] for sample in by_name["isolated"]["samples"]] == ["q:1", "q:2", "q:3"]
    for exact in ("scaffold", "isolated link:99"):
        assert by_name[exact]["kl_worst"] < 1e-6
        assert by_name[exact]["flipped"] == 0
        assert by_name[exact]["paired"]["ties"] == 3
    apart = by_name["isolated"]
    assert apart["kl_worst"] > apart["kl_answer"] > 1e-6
    assert by_name["uncached"]["kl_worst"] == 0
    assert by_name["uncached"]["repaired_share"] is None
    assert by_name["isolated"]["repaired_share"] == 0
    assert 0 < by_name["isolated link:99"]["repaired_share"] <= 1
    assert apart["kl_low"] <= apart["kl_answer"] <= apart["kl_high"]
    assert all(sample["ttft_ms"] > 0 and sample["prompt_tokens"] > 0 for sample in apart["samples"])


def test_a_context_that_is_too_long_loses_its_middle(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    file = tmp_path / "q.jsonl"
    lines = "".join(f"Line {n} of a very long text.\n" for n in range(2000))
    record = {"input": "Which?", "context": lines, "answers": ["x"], "dataset": "hotpotqa", "_id": "long"}
    file.write_text(json.dumps(record), encoding="utf-8")
    engine = Engine(load(str(folder)), Store.open(tmp_path / "store"))
    (task,) = read_tasks(file)
    settings = RunSettings(max_new_tokens=task.new_tokens)
    short = shortened(engine, task, settings)
    assert short is not None
    assert fits(engine, short, settings)
    assert not fits(engine, task, settings)
    text = "".join(turn.text for turn in conversation(bind(short.schema, short.prompt).parts))
    assert "Line 0 of" in text
    assert "Line 1999 of" in text
    assert "Line 1000 of" not in text
    assert "Which?" in text
    plan = engine.schema(short.schema).prompt(short.prompt).plan(settings)
    window = engine.model.context_length - settings.max_new_tokens
    assert plan.total_tokens > 0.9 * window
    engine.close()
    report = measured(folder, file, variants(["anchored"]))
    assert (report["shortened"], report["left_out"], report["prompts"]) == (["long"], [], 1)


def test_pairs_show_what_intervals_of_means_hide() -> None:
    """280 prompts, 8 lost and 1 won: the reviewer's case, by hand."""
    other = [1.0] * 230 + [0.0] * 50
    side = [*other]
    side[:8] = [0.0] * 8
    side[-1] = 1.0
    found = paired(side, other, seed=3)
    assert (found["wins"], found["losses"], found["ties"]) == (1, 8, 271)
    assert found["difference"] == pytest.approx(-2.5)
    assert found["difference_low"] < -2.5 < found["difference_high"] < 0
    assert found["p"] == pytest.approx(2 * (1 + 9) / 2**9)
    assert found["ratio"] == pytest.approx(223 / 230)
    assert found["ratio_low"] < 223 / 230 < found["ratio_high"] < 1
    alone, against = interval(side), interval(other)
    assert alone[1] > against[0]  # the means' own intervals overlap
    assert paired(side, other, seed=3) == found
    assert paired(side, other, seed=4) != found


def test_nothing_is_divided_by_a_side_without_points() -> None:
    found = paired([0.0, 1.0], [0.0, 0.0])
    assert (found["ratio"], found["ratio_low"], found["ratio_high"]) == (None, None, None)
    assert found["wins"] == 1
    with pytest.raises(PromptCacheError, match="each prompt needs both"):
        paired([1.0], [1.0, 1.0])


def sample(name: str, score: float | None, kl: float, tokens: int, flips: int = 0) -> dict[str, object]:
    return {
        "task": name,
        "documents": 8 if name < "c" else 2,
        "kind": "stated",
        "position": None,
        "chosen_on": name < "c",
        "score": score,
        "answer_tokens": tokens,
        "kl_answer": kl,
        "kl_worst": 2 * kl,
        "flips": flips,
        "same_answer": not flips,
        "first_token_agrees": True,
        "kl_first_token": 0.0,
        "computed_share": 0.1,
        "repaired_share": 0.0,
        "ttft_ms": 10.0 * tokens,
    }


def test_groups_and_several_files_together() -> None:
    plain = [sample("a", 1.0, 0.0, 10), sample("c", 1.0, 0.0, 10)]
    other = [sample("a", 0.0, 0.0, 10), sample("c", 1.0, 0.1, 10)]
    by_choice = grouped(other, plain)["by_choice"]
    assert {k: v["score"] for k, v in by_choice.items()} == {"weights chosen on these": 0, "the others": 1}
    report = {"results": [{"name": "uncached", "samples": plain}, {"name": "anchored", "samples": other}]}
    uncached, anchored = pooled([report, report])
    assert (uncached["name"], anchored["name"]) == ("uncached", "anchored")
    assert anchored["paired"]["losses"] == 2
    assert anchored["prompts"] == 4


def test_the_questions_by_which_weights_were_chosen_are_marked() -> None:
    marked = [task for task in read_tasks(own_questions()) if task.chosen_on]
    assert len(marked) == 60
    assert {task.documents for task in marked} == {8}


@pytest.mark.long
def test_lines_of_pml_are_run_and_grouped(tmp_path: Path) -> None:
    """A schema and a prompt in place of a question; figures by kind and by the third the answer stands in."""
    folder = save_tiny(tmp_path / "model")
    schema = "<schema name='s'><module name='a'>one</module><module name='b'>two</module></schema>"
    prompt = "<prompt schema='s'><a/><b/><user>What?</user></prompt>"
    records = [
        {
            "schema": schema,
            "prompt": prompt,
            "answers": "x",
            "metric": "mentions",
            "kind": kind,
            "position": at,
        }
        for kind, at in (("stated", 0.0), ("stated", 0.5), ("unstated", None))
    ]
    file = tmp_path / "q.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    report = measured(folder, file, variants(["anchored"]))
    uncached = report["results"][0]
    assert {k: v["prompts"] for k, v in uncached["by_kind"].items()} == {"stated": 2, "unstated": 1}
    assert {k: v["prompts"] for k, v in uncached["by_position"].items()} == {"first": 1, "middle": 1}
    assert all(
        0 <= v["score_low"] <= v["score"] <= v["score_high"] <= 1 for v in uncached["by_kind"].values()
    )


def tiny_questions(folder: Path, name: str = "q") -> Path:
    file = folder / f"{name}.jsonl"
    record = {"documents": ["one thing", "and another"], "answers": ["x"], "metric": "f1"}
    lines = (json.dumps({"input": f"Is it {n}?", **record}) for n in range(2))
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def unclocked(measured: dict[str, Any]) -> list[dict[str, Any]]:
    results = [result for report in measured["files"].values() for result in report["results"]]
    return [{k: v for k, v in one.items() if k != "ttft_ms"} for r in results for one in r["samples"]]


@pytest.mark.long
def test_a_stopped_run_resumes_and_other_samples_are_ignored(tmp_path: Path) -> None:
    model, out = ModelOptions(str(save_tiny(tmp_path / "model"))), tmp_path / "out"
    files = read_questions([tiny_questions(tmp_path, "a"), tiny_questions(tmp_path, "b")])
    wanted = [Variant("anchored"), Variant("anchored", "impact:0.15")]
    whole = quality.run(model, files, wanted)

    def stop(done: int, _total: int, _what: str) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quality.run(model, files, wanted, folder=out, progress=stop)
    with (out / "samples.jsonl").open("a", encoding="utf-8") as file:
        file.write('["x", 0, "way')  # a kill can leave this
    assert unclocked(quality.run(model, files, wanted, folder=out)) == unclocked(whole)
    journal = (out / "samples.jsonl").read_bytes()
    again = quality.run(model, files, wanted, folder=out)
    assert unclocked(again) == unclocked(whole)
    assert (out / "samples.jsonl").read_bytes() == journal, "nothing is measured twice"
    shorter = quality.run(model, files, wanted, folder=out, most_tokens=500)
    assert unclocked(shorter) == unclocked(whole)
    assert len((out / "samples.jsonl").read_bytes()) > len(journal), "another setup has samples of its own"
    default = {result["name"]: result for result in whole["files"]["a"]["results"]}
    assert default["default"]["kl_answer"] == default["anchored impact:0.15"]["kl_answer"]
    assert "all files, 4 prompts" in words(whole, by_group=False)
    assert set(charts(whole)) == {"score", "frontier", "ttft"}


def test_labelled_texts_are_tasks_spread_over_their_labels(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    lines = [
        {"split": split, "text": f"{label} {n}", "label": label}
        for label in ("pay", "play")
        for n, split in enumerate(("train", "train", "test", "test"))
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    tasks = read_tasks(file, limit=3)
    assert [task.answers for task in tasks] == [("pay",), ("play",), ("pay",)]
    assert tasks[0].classes == ("pay", "play")
    assert (tasks[0].metric, tasks[0].documents) == ("accuracy", 2)
    file.write_text('{"split": "test", "text": "x", "label": "pay"}\n', encoding="utf-8")
    with pytest.raises(PromptCacheError, match="the label 'pay' has no example of the split 'train'"):
        read_tasks(file)
