"""The engine answers PML prompts from segments that it computes once.

It never imports the app. Names load on first use, so that `engine.pml` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from engine.base.errors import CancelledError, ModelError, PromptCacheError, SettingsError, StoreError

if TYPE_CHECKING:
    from engine.base.events import Answer, Compared, Comparison, Delta, Event, Finished, FirstToken, Working
    from engine.batch.series import BothAnswers
    from engine.batch.ticket import Ticket
    from engine.cache.prompt_encoding import PromptEncoding
    from engine.cache.schema_encoding import EncodeReport
    from engine.engine import Engine
    from engine.fidelity.findings import Fidelity
    from engine.inference.run_settings import RunSettings
    from engine.inference.submission import Mark
    from engine.model.model import Model
    from engine.model.probe import Probe
    from engine.pml.diagnostics.errors import PromptError
    from engine.prepared import PreparedPrompt, PreparedSchema
    from engine.prepared_conversation import PreparedConversation
    from engine.prompt.conversation.messages import Message
    from engine.prompt.conversation.named_blocks import Block, Named
    from engine.prompt.conversation.tools import ToolCall, Tools, ToolsError
    from engine.prompt.passages import Passage
    from engine.prompt.summary import LayoutSummary, ModuleLayout, PlanSummary
    from engine.prompt.template.tool_calls import ParsedAnswer
    from engine.store import Store, StoreStats

_HOMES = {
    "engine.batch.series": ("BothAnswers",),
    "engine.inference.submission": ("Mark",),
    "engine.batch.ticket": ("Ticket",),
    "engine.cache.prompt_encoding": ("PromptEncoding",),
    "engine.cache.schema_encoding": ("EncodeReport",),
    "engine.prepared_conversation": ("PreparedConversation",),
    "engine.engine": ("Engine",),
    "engine.pml.diagnostics.errors": ("PromptError",),
    "engine.prepared": ("PreparedPrompt", "PreparedSchema"),
    "engine.base.events": (
        *("Answer", "Compared", "Comparison", "Delta", "Event", "Finished", "FirstToken", "Working"),
    ),
    "engine.fidelity.findings": ("Fidelity",),
    "engine.model.model": ("Model",),
    "engine.prompt.conversation.messages": ("Message",),
    "engine.prompt.conversation.named_blocks": ("Block", "Named"),
    "engine.prompt.passages": ("Passage",),
    "engine.prompt.template.tool_calls": ("ParsedAnswer",),
    "engine.prompt.conversation.tools": ("ToolCall", "Tools", "ToolsError"),
    "engine.prompt.summary": ("LayoutSummary", "ModuleLayout", "PlanSummary"),
    "engine.model.probe": ("Probe",),
    "engine.inference.run_settings": ("RunSettings",),
    "engine.store": ("Store", "StoreStats"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Block",
    "BothAnswers",
    "CancelledError",
    "Compared",
    "Comparison",
    "Delta",
    "EncodeReport",
    "Engine",
    "Event",
    "Fidelity",
    "Finished",
    "FirstToken",
    "LayoutSummary",
    "Mark",
    "Message",
    "Model",
    "ModelError",
    "ModuleLayout",
    "Named",
    "ParsedAnswer",
    "Passage",
    "PlanSummary",
    "PreparedConversation",
    "PreparedPrompt",
    "PreparedSchema",
    "Probe",
    "PromptCacheError",
    "PromptEncoding",
    "PromptError",
    "RunSettings",
    "SettingsError",
    "Store",
    "StoreError",
    "StoreStats",
    "Ticket",
    "ToolCall",
    "Tools",
    "ToolsError",
    "Working",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value
