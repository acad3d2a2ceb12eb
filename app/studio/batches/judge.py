"""Grades the answers of a batch with a model: the loaded one, or one of a server on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from app.studio.batches.batch import Batch, Grade
from app.studio.web.jobs import Job
from engine.base.errors import ClosedError, PromptCacheError
from engine.inference.run_settings import RunSettings
from engine.rows.evaluations import messages_of

if TYPE_CHECKING:
    from engine import Engine

TEMPLATE = """Grade the answer with a whole number from 0 (wrong or useless) to 10 (right and complete).
Reply with the number only.

Question: {question}

Answer: {answer}

Grade:"""
BEST = 10  # the number of a perfect answer
LOOPBACK = ("127.0.0.1", "localhost", "::1")
REPLY = RunSettings(max_new_tokens=400)  # models that reason need room before the number
REPLY_SECONDS = 600.0
MOST_BYTES = 1 << 20
_FIELD = re.compile(r"\{(question|prompt|answer)\}")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_SHOWN = 200  # characters of a server's error

Replies = Generator[tuple[int, str | Exception], None, None]
Judge = Callable[[Sequence[str], Job], Replies]
"""Yields the reply to each prompt, or its error, by the index of the prompt and in any order."""


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
    with contextlib.closing(judge([text for _, _, text in asked], job)) as replies:
        for index, reply in replies:
            number, sides, _ = asked[index]
            keep(number, dict.fromkeys(sides, grade_of(reply)))
            done += 1
            job.progress(done, len(asked), "")
    job.progress(done, len(asked), "")  # raises if the job was stopped
    return batch


def _asked(batch: Batch, template: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """The judge's prompts, each with the row's number and the sides that have this answer."""
    for number, result in sorted(batch.results.items()):
        values = {"question": batch.shown(number)["question"]}
        if "{prompt}" in template and result.sides:
            messages = messages_of(batch.plan.schema, batch.plan.source(batch.plan.rows[number]))
            values["prompt"] = "\n\n".join(message["content"] for message in messages)
        same = result.comparison.get("same_text")
        for sides in [tuple(result.sides)] if same else [(side,) for side in result.sides]:
            of = {**values, "answer": result.sides[sides[0]].text}
            yield number, sides, _FIELD.sub(lambda match, of=of: of[match[1]], template)  # type: ignore[misc]


def model_judge(engine: Engine) -> Judge:
    """Returns the loaded model as a judge."""
    from engine import Answer, Block, Message

    def replies(texts: Sequence[str], job: Job) -> Replies:
        prompts = ((engine.conversation([Message("user", (Block(text),))]), REPLY) for text in texts)
        answers = engine.answer_all(prompts, as_they_end=True, stopped=lambda: job.stopping)
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
        PromptCacheError: the address is not one of this machine.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        parts, host, port = urlsplit(""), "", 0
    if parts.scheme != "http" or host not in LOOPBACK or parts.username or parts.query or parts.fragment:
        raise PromptCacheError(
            "The judge must be a server on this machine. Write its base URL, such as http://127.0.0.1:8000/v1."
        )
    path = parts.path.rstrip("/")

    def replies(texts: Sequence[str], job: Job) -> Replies:
        def sent(place: str, body: Mapping[str, Any] | None, read: Callable[[Any], object]) -> str:
            return _sent(host, port, path + place, body, read)

        name = model or sent("/models", None, lambda told: told["data"][0]["id"])
        for index, text in enumerate(texts):
            if job.stopping:
                return
            message = {"role": "user", "content": text}
            body = {
                "model": name,
                "messages": [message],
                "max_tokens": REPLY.max_new_tokens,
                "temperature": 0,
            }
            read = "/chat/completions", body, lambda told: told["choices"][0]["message"]["content"]
            yield index, sent(*read)

    return replies


def _sent(
    host: str, port: int, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], object]
) -> str:
    """Sends a request, and returns a text of the response; raises PromptCacheError if there is none."""
    where = f"The judge at http://{host}:{port}{path}"
    connection = http.client.HTTPConnection(host, port, timeout=REPLY_SECONDS)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(
            "GET" if body is None else "POST", path, text, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise PromptCacheError(f"{where} does not answer ({error}). Start it, or correct its URL.") from None
    finally:
        connection.close()
    if answer.status != 200:
        shown = content.decode("utf-8", "replace")[:_SHOWN]
        raise PromptCacheError(f"{where} answers with status {answer.status}: {shown}")
    try:
        return str(read(json.loads(content)) or "")
    except (ValueError, LookupError, TypeError, RecursionError):
        raise PromptCacheError(f"{where} does not answer as OpenAI's API does.") from None
