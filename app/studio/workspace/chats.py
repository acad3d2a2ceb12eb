"""Chats on the Author page: asks, forks, lists and deletes them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict

from app.studio.chat.answering import Answering
from app.studio.chat.store import ChatStore, ChatSummary
from app.studio.chat.turns import OPENING, Chat, Exchange, clean, has_answers, new_exchange
from app.studio.documents.documents import first_error
from app.studio.documents.drafts import Workspace
from app.studio.documents.requests import Count, Nothing, Shelve, Size, Texts, Words, request
from app.studio.documents.workspace_opener import Opened
from app.studio.history.runner import model_of
from app.studio.runs.run_state import Run
from app.studio.runs.settings import PageSettings
from app.studio.web.digests import digest, digest_of_schema
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.pml import PromptError, Schema, read_picks
from engine.pml.edit.question_text import question_of
from engine.prompt.window import TooLongError

if TYPE_CHECKING:
    from engine import Engine, PreparedPrompt

_EMPTY = "The message is empty. Write a question."


@request
class OneChat:
    """A stored chat."""

    id: Words


@request
class OneTurn(OneChat):
    """An exchange of a stored chat."""

    exchange: Words


@request
class RestoreChat(Shelve):
    """A chat whose documents to open."""

    id: Words


@request
class GoOn(Texts):
    """A stored chat, and the documents to go on with."""

    id: Words


@request
class ChatOpening:
    """The first exchange of a new chat: the cached answer of a run of its prompt."""

    answer: Words
    model: Words
    ttft_ms: Size | None = None
    from_cache: Count | None = None
    computed: Count | None = None
    generated: Count = 0


@request
class AskChat(Texts):
    """A question.

    Attributes:
        key: the key of the new job, which becomes the id of the exchange.
        id: the chat; "" begins one with these documents.
        parent: the exchange before the question; "" for none.
        settings: run settings.
        opening: the first exchange of a new chat.
    """

    key: Words
    id: Words = ""
    parent: Words = ""
    question: Words
    settings: Mapping[str, Any] = field(default_factory=dict)
    opening: ChatOpening | None = None


class ChatTexts(TypedDict):
    """Digests of a chat's documents."""

    schema: str
    prompt: str


class ChatFrame(TypedDict):
    """A chat with its documents' digests, their picked modules, and the question of their prompt."""

    id: str
    name: str
    of: ChatTexts
    modules: list[str]
    question: str
    leaf: str
    exchanges: list[Exchange]


class ChatsHeld(TypedDict):
    """All chats, the latest first, and the maximum number of them."""

    chats: list[ChatSummary]
    most: int


class AskedChat(TypedDict):
    """The chat of a question, and the job that answers it."""

    chat: ChatFrame
    job: JobState[Annotated[Json, JsonOf(Exchange)]]


class ChatPrompt(TypedDict):
    """A prompt with the turns of a chat."""

    prompt: str


class DeletedChat(TypedDict):
    """The id of a deleted chat."""

    id: str


class Chats(Endpoints):
    """The server side of the Chat tab."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._jobs, self._library = parts, parts.jobs, parts.library
        self._chats = ChatStore(parts.database)

    @endpoint
    def list_chats(self, _request: Nothing) -> ChatsHeld:
        """Returns the stored chats."""
        return {"chats": self._chats.summaries(), "most": self._chats.most}

    @endpoint
    def preview_chat(self, request: Texts) -> ChatFrame:
        """Returns a new chat with these documents, which is not stored."""
        return self._frame(self._new("", request))

    @endpoint
    def open_chat(self, request: OneChat) -> ChatFrame:
        """Returns a stored chat."""
        return self._frame(self._chats.load(request.id))

    @endpoint
    def ask_chat(self, request: AskChat) -> AskedChat:
        """Asks a question in a new or a stored chat."""
        question = clean(request.question).strip()
        if not question:
            raise PromptCacheError(_EMPTY)
        settings = replace(PageSettings.read(request.settings), hold_conversation=True)
        with self._parts.taken() as engine:
            chat = self._chats.load(request.id) if request.id else self._begun(request)
            prompt = self._prompt(engine, chat, request.parent, question, settings)
            model = model_of(engine)
            exchange = new_exchange(request.key, request.parent, question, model["name"])
            if request.id:
                with self._chats.changing(chat.id) as stored:
                    stored.ask(exchange)
                chat = stored
            else:
                chat.ask(exchange)
                self._chats.add(chat)
            run = Run(chat.name, settings, ("cached",), model)
            job = self._jobs.start(Answering(self._chats, chat.id, exchange, run).job(prompt))
        return {"chat": self._frame(chat), "job": job.state()}

    @endpoint
    def select_turn(self, request: OneTurn) -> ChatFrame:
        """Displays the branch of an exchange, up to its latest turn."""
        with self._chats.changing(request.id) as chat:
            chat.branch(request.exchange)
            chat.leaf = chat.tip(request.exchange)
        return self._frame(chat)

    @endpoint
    def fork_chat(self, request: OneTurn) -> ChatFrame:
        """Stores the branch up to an exchange as a new chat."""
        chat = self._chats.load(request.id)
        fork = replace(
            chat, id=_new_id(), leaf=request.exchange, exchanges=self._settled(chat.branch(request.exchange))
        )
        self._chats.add(fork)
        return self._frame(fork)

    @endpoint
    def go_on_chat(self, request: GoOn) -> ChatFrame:
        """Goes on with other documents: later answers read them, with the earlier turns."""
        new = self._new("", request)
        if has_answers(new.prompt):
            raise PromptCacheError(
                "The prompt has turns of the assistant already. Begin a new chat with it instead."
            )
        with self._chats.changing(request.id) as chat:
            chat.schema, chat.prompt, chat.origin, chat.name = new.schema, new.prompt, new.origin, new.name
        return self._frame(chat)

    @endpoint
    def restore_chat(self, request: RestoreChat) -> Opened:
        """Opens a chat's documents; the open ones become a version."""
        chat, page = self._chats.load(request.id), request.page
        workspace = Workspace(
            name=chat.name,
            schema=chat.schema,
            prompt=chat.prompt,
            origin=chat.origin,
            settings=dict(page.settings),
        )
        return self._parts.desk.open(workspace, page)

    @endpoint
    def write_chat(self, request: OneTurn) -> ChatPrompt:
        """Returns the prompt of a chat with the turns up to the question of an exchange."""
        chat = self._chats.load(request.id)
        tree = self._tree(chat)
        if tree is None:
            raise PromptCacheError("The schema of this chat has errors, so the turns cannot be written.")
        *before, last = chat.branch(request.exchange)
        return {"prompt": chat.written(tree, before, last["question"])}

    @endpoint
    def delete_chat(self, request: OneChat) -> DeletedChat:
        """Deletes a chat."""
        self._chats.delete(request.id)
        return {"id": request.id}

    def _new(self, key: str, texts: Texts) -> Chat:
        """Returns a chat with these documents.

        Raises:
            PromptError: the documents have errors.
        """
        base = self._library.base_of(texts.origin)
        checked = self._parts.documents.check(texts.schema, texts.prompt, base=base)
        fault = first_error(checked.schema.diagnostics) or first_error(checked.of_prompt)
        if fault is not None:
            raise PromptError((fault,))
        if checked.schema.tree is None:
            raise PromptCacheError("There is no schema yet. Write one, or open a sample from the gallery.")
        return Chat(key, texts.schema, texts.prompt, texts.origin, checked.schema.tree.name)

    def _begun(self, request: AskChat) -> Chat:
        chat, opening = self._new(_new_id(), request), request.opening
        if opening is not None:
            tree = self._tree(chat)
            assert tree is not None
            first = new_exchange(OPENING, "", question_of(chat.prompt, tree), opening.model)
            chat.add(
                {
                    **first,
                    "answer": clean(opening.answer),
                    "state": "done",
                    "ttft_ms": opening.ttft_ms,
                    "from_cache": opening.from_cache,
                    "computed": opening.computed,
                    "generated": opening.generated,
                }
            )
        return chat

    def _prompt(
        self, engine: Engine, chat: Chat, parent: str, question: str, settings: PageSettings
    ) -> PreparedPrompt:
        """Prepares the prompt of a question.

        Raises:
            PromptCacheError: an earlier turn has no answer, or the chat is full.
            PromptError: the documents have errors, or the chat template refuses the turns.
        """
        schema = engine.schema(chat.schema, base=self._library.base_of(chat.origin))
        before = chat.branch(parent)
        if any(not exchange["answer"].strip() for exchange in before):
            raise PromptCacheError("The turn before has no answer. Ask it again first.")
        prompt = schema.prompt(chat.written(schema.tree, before, question))
        try:
            prompt.plan(settings)
        except TooLongError as error:
            raise PromptCacheError(
                f"The chat is full: with this message it has {error.tokens:,} tokens, and the model reads at "
                f"most {error.most:,}. Shorten the message, edit an earlier one, or begin a new chat."
            ) from error
        return prompt

    def _frame(self, chat: Chat) -> ChatFrame:
        tree = self._tree(chat)
        return {
            "id": chat.id,
            "name": chat.name,
            "of": {"schema": digest_of_schema(chat.schema, tree), "prompt": digest(chat.prompt)},
            "modules": list(read_picks(chat.prompt, tree).paths) if tree else [],
            "question": question_of(chat.prompt, tree) if tree else "",
            "leaf": chat.leaf,
            "exchanges": self._settled(chat.exchanges),
        }

    def _tree(self, chat: Chat) -> Schema | None:
        return self._parts.documents.schema(chat.schema, self._library.base_of(chat.origin)).tree

    def _settled(self, exchanges: list[Exchange]) -> list[Exchange]:
        """Returns exchanges, where those that nobody answers any more are stopped."""
        running = {job.key for job in self._jobs.under_way}
        return [
            {**one, "state": "stopped"} if one["state"] == "working" and one["id"] not in running else one
            for one in exchanges
        ]


def _new_id() -> str:
    return secrets.token_hex(8)
