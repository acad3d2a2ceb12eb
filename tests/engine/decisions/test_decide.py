"""Probabilities of options equal those of one pass per option, on every family and both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.decisions.asked import QuestionTooLongError, ask, label_tokens, overlap
from engine.decisions.decide import MOST_ROWS
from engine.decisions.questions import (
    Option,
    Question,
    QuestionError,
    choice,
    orders,
    predicate,
    require_questions,
    score,
    wording,
)
from engine.decisions.readout import Readout
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError
from engine.prepared import PreparedPrompt
from engine.prompt.window import TooLongError
from engine.runtime import Workshop
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of
from tests.engine.tiny import FAMILIES

SCHEMA = """<schema name="s">
  <system>You plan. <module name="a">alpha text</module><module name="b">beta words</module></system>
</schema>"""
PLAIN = '<schema name="p">Start. <module name="a">alpha text</module><module name="b">beta</module></schema>'
QUESTIONS = [
    predicate("Is it alpha?", "first"),
    choice("Which is it?", [Option("al", "the first"), "alpha", "beta"], "which"),
    choice("Which is it not?", ["alpha", "beta"], "not"),
    score("How much?", ["none", "some", "all"], "level"),
]
DIGITS = " ".join(map(str, range(40)))
FEW = ("llama-gqa", "gemma2", "mistral", "gpt2", "bloom")


def workshop_of(engine: Engine) -> Workshop:
    return Workshop(engine.segment_cache, engine.computing, engine.idle)


def one_by_one(engine: Engine, prompt: PreparedPrompt, question, order, settings, side) -> list[float]:
    """The summed log-probability of each label, each in a pass of its own, in the question's order."""
    tokenized = ask(prompt.tokenized, wording(question, order, list_options=True))
    whole = PreparedPrompt(prompt.schema, tokenized, 0.0, workshop_of(engine))
    labels = label_tokens(tokenized, question)
    ends = sorted(engine.model.end_tokens)
    sums = []
    for label in labels:
        table = whole.reading([*label, ends[0]], settings, side).log_probabilities
        total = sum(float(table[at, token]) for at, token in enumerate(label))
        if overlap(labels):
            total += float(table[len(label), ends].logsumexp(-1))
        sums.append(total)
    return sums


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_scores_equal_one_pass_per_label(family: str, chat: bool, tmp_path: Path) -> None:
    with Engine(model_of(family, chat=chat), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA if chat else PLAIN).prompt("<prompt><a/><b/>It is so.</prompt>")
        settings = RunSettings()
        for side in ("cached", "uncached"):
            decided = prompt.decide(QUESTIONS, Readout(permutations=2), settings, mode=side)
            for question, answer in zip(QUESTIONS, decided.answers, strict=True):
                both = [
                    one_by_one(engine, prompt, question, order, settings, side)
                    for order in orders(len(question.options), 2)
                ]
                want = [sum(column) / 2 for column in zip(*both, strict=True)]
                assert answer.scores == pytest.approx(want, abs=2e-3), (side, question.name)
                assert sum(answer.probabilities) == pytest.approx(1)
        assert decided.tokens["from_cache"] == 0


def test_a_stored_prompt_is_computed_once_for_all_questions(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><a/><b/>It is so.</prompt>")
        first = prompt.decide(QUESTIONS)
        again = prompt.decide(QUESTIONS)
    assert first.tokens["encoded"] > 0 == again.tokens["encoded"]
    assert again.tokens["from_cache"] > 20
    assert again.answers == first.answers
    rows = sum(len(wording(q, range(len(q.options)), list_options=True)) for q in QUESTIONS)
    assert again.tokens["question_rows"] < rows + 4 * 60  # each question once, not once for each option


def test_many_questions_take_several_passes_with_equal_scores(tmp_path: Path) -> None:
    many = [predicate(f"Is number {number} the right one here?", f"q{number}") for number in range(40)]
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><b/>It is so.</prompt>")
        steps = []
        together = prompt.decide(many, progress=lambda done, total, what: steps.append((done, total)))
        alone = [prompt.decide([question]).answers[0] for question in many[::13]]
    assert max(total for _, total in steps) > 1
    for answer, other in zip(together.answers[::13], alone, strict=True):
        assert answer.scores == pytest.approx(other.scores, abs=2e-3)


@pytest.mark.parametrize("family", ["llama-gqa", "bloom"])
def test_a_long_question_is_computed_once_for_all_its_options(family: str, tmp_path: Path) -> None:
    long = choice("Which is it?", [f"number {number} {'of many' * (number % 3)}" for number in range(60)])
    with Engine(model_of(family), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><b/>It is so.</prompt>")
        decided = prompt.decide([*QUESTIONS, long])
        want = one_by_one(engine, prompt, long, range(60), RunSettings(), "cached")
        short = prompt.decide(QUESTIONS)
    tokenized = ask(prompt.tokenized, wording(long, range(60), list_options=True))
    rows = len(tokenized.planned(None).plan.token_ids)
    assert rows > MOST_ROWS
    assert decided.answers[-1].scores == pytest.approx(want, abs=2e-3)
    assert decided.tokens["question_rows"] < 2 * rows + short.tokens["question_rows"] + 20 * 60
    for answer, other in zip(decided.answers, short.answers, strict=False):
        assert answer.scores == pytest.approx(other.scores, abs=2e-3)


@pytest.mark.parametrize("repair", ["query:0.3", "impact:0.3"])
def test_no_question_changes_the_answers_to_the_others(repair: str, tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        longer = SCHEMA.replace("text", f"text {DIGITS}").replace("words", f"words {DIGITS[::-1]}")
        prompt = engine.schema(longer).prompt("<prompt><b/><a/>It is so.</prompt>")
        together, turned = (prompt.decide(many, repair=repair) for many in (QUESTIONS, QUESTIONS[::-1]))
        alone = [prompt.decide([question], repair=repair).answers[0] for question in QUESTIONS]
    for answer, *others in zip(together.answers, turned.answers[::-1], alone, strict=True):
        for other in others:
            assert answer.scores == pytest.approx(other.scores, abs=2e-3)


def test_calibration_keeps_modules_and_replaces_new_text(tmp_path: Path) -> None:
    question = choice("Which?", ["one", "two"])
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        schema = engine.schema(SCHEMA)
        prompt, free = (schema.prompt(f"<prompt><a/>{text}</prompt>") for text in ("It is so.", "N/A"))
        plain = prompt.decide([question]).answers[0].scores
        alone = free.decide([question], mode="uncached").answers[0].scores
        calibrated = prompt.decide([question], Readout(calibrate=True)).answers[0].scores
    assert calibrated == pytest.approx(
        [one - other for one, other in zip(plain, alone, strict=True)], abs=2e-3
    )


def test_calibration_without_new_text_subtracts_the_question_alone(tmp_path: Path) -> None:
    question = choice("Which?", ["one", "two"])
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><a/></prompt>")
        plain = prompt.decide([question]).answers[0]
        calibrated = prompt.decide([question], Readout(calibrate=True)).answers[0]
        empty = engine.schema('<schema name="e"></schema>').prompt("<prompt><user>x</user></prompt>")
        alone = one_by_one(
            engine,
            PreparedPrompt(empty.schema, empty.tokenized.with_parts([]), 0.0, workshop_of(engine)),
            question,
            (0, 1),
            RunSettings(),
            "uncached",
        )
    want = [score - other for score, other in zip(plain.scores, alone, strict=True)]
    assert calibrated.scores == pytest.approx(want, abs=2e-3)


def test_calibration_reads_stored_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        network = type(engine.model.network)
        for name in ("forward", "forward_tree"):
            own = getattr(network, name)

            def counted(self: Any, token_ids: Any, *more: Any, own: Any = own, **named: Any) -> Any:
                rows.append(len(token_ids))
                return own(self, token_ids, *more, **named)

            monkeypatch.setattr(network, name, counted)
        schema = engine.schema(SCHEMA.replace("text", f"text {DIGITS}"))
        prompt = schema.prompt("<prompt><a/>It is so.</prompt>")
        plain = prompt.decide(QUESTIONS[:1])
        rows.clear()
        prompt.decide(QUESTIONS[:1], Readout(calibrate=True))
    assert plain.tokens["encoded"] > len(DIGITS)
    assert sum(rows) < 2 * (plain.tokens["prompt_computed"] + plain.tokens["question_rows"] + 1)


@pytest.mark.parametrize("prompt", ["<prompt/>", "<prompt>  </prompt>", "<prompt><user> </user></prompt>"])
def test_a_prompt_without_text_is_refused(prompt: str, tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prepared = engine.schema('<schema name="e"/>').prompt(prompt)
        with pytest.raises(PromptError, match="E503"):
            prepared.decide(QUESTIONS)


def test_rows_that_differ_in_new_text_share_one_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        network = engine.model.network
        tree = type(network).forward_tree

        def counted(self: Any, token_ids: Any, *more: Any) -> Any:
            passes.append(len(token_ids))
            return tree(self, token_ids, *more)

        monkeypatch.setattr(type(network), "forward_tree", counted)
        schema, question = engine.schema(SCHEMA), choice("Which?", ["one", "two"])

        def scores(text: str, side: Any = "cached", **readout: Any) -> tuple[tuple[float, ...], int]:
            passes.clear()
            prompt = schema.prompt(f"<prompt><a/>{text}</prompt>")
            decided = prompt.decide([question], Readout(calibrate=True, **readout), mode=side)
            return decided.answers[0].scores, len(passes)

        alone = {text: scores(text) for text in ("It is so.", "Not at all, never.")}
        assert [count for _, count in alone.values()] == [2, 1], "the second one computes only itself"
        assert scores("It is so.", "uncached")[1] == 2, "the time of a side has its own calibration"
        assert scores("It is so.", per_token=True)[1] == 2
        assert scores("It is so.", permutations=2)[1] == 2
    with Engine(model_of("llama-gqa"), Store.open(tmp_path / "other")) as engine:
        schema = engine.schema(SCHEMA)
        assert scores("Not at all, never.")[0] == pytest.approx(alone["Not at all, never."][0], abs=1e-5)


def test_a_temperature_flattens_and_keeps_the_order(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><a/>It is so.</prompt>")
        sharp, flat = (prompt.decide(QUESTIONS, Readout(temperature=t)) for t in (1.0, 50.0))
    for one, other in zip(sharp.answers, flat.answers, strict=True):
        assert one.best == other.best
        assert other.confidence < one.confidence


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: predicate(" "), "no instructions"),
        (lambda: choice("Which?", ["one"]), "1 option;"),
        (lambda: choice("Which?", ["one", " one "]), "'one' twice"),
        (lambda: choice("Which?", ["one", ""]), "without text"),
        (lambda: choice("Which?", [str(n) for n in range(256)]), "256 options"),
        (lambda: score("How?", ["low"], "mood"), "question 'mood' has 1 option"),
    ],
)
def test_questions_that_cannot_be_asked_say_why(make, says: str) -> None:
    with pytest.raises(QuestionError, match=says):
        make()


@pytest.mark.parametrize(
    ("questions", "column"),
    [
        ([predicate("Is it?", "question 2"), predicate("Is it not?")], "question 2"),
        ([score("How?", ["low", "high"], "q"), predicate("Is it?", "q level")], "q level"),
        ([predicate("Is it?", "q"), predicate("Is it?", "q: yes")], "q: yes"),
    ],
)
def test_two_questions_with_one_column_are_refused(questions: list[Question], column: str) -> None:
    with pytest.raises(QuestionError, match=f"the column '{column}'"):
        require_questions(questions)


def test_a_long_question_is_named_and_a_long_prompt_is_not(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        schema = engine.schema(SCHEMA)
        with pytest.raises(QuestionTooLongError, match="with question 2 has") as caught:
            schema.prompt("<prompt>Hi.</prompt>").decide([QUESTIONS[0], predicate("a" * 3000)])
        assert caught.value.number == 1
        with pytest.raises(TooLongError) as of_prompt:
            schema.prompt(f"<prompt>{'a' * 3000}</prompt>").decide(QUESTIONS)
    assert not isinstance(of_prompt.value, QuestionTooLongError)


def test_space_around_an_option_is_no_part_of_the_question() -> None:
    assert choice("Which?", [" one", "two\n"]) == choice("Which?", ["one", "two"])
    assert score("How?", ["low ", " high"]) == score("How?", ["low", "high"])


def test_orders_put_each_option_first_equally_often() -> None:
    assert orders(3, 3) == [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    assert orders(2, 9) == [(0, 1), (1, 0)]
    assert len(orders(3, 64)) == 6
