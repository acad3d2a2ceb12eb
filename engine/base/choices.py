"""What can be chosen, by name and in words, for every room, the command line, the page and the documents."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Scope = Literal["isolated", "anchored", "preceding", "scaffold"]
SCOPES: Final[Mapping[Scope, str]] = MappingProxyType(
    {
        "isolated": "a module sees only itself",
        "anchored": "a module sees the text that is always before it",
        "preceding": "a module sees that text, and the nearest modules before it in this prompt",
        "scaffold": "a module sees all of this prompt that is before it",
    }
)

PlacementPolicy = Literal["compact", "schema"]
PLACEMENTS: Final[Mapping[PlacementPolicy, str]] = MappingProxyType(
    {
        "compact": "positions without gaps",
        "schema": "positions as the schema reserves them",
    }
)

Reuse = Literal["off", "auto"]
REUSES: Final[Mapping[Reuse, str]] = MappingProxyType(
    {
        "off": "scope and repair as they are set",
        "auto": "the cheapest way whose measured mean KL is within the promise",
    }
)

Speculate = Literal["auto", "on", "off"]
SPECULATIONS: Final[Mapping[Speculate, str]] = MappingProxyType(
    {
        "auto": "where it cannot change the text: at temperature 0",
        "on": "at any temperature",
        "off": "one token a pass",
    }
)

Device = Literal["auto", "cpu", "cuda", "mps"]
DEVICES: Final[Mapping[Device, str]] = MappingProxyType(
    {
        "auto": "the best that is here and runs the model",
        "cpu": "the processor",
        "cuda": "a GPU of NVIDIA or AMD",
        "mps": "the GPU of a Mac",
    }
)

RANDOM: Final = "random:"
"""What the name of a model of random weights begins with."""

Weights = Literal["auto", "packed", "plain"]
WEIGHTS: Final[Mapping[Weights, str]] = MappingProxyType(
    {
        "auto": "packed for the processor where a measurement says that they win, else plain",
        "packed": "packed for the processor",
        "plain": "as the files have them",
    }
)

Quantize = Literal["none", "int8", "int4"]
QUANTIZATIONS: Final[Mapping[Quantize, str]] = MappingProxyType(
    {
        "none": "weights in the model's number format",
        "int8": "weights rounded to eight bits",
        "int4": "weights rounded to four bits",
    }
)

TimelinePart = Literal["parse", "plan", "encode", "load", "repair", "prefill", "sample"]
TIMELINE_PARTS: Final[Mapping[TimelinePart, str]] = MappingProxyType(
    {
        "parse": "reading the prompt's text",
        "plan": "binding the prompt to the schema, and choosing tokens, positions and segments",
        "encode": "computing the segments that were not stored",
        "load": "reading the segments that were, from memory or from disk",
        "repair": "choosing the cached tokens that are computed again",
        "prefill": "computing the new tokens over the cached ones",
        "sample": "choosing the first token",
    }
)
