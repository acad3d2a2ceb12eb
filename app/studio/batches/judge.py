"""Grades the answers of a batch with a model: the loaded one, or one of a server on this machine.

The command line and the studio share the judges.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.studio.batches.batch import Batch, Grade
from app.studio.model.local_server import ask, server_at
from app.studio.web.jobs import Job
from engine.base.errors import ClosedError, PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.pml import Schema
from engine.rows.evaluations import messages_of

if TYPE_CHECKING:
    from engine import Engine

TEMPLATE = """Grade the answer with a whole number from 0 (wrong or useless) to 10 (right and complete).
Reply with the number only.

Question: {question}

Answer: {answer}

Grade:"""
BEST = 10  # the number of a perfect answer
REPLY = RunSettings(max_new_tokens=400)  # models that reason need room before the number
REPLY_SECONDS = 600.0
_FIELD = re.compile(r"\{(question|prompt|answer)\}")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")

Replies = Generator[tuple[int, str | Exception], None, None]
Judge = Callable[[Sequence[str], Callable[[], bool]], Replies]
"""Yields the reply to each prompt, or its error, by the index of the prompt and in any order.

The function that it gets returns True once the replies are no longer wanted.
"""


def grade_of(reply: str | Exception) -> Grade:
    """Returns the grade in a reply: its first number, from 0 to 10, after any reasoning."""
    if isinstance(reply, Exception):
        return {"score": None, "reply": str(reply)}
    found = _NUMBER.search(_THOUGHT.sub("", reply))
    number = float(found[0]) if found else -1.0
    return {"score": number / BEST if 0 <= number <= BEST else None, "reply": reply.strip()}


def require_template(template: str) -> None:
    """Checks that the judge's prompt contains the answer; raises PromptCacheError if not."""
    if "{answer}" not in template:
        raise PromptCacheError("The judge's prompt has no {answer}. Write it where the answer belongs.")


def grade_batch(
    batch: Batch, template: str, judge: Judge, keep: Callable[[int, Mapping[str, Grade]], object], job: Job
) -> Batch:
    """Grades all answers of a batch. Equal answers of a row are graded once.

    Args:
        batch: the batch, which has ended.
        template: the judge's prompt, with `{question}`, `{prompt}` and `{answer}`.
        judge: gets the replies.
        keep: called with a row's number and the grades of its sides.
        job: reports progress and stops the work.
    """
    asked = list(_asked(batch, template))
    job.progress(0, len(asked), "")
    done = 0
    with contextlib.closing(judge([text for _, _, text in asked], lambda: job.stopping)) as replies:
        for index, reply in replies:
            number, sides, _ = asked[index]
            keep(number, dict.fromkeys(sides, grade_of(reply)))
            done += 1
            job.progress(done, len(asked), "")
    job.progress(done, len(asked), "")  # raises if the job was stopped
    return batch


def judge_prompt(template: str, question: str, schema: Schema, source: str, answer: str) -> str:
    """Returns the judge's prompt for an answer; `source` is the prompt that was answered."""
    values = {"question": question, "answer": answer}
    if "{prompt}" in template:
        messages = messages_of(schema, source)
        values["prompt"] = "\n\n".join(message["content"] for message in messages)
    return _FIELD.sub(lambda match: values[match[1]], template)


def _asked(batch: Batch, template: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """The judge's prompts, each with the row's number and the sides that have this answer."""
    for number, result in sorted(batch.results.items()):
        question, plan = batch.shown(number)["question"], batch.plan
        same = result.comparison.get("same_text")
        for sides in [tuple(result.sides)] if same else [(side,) for side in result.sides]:
            source, answer = plan.source(plan.rows[number]), result.sides[sides[0]].text
            yield number, sides, judge_prompt(template, question, plan.schema, source, answer)


def model_judge(engine: Engine) -> Judge:
    """Returns the loaded model as a judge."""
    from engine import Answer, Block, Message

    def replies(texts: Sequence[str], stopping: Callable[[], bool]) -> Replies:
        prompts = ((engine.conversation([Message("user", (Block(text),))]), REPLY) for text in texts)
        answers = engine.answer_all(prompts, as_they_end=True, stopped=stopping)
        with contextlib.closing(answers):
            for index, outcome in answers:
                if isinstance(outcome, ClosedError):
                    raise outcome
                assert isinstance(outcome, Answer | Exception)
                yield index, outcome.text if isinstance(outcome, Answer) else outcome

    return replies


def server_judge(url: str, model: str) -> Judge:
    """Returns a server with OpenAI's API on this machine as a judge; model "" is its first one.

    Raises:
        PromptCacheError: the URL is not valid, or names another machine.
    """
    server = server_at(url)

    def replies(texts: Sequence[str], stopping: Callable[[], bool]) -> Replies:
        name = model or ask(server, "/models", lambda told: str(told["data"][0]["id"]), None, REPLY_SECONDS)
        for index, text in enumerate(texts):
            if stopping():
                return
            body = {
                "model": name,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": REPLY.max_new_tokens,
                "temperature": 0,
            }
            yield index, ask(server, "/chat/completions", _reply, body, REPLY_SECONDS)

    return replies


def _reply(told: Any) -> str:
    return str(told["choices"][0]["message"]["content"] or "")
