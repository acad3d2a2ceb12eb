"""Fields that request bodies have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from app.server.core.answer_formats import FIELDS
from app.server.core.pml_requests import PromptCache
from app.server.core.request import MOST_DRAWS, setting
from app.server.core.tool_use import forced_of, require_one_call, strict_of
from app.server.http.bodies import Many, Whole
from app.server.http.errors import unsupported
from app.server.http.shapes import optional
from app.server.openai.wire import CacheOptions, Wire
from engine.prompt.conversation.tools import Tools

MESSAGES = "The conversation: text turns in order, with tool calls and their results."
MODEL = "The name of the model, or an alias; `GET /v1/models` lists them."
SALT = "Requests share cached segments only within the same salt."
STREAM_OPTIONS = "Options of a stream; rejected without `stream`."
DRAWS = f"How many answers to draw, 1 to {MOST_DRAWS}; answer number i is drawn with `seed` + i."
EFFORT = "How much to reason before the answer, if the chat template has a variable for it, such as `none`."
FORMAT = "The format of the answer: `text`, `json_object`, or `json_schema` with a JSON Schema."
TOOL_CHOICE = (
    "`auto`, `none` to omit the tools, or a choice that forces one call: of any tool, or of a named one."
)


class PromptBody(Wire):
    """A request with a prompt."""

    model: str = Field(description=MODEL)
    prompt_cache: PromptCache | None = optional("A schema that precedes the messages.")


class ToolsBody(PromptBody):
    """A request that may have tools."""

    tools: Many[dict[str, Any]] | None = optional("Functions that the model may call, in its chat template.")
    chat_template_kwargs: dict[str, Any] | None = optional("Template variables like `enable_thinking`.")


class SampledBody(PromptBody):
    """A request for a sampled answer."""

    temperature: float | None = setting("temperature")
    top_p: float | None = setting("top_p")
    top_k: Whole | None = setting("top_k")
    min_p: float | None = setting("min_p")
    repetition_penalty: float | None = setting("repetition_penalty")
    presence_penalty: float | None = setting("presence_penalty")
    frequency_penalty: float | None = setting("frequency_penalty")
    logit_bias: dict[str, float] | None = optional("Biases from -100 to 100, by the number of the token.")
    seed: Whole | None = optional("Sampling seed, a 64-bit whole number. Default: random.")
    stream: bool | None = optional("Whether to stream the answer as server-sent events.", False)
    include: Many[str] | None = optional("`prompt_cache` adds the cache report; OpenAI's values are ignored.")
    cache_salt: str | None = optional(SALT)


class GeneratingBody(SampledBody):
    """A request for an answer, in OpenAI's API."""

    understood: ClassVar[tuple[str, ...]] = FIELDS
    structured_outputs: dict[str, Any] | None = optional(
        "vLLM's format of the answer: `json`, `regex`, `choice`, `grammar` or `json_object`."
    )
    stop: str | Many[str] | None = optional("One to four texts. The answer ends before the first of them.")


class ConversingBody(GeneratingBody, ToolsBody):
    """A request of a conversation, in OpenAI's API."""

    tool_choice: str | dict[str, Any] | None = optional(TOOL_CHOICE)
    parallel_tool_calls: bool | None = optional("`false` is rejected if there are tools and no forced call.")
    prompt_cache_options: CacheOptions | None = optional("Cache options.")
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = optional(
        "`24h` stores the whole prompt for a day."
    )

    def offered(self) -> list[dict[str, Any]]:
        """Returns the definitions of tools in the prompt."""
        return (self.tools or []) if self.tool_choice != "none" else []

    def forced(self, tools: Tools) -> tuple[str, ...]:
        """Returns the tools of which the answer must call one; raises ApiError for an unknown choice."""
        choice, forced = self.tool_choice, tuple[str, ...]()
        if choice == "required":
            forced = forced_of(tools, None, "tool_choice")
        elif isinstance(choice, dict) and choice.get("type") == "function":
            function = choice.get("function", choice)
            name = function.get("name", "") if isinstance(function, dict) else function
            forced = forced_of(tools, name, "tool_choice")
        elif choice not in (None, "none", "auto"):
            raise unsupported("tool_choice", "it must be none, auto, required, or the name of a function.")
        require_one_call(bool(tools) and self.parallel_tool_calls is False, forced, "parallel_tool_calls")
        return forced

    @property
    def strict(self) -> tuple[str, ...]:
        """The tools whose calls keep to their parameters; raises ApiError if that cannot be enforced."""
        return strict_of(self.offered())

    @property
    def compared(self) -> str | None:
        """The id of the answer with which the request is compared."""
        return self.prompt_cache_options.comparison_response_id if self.prompt_cache_options else None

    @property
    def warms(self) -> bool:
        """Whether nothing is to be answered."""
        return bool(self.prompt_cache_options and self.prompt_cache_options.prewarm)
