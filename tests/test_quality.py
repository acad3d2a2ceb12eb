"""`pml bench quality`: its metrics, what it reads, and its figures on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import quality
from benchmarks.metrics import DATASETS, METRICS, score
from benchmarks.quality import Variant, interval, variants
from benchmarks.tasks import cut, own_questions, read_tasks, suite
from engine.errors import StudioError
from engine.pml import bind
from engine.pml.conversation import conversation
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


def test_some_data_sets_count_the_first_line_alone() -> None:
    assert score("f1", "\nParis\nQuestion: and", ["Paris"], dataset="triviaqa") == 1
    assert score("f1", "\nParis\nQuestion: and", ["Paris"], dataset="hotpotqa") < 1
    assert set(DATASETS.values()) <= set(METRICS)


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
    assert "A & B ." in turns[1].text
    assert "<tag> text" in turns[1].text
    assert turns[-1].text.startswith("Who & what <is> it?")
    assert len(read_tasks(file, limit=1)) == 1
    assert read_tasks(file, metric="rouge-l")[0].metric == "rouge-l"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: a line must be one JSON object"),
        ('{"input": "x", "context": "y"}', "line 2: the field 'answers' is missing"),
        ('{"input": "x", "answers": ["y"]}', "line 2: the field 'context' is missing"),
        ('{"input": "x", "context": "y", "answers": []}', "line 2: the field 'answers' is empty"),
        ('{"context": "y", "answers": ["z"], "metric": "luck"}', "line 2: the metric 'luck' is not known"),
        ('{"schema": "<schema name=\'s\'/>", "answers": ["z"]}', "line 2: the field 'prompt' is missing"),
        (
            '{"schema": "<schema name=\'s\'>", "prompt": "<prompt schema=\'s\'/>", "answers": ["z"]}',
            "line 2: its schema, line 1: E1",
        ),
    ],
)
def test_a_line_that_is_no_question_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"input": "x", "context": "y", "answers": "z"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(StudioError) as refused:
        read_tasks(file)
    assert words in str(refused.value)


def test_folders_that_hold_no_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudioError, match="no file or folder"):
        read_tasks(tmp_path / "none")
    with pytest.raises(StudioError, match="holds no task"):
        read_tasks(tmp_path)
    (tmp_path / "s.pml").write_text("<schema name='s'>")
    (tmp_path / "s.prompt.1.pml").write_text("<prompt/>")
    with pytest.raises(StudioError, match=r"s\.pml, line 1: E1"):
        read_tasks(tmp_path)


@pytest.mark.parametrize(("world", "count", "metrics"), WORLDS)
def test_the_held_out_prompts_can_all_be_asked(world: str, count: int, metrics: set[str]) -> None:
    tasks = read_tasks(suite("demo")[world])
    assert len(tasks) == count
    assert all(bind(task.schema, task.prompt).ok for task in tasks)
    assert {task.metric for task in tasks} == metrics
    assert all(task.kind for task in tasks)


def test_document_questions_know_where_their_answers_stand() -> None:
    tasks = read_tasks(own_questions())
    assert {task.documents for task in tasks} == {1, 2, 4, 8, 16}
    for task in tasks:
        stated = task.kind not in ("unstated", "comparison", "list")
        assert (task.position is not None) is stated
        assert task.position is None or 0 <= task.position < 1


def test_variants() -> None:
    assert variants(["isolated"], []) == [Variant("isolated")]
    assert [v.name for v in variants([], ["none", "link:2"])] == ["anchored", "anchored link:2"]
    assert [v.name for v in variants()][:3] == ["isolated", "anchored", "scaffold"]


def test_the_interval_holds_the_mean() -> None:
    values = [0.0] * 40 + [1.0] * 60
    low, high = interval(values)
    assert 0.48 < low < 0.6 < high < 0.72
    assert interval([1.0, 1.0]) == (1.0, 1.0)


def test_figures_on_a_tiny_model(tmp_path: Path) -> None:
    """A scaffold over the whole prompt is the uncached answer, and long prompts are left out and named."""
    folder = save_tiny(tmp_path / "model")
    file = tmp_path / "q.jsonl"
    records = [
        {"input": f"Is it {n}?", "documents": ["one thing", "and another"], "answers": ["x"]} for n in "abc"
    ]
    records.append({"input": "Long?", "context": "long " * 2000, "answers": ["x"]})
    file.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    report = quality.run(
        str(folder), read_tasks(file), variants(["scaffold", "isolated"], ["none", "link:99"])
    )
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
    assert len(by_name["isolated"]["samples"]) == 3


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
    report = quality.run(str(folder), read_tasks(file), variants(["anchored"]))
    uncached = report["results"][0]
    assert {k: v["prompts"] for k, v in uncached["by_kind"].items()} == {"stated": 2, "unstated": 1}
    assert {k: v["prompts"] for k, v in uncached["by_position"].items()} == {"first": 1, "middle": 1}
    assert all(
        0 <= v["score_low"] <= v["score"] <= v["score_high"] <= 1 for v in uncached["by_kind"].values()
    )
