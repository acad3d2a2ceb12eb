"""Choices by name with a description, for the engine, the command line, the page and the documents."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Scope = Literal["isolated", "anchored", "preceding", "scaffold"]
SCOPES: Final[Mapping[Scope, str]] = MappingProxyType(
    {
        "isolated": "a module sees only itself",
        "anchored": "a module sees the fixed text before it",
        "preceding": "a module sees that text and the nearest modules before it in this prompt",
        "scaffold": "a module sees everything before it in this prompt",
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
        "off": "scope and repair as set",
        "auto": "the cheapest method with a measured mean KL within the limit",
    }
)

Speculate = Literal["auto", "on", "off"]
SPECULATIONS: Final[Mapping[Speculate, str]] = MappingProxyType(
    {
        "auto": "only at temperature 0, so the text stays the same",
        "on": "at any temperature",
        "off": "one token a pass",
    }
)

Device = Literal["auto", "cpu", "cuda", "mps"]
DEVICES: Final[Mapping[Device, str]] = MappingProxyType(
    {
        "auto": "the best available device that runs the model",
        "cpu": "the processor",
        "cuda": "an NVIDIA or AMD GPU",
        "mps": "the GPU of a Mac",
    }
)

RANDOM: Final = "random:"
"""Prefix of the name of a model with random weights."""

Weights = Literal["auto", "packed", "plain"]
WEIGHTS: Final[Mapping[Weights, str]] = MappingProxyType(
    {
        "auto": "packed if that is faster on this machine, else plain",
        "packed": "packed for the processor",
        "plain": "as in the files",
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

TimelinePart = Literal[
    "parse", "plan", "encode", "load", "repair", "prefill", "sample", "questions", "calibration"
]
TIMELINE_PARTS: Final[Mapping[TimelinePart, str]] = MappingProxyType(
    {
        "parse": "reading the prompt's text",
        "plan": "binding the prompt to the schema and choosing tokens, positions and segments",
        "encode": "computing missing segments",
        "load": "reading stored segments from memory or disk",
        "repair": "choosing cached tokens to recompute",
        "prefill": "computing the new tokens over the cached ones",
        "sample": "choosing the first token",
        "questions": "computing questions and labels after the prompt",
        "calibration": "computing the same questions without new text",
    }
)
