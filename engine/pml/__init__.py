"""PML, the prompt markup language: parsing with exact spans, diagnostics, binding, and edits of prompts.

This package is independent of tokenizers and models. Errors in documents are returned as diagnostics, not
raised.
"""

from __future__ import annotations

from engine.pml.diagnostics.codes import CATALOGUE, Severity, catalogue_table
from engine.pml.diagnostics.diagnostic import Diagnostic, Edit, Fix, LineIndex, Span, has_errors, make
from engine.pml.diagnostics.errors import PromptError
from engine.pml.diagnostics.folding import folded
from engine.pml.diagnostics.quick_fixes import apply_edits, mended
from engine.pml.edit.add_scaffold import add_scaffold
from engine.pml.edit.edits import Picks, move_pick, read_picks, set_argument, set_pick
from engine.pml.edit.prompt_source import PromptEditError
from engine.pml.parse.binding import Bound, bind
from engine.pml.parse.documents import EarlierSchemas, parse_prompt, parse_schema, reads_files
from engine.pml.parse.prompt_parser import document_kind
from engine.pml.tree.parts import ArgumentText, NewText, Part, RoleClose, RoleOpen, SchemaText
from engine.pml.tree.tree import (
    Argument,
    Import,
    Module,
    Param,
    Parsed,
    Prompt,
    Role,
    RoleName,
    Scaffold,
    Schema,
    Text,
    Union,
)
from engine.pml.xml.names import NAME, RESERVED, ROLES

__all__ = [
    "CATALOGUE",
    "NAME",
    "RESERVED",
    "ROLES",
    "Argument",
    "ArgumentText",
    "Bound",
    "Diagnostic",
    "EarlierSchemas",
    "Edit",
    "Fix",
    "Import",
    "LineIndex",
    "Module",
    "NewText",
    "Param",
    "Parsed",
    "Part",
    "Picks",
    "Prompt",
    "PromptEditError",
    "PromptError",
    "Role",
    "RoleClose",
    "RoleName",
    "RoleOpen",
    "Scaffold",
    "Schema",
    "SchemaText",
    "Severity",
    "Span",
    "Text",
    "Union",
    "add_scaffold",
    "apply_edits",
    "bind",
    "catalogue_table",
    "document_kind",
    "folded",
    "has_errors",
    "make",
    "mended",
    "move_pick",
    "parse_prompt",
    "parse_schema",
    "read_picks",
    "reads_files",
    "set_argument",
    "set_pick",
]
