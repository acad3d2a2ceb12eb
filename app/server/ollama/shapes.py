"""Bodies and answers of Ollama's API."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import MISSING, Field

from app.server.core.pml_requests import PromptCache
from app.server.core.request import setting
from app.server.core.usage import Report
from app.server.http.bodies import Many, Whole
from app.server.http.shapes import Count, Reply, optional
from app.server.openai.bodies import MODEL, SALT
from app.server.openai.logprobs import ScoredToken
from app.server.openai.wire import Wire

Nanoseconds = Count


class OllamaOptions(Wire):
    """Settings of an answer."""

    num_predict: Whole | None = optional("The most tokens of the answer; below 0, the server's default.")
    temperature: float | None = setting("temperature", "ollama")
    top_p: float | None = setting("top_p", "ollama")
    top_k: Whole | None = setting("top_k", "ollama")
    min_p: float | None = setting("min_p", "ollama")
    repeat_penalty: float | None = setting("repetition_penalty", "ollama")
    presence_penalty: float | None = setting("presence_penalty", "ollama")
    frequency_penalty: float | None = setting("frequency_penalty", "ollama")
    seed: Whole | None = optional("Sampling seed, a 64-bit whole number. Default: random.")
    stop: str | Many[str] | None = optional("The answer ends before the first of these texts.")
    num_ctx: Whole | None = optional("At most the context length of the model, which is always used.")


class AnsweredBody(Wire):
    """A request for an answer."""

    model: str = Field(description=MODEL)
    stream: bool | None = optional("Whether to stream the answer as lines of JSON.", True)
    format: Literal["", "json"] | dict[str, Any] | None = optional("`json`, or a JSON Schema of the answer.")
    options: OllamaOptions | None = optional("Settings of the answer.")
    keep_alive: float | str | None = optional("Ignored, because the model stays loaded.")
    logprobs: bool | None = optional("Whether to return the log-probability of each token of the answer.")
    top_logprobs: Whole | None = optional("Alternatives for each token, 0 to 20; requires `logprobs`.")
    think: bool | str | None = optional("Whether, or how much, to reason, if the chat template has that.")
    prompt_cache: PromptCache | None = optional("A schema that precedes the messages.")
    cache_salt: str | None = optional(SALT)


class OllamaMessage(Wire):
    """A message of the conversation."""

    role: str = Field(description="The role.")
    content: str | None = optional("The text.")
    images: Many[Any] | None = optional("Rejected: the model reads text.")
    tool_calls: Many[dict[str, Any]] | None = optional("The assistant's function calls.")
    tool_name: str | None = optional("The function of this result, in a message with the role `tool`.")


class OllamaChatBody(AnsweredBody):
    """A request to answer a conversation."""

    messages: Many[OllamaMessage] | None = optional(
        "The conversation. Without messages, nothing is computed."
    )
    tools: Many[dict[str, Any]] | None = optional("Functions that the model may call, in its chat template.")
    chat_template_kwargs: dict[str, Any] | None = optional("Template variables like `enable_thinking`.")


class OllamaGenerateBody(AnsweredBody):
    """A request to answer one prompt."""

    prompt: str | None = optional("The user's text. Without it, nothing is computed.")
    system: str | None = optional("The system text.")
    raw: bool | None = optional("Whether to continue the prompt without a chat template.", False)
    chat_template_kwargs: dict[str, Any] | None = optional("Template variables like `enable_thinking`.")


class OllamaEmbedBody(Wire):
    """A request to embed texts."""

    model: str = Field(description=MODEL)
    input: str | Many[str] = Field(description="A text, or a list of texts.")
    dimensions: Whole | None = optional("The number of leading dimensions to return. Default: all.")
    truncate: bool | None = optional("Ignored; a text that is too long is rejected.")


class OllamaShowBody(Wire):
    """A request to describe a model."""

    model: str = optional("The name of the model.", "")
    name: str = optional("The older name of `model`.", "")


class Progress(Reply):
    """The figures of an answer, in its last piece; durations are in nanoseconds."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load"] | MISSING = MISSING
    total_duration: Nanoseconds | MISSING = MISSING
    load_duration: Nanoseconds | MISSING = MISSING
    prompt_eval_count: Count | MISSING = MISSING
    prompt_eval_duration: Nanoseconds | MISSING = MISSING
    eval_count: Count | MISSING = MISSING
    eval_duration: Nanoseconds | MISSING = MISSING
    logprobs: list[ScoredToken] | MISSING = MISSING
    prompt_cache: Report | MISSING = MISSING


class CalledFunction(Reply):
    """A function with its arguments."""

    name: str
    arguments: dict[str, Any]


class ToolCall(Reply):
    """A function call."""

    function: CalledFunction


class AnswerMessage(Reply):
    """The assistant's message, or a part of it."""

    role: Literal["assistant"] = "assistant"
    content: str
    thinking: str | MISSING = MISSING
    tool_calls: list[ToolCall] | MISSING = MISSING


class OllamaChat(Progress):
    """The answer to a conversation, or a part of it in a stream."""

    message: AnswerMessage


class OllamaGenerated(Progress):
    """The answer to a prompt, or a part of it in a stream."""

    response: str
    thinking: str | MISSING = MISSING


class OllamaEmbeddings(Reply):
    """The embeddings of all texts, in order."""

    model: str
    embeddings: list[list[float]]
    total_duration: Nanoseconds
    load_duration: Nanoseconds = 0
    prompt_eval_count: Count


class Details(Reply):
    """Properties of a model."""

    parent_model: str = ""
    format: str
    family: str
    families: list[str]
    parameter_size: str = ""
    quantization_level: str


class OllamaModel(Reply):
    """A model."""

    name: str
    model: str
    modified_at: str
    size: Count
    digest: str
    details: Details


class OllamaModels(Reply):
    """The model under all its names."""

    models: list[OllamaModel]


class LoadedModel(OllamaModel):
    """A loaded model."""

    expires_at: str
    size_vram: Count
    context_length: Count


class LoadedModels(Reply):
    """The loaded model."""

    models: list[LoadedModel]


class ModelDescription(Reply):
    """A description of the model."""

    modelfile: str = ""
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class Version(Reply):
    """The version of Ollama whose API this is."""

    version: str
