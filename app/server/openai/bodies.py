"""What bodies of OpenAI's endpoints have in common."""

from __future__ import annotations

from typing import Any, Literal

from app.server.core.pml_requests import PromptCache
from app.server.core.tool_use import require_free_choice
from app.server.http.bodies import Many, Whole
from app.server.openai.wire import CacheOptions, Wire


class GeneratingBody(Wire):
    """A request for something that is generated."""

    model: str
    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    repetition_penalty: float | None = None
    seed: Whole | None = None
    stop: str | Many[str] | None = None
    stream: bool | None = False
    include: Many[str] | None = None
    cache_salt: str | None = None
    prompt_cache: PromptCache | None = None


class ConversingBody(GeneratingBody):
    """The same of a conversation, which may have tools, and marks."""

    tools: Many[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None

    def offered(self) -> list[dict[str, Any]]:
        """Returns the tools in the prompt; raises ApiError if the request forces a choice."""
        tools = (self.tools or []) if self.tool_choice != "none" else []
        require_free_choice(self.tool_choice not in (None, "none", "auto"), False, "tool_choice")
        single = bool(tools) and self.parallel_tool_calls is False
        require_free_choice(False, single, "parallel_tool_calls")
        return tools

    @property
    def warms(self) -> bool:
        """Whether nothing is to be answered."""
        return bool(self.prompt_cache_options and self.prompt_cache_options.prewarm)
