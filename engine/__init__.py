"""The engine: PML in, answers out, from segments that were computed once.

Never imports the app. Names are loaded when they are first used, so that `engine.pml` stays free of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from engine.errors import CancelledError, ModelError, PromptCacheError, SettingsError, StoreError

if TYPE_CHECKING:
    from engine.batch.series import BothAnswers
    from engine.batch.submission import Mark
    from engine.batch.ticket import Ticket
    from engine.cache.prompt_encoding import PromptEncoding
    from engine.cache.schema_encoding import EncodeReport
    from engine.cache.store import Store, StoreStats
    from engine.conversing import PreparedConversation
    from engine.engine import Engine
    from engine.events import Answer, Compared, Comparison, Delta, Event, Finished, FirstToken, Working
    from engine.inference.findings import Fidelity
    from engine.inference.params import RunSettings
    from engine.model.model import Model
    from engine.model.probe import Probe
    from engine.pml.errors import PromptError
    from engine.prepared import PreparedPrompt, PreparedSchema
    from engine.prompt.conversation import Message
    from engine.prompt.named_blocks import Block, Named
    from engine.prompt.passages import Passage
    from engine.prompt.summary import LayoutSummary, ModuleLayout, PlanSummary
    from engine.prompt.tool_calls import ParsedAnswer
    from engine.prompt.tools import ToolCall, Tools, ToolsError

_HOMES = {
    "engine.batch.series": ("BothAnswers",),
    "engine.batch.submission": ("Mark",),
    "engine.batch.ticket": ("Ticket",),
    "engine.cache.prompt_encoding": ("PromptEncoding",),
    "engine.cache.schema_encoding": ("EncodeReport",),
    "engine.conversing": ("PreparedConversation",),
    "engine.engine": ("Engine",),
    "engine.pml.errors": ("PromptError",),
    "engine.prepared": ("PreparedPrompt", "PreparedSchema"),
    "engine.events": (
        *("Answer", "Compared", "Comparison", "Delta", "Event", "Finished", "FirstToken", "Working"),
    ),
    "engine.inference.findings": ("Fidelity",),
    "engine.model.model": ("Model",),
    "engine.prompt.conversation": ("Message",),
    "engine.prompt.named_blocks": ("Block", "Named"),
    "engine.prompt.passages": ("Passage",),
    "engine.prompt.tool_calls": ("ParsedAnswer",),
    "engine.prompt.tools": ("ToolCall", "Tools", "ToolsError"),
    "engine.prompt.summary": ("LayoutSummary", "ModuleLayout", "PlanSummary"),
    "engine.model.probe": ("Probe",),
    "engine.inference.params": ("RunSettings",),
    "engine.cache.store": ("Store", "StoreStats"),
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
    return getattr(importlib.import_module(_HOME_OF[name]), name)
