"""Relevance of texts, in the forms of vLLM: reranking, scores of pairs, and scores of given tokens."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.server.core.request import Asked, Block, Message, settings_from
from app.server.core.service import Service
from app.server.core.usage import Usage
from app.server.decisions.asking import REFUSED, AskingBody, asked_of, decided
from app.server.decisions.decisions import Probability
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of
from app.server.http.openapi_responses import errors
from app.server.http.shapes import Count, Reply, optional
from app.server.http.streams import gone
from app.server.openai.bodies import PromptBody
from app.server.openai.chat import caller_of
from app.server.openai.wire import Wire, refuse_what_is_not_built
from engine.base.errors import SettingsError
from engine.base.events import Listener
from engine.decisions.questions import predicate
from engine.prompt.window import TooLongError

_MOST_TEXTS = 1000
_QUESTION = "Query: {query}\n\nIs the text above relevant to this query?"


class Document(Wire):
    """A document with a text."""

    text: str = Field(description="The text.")


class RerankBody(AskingBody):
    """A request to order documents by their relevance to a query."""

    query: str = Field(description="The query.")
    documents: Many[str | Document] = Field(description="1 to 1,000 documents. Each is cached by its text.")
    top_n: Whole | None = optional("Returns this many of the most relevant documents. Default: all.")
    return_documents: bool | None = optional("Whether to return the texts.", True)


class ScoreBody(AskingBody):
    """A request for the relevance of texts to a text, or of pairs."""

    text_1: str | Many[str] = Field(description="The query, or one for each text of `text_2`.")
    text_2: str | Many[str] = Field(description="1 to 1,000 texts. Each is cached by its text.")


class GenerativeScoringBody(PromptBody):
    """A request for the probabilities of tokens after texts."""

    query: str | Many[Whole] = Field(description="A text or tokens.")
    items: Many[str] | Many[Many[Whole]] = Field(description="1 to 1,000 texts that continue the query.")
    label_token_ids: Many[Whole] = Field(description="The tokens to compare; the first one is scored.")
    apply_softmax: bool = optional("Whether the score is the share of the first token among all.", True)
    item_first: bool = optional("Whether an item precedes the query.", False)
    add_special_tokens: bool = optional(
        "Whether the first text begins as the model's tokenizer begins a text.", True
    )


class RankUsage(Reply):
    """The tokens of the request."""

    prompt_tokens: Count
    total_tokens: Count
    cached_tokens: Count

    @classmethod
    def of(cls, usage: Usage) -> RankUsage:
        """Returns the tokens of a request in this form."""
        return cls(prompt_tokens=usage.prompt, total_tokens=usage.prompt, cached_tokens=usage.read)


class RankedDocument(Reply):
    """The text of a document."""

    text: str


class Ranked(Reply):
    """A document with the probability that it is relevant."""

    index: Count
    relevance_score: Probability
    document: RankedDocument | None


class RerankReply(Reply):
    """The documents, the most relevant first."""

    id: str
    model: str
    results: list[Ranked]
    usage: RankUsage


class TextScore(Reply):
    """The score of a text."""

    index: Count
    object: Literal["score"] = "score"
    score: Probability


class ScoreReply(Reply):
    """The scores of all texts, in order."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[TextScore]
    usage: RankUsage


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post("/v1/rerank", responses=errors("openai"))
    async def rerank(body: RerankBody, request: Request) -> RerankReply:
        """Orders documents by the probability that they are relevant to a query."""
        texts = [one if isinstance(one, str) else one.text for one in body.documents]
        if body.top_n is not None and body.top_n < 1:
            raise ApiError(INVALID, f"top_n is {body.top_n}; it must be at least 1.", "top_n")
        scores, usage = await _relevant(service, [body.query], texts, "query", "documents", body, request)
        order = sorted(range(len(texts)), key=lambda number: -scores[number])
        results = [
            Ranked(
                index=number,
                relevance_score=scores[number],
                document=None if body.return_documents is False else RankedDocument(text=texts[number]),
            )
            for number in order[: body.top_n]
        ]
        identity = f"rerank-{secrets.token_hex(12)}"
        return RerankReply(id=identity, model=body.model, results=results, usage=RankUsage.of(usage))

    @router.post("/v1/score", responses=errors("openai"))
    async def create_score(body: ScoreBody, request: Request) -> ScoreReply:
        """Returns the probability that each text is relevant to a query."""
        queries = [body.text_1] if isinstance(body.text_1, str) else body.text_1
        texts = [body.text_2] if isinstance(body.text_2, str) else body.text_2
        scores, usage = await _relevant(service, queries, texts, "text_1", "text_2", body, request)
        return _score_reply(body, scores, usage)

    @router.post("/v1/generative_scoring", responses=errors("openai"))
    async def create_generative_score(body: GenerativeScoringBody, request: Request) -> ScoreReply:
        """Returns the probability of a token after each text."""
        refuse_what_is_not_built(body, service.defaults, REFUSED)
        _require_texts(len(body.items), "items")
        if not body.label_token_ids:
            raise ApiError(INVALID, "label_token_ids is empty. Send at least one token.", "label_token_ids")
        noted = request.state.noted
        noted.asks(body.model)
        service.require_model(body.model)
        engine, settings = service.engine, settings_from({}, service.defaults, "openai")
        items: Sequence[str | list[int]] = body.items

        def tokens_of(text: str | list[int]) -> list[int]:
            return engine.model.tokenize(text) if isinstance(text, str) else text

        def work(listener: Listener) -> tuple[list[float], Usage]:
            scores, read = [], 0
            for number, item in enumerate(items):
                first, last = (item, body.query) if body.item_first else (body.query, item)
                begins = body.add_special_tokens and isinstance(first, str)
                bos = engine.model.chat.text_bos if begins else None
                tokens = [*([] if bos is None else [bos]), *tokens_of(first), *tokens_of(last)]
                labels = body.label_token_ids
                try:
                    done = engine.continue_tokens(
                        tokens, settings, answer=False, labels=labels, listener=listener
                    )
                except (SettingsError, TooLongError) as error:
                    of_labels = str(error).startswith("Token") and "of the labels" in str(error)
                    field = "label_token_ids" if of_labels else f"items[{number}]"
                    raise error_of(error, prompt=field) from error
                scores.append(_share(done.labels) if body.apply_softmax else math.exp(done.labels[0]))
                read += len(tokens)
            return scores, Usage(read)

        scores, usage = await service.work(work, gone(request), noted)
        noted.done(usage)
        return _score_reply(body, scores, usage)

    return router


async def _relevant(
    service: Service,
    queries: Sequence[str],
    texts: Sequence[str],
    query_field: str,
    field: str,
    body: AskingBody,
    request: Request,
) -> tuple[list[float], Usage]:
    """Returns the probability that each text is relevant to the query, or to its own one."""
    refuse_what_is_not_built(body, service.defaults, REFUSED)
    _require_texts(len(texts), field)
    if len(queries) not in (1, len(texts)):
        words = f"There are {len(queries)} queries for {len(texts)} texts; send one, or one for each text."
        raise ApiError(INVALID, words, query_field)
    if not all(query.strip() for query in queries):
        raise ApiError(INVALID, "A query has no text.", query_field)
    caller = caller_of(service, request, body.cache_salt)
    states: list[Asked] = []
    for number, text in enumerate(texts):
        message = Message("user", (Block(text),))
        states.append(asked_of(body, [message], service.defaults, caller, f"{field}[{number}]"))
    questions = [[predicate(_QUESTION.format(query=query))] for query in queries]
    asks = zip(states, questions * len(texts) if len(queries) == 1 else questions, strict=True)
    answers, usage = await decided(service, [*asks], [query_field], body, request)
    return [answer.probabilities[0] for (answer,) in answers], usage


def _require_texts(count: int, field: str) -> None:
    if not 1 <= count <= _MOST_TEXTS:
        raise ApiError(INVALID, f"There are {count} texts; send 1 to {_MOST_TEXTS:,}.", field)


def _share(logprobs: Sequence[float]) -> float:
    """The probability of the first token among all."""
    return 1 / sum(math.exp(min(logprob - logprobs[0], 700.0)) for logprob in logprobs)


def _score_reply(body: PromptBody, scores: Sequence[float], usage: Usage) -> ScoreReply:
    data = [TextScore(index=number, score=score) for number, score in enumerate(scores)]
    return ScoreReply(
        id=f"score-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        data=data,
        usage=RankUsage.of(usage),
    )
