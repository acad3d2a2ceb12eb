"""The grammar of an answer as a setting's text: "json", "schema:…", "regex:…", "choices:…" or "lark:…".

It is read and checked here without a model; "text" is no grammar. The module imports no tensor library.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.base.errors import SettingsError
from engine.base.strict_json import JsonError, read_json

FREE: Final = "text"
JSON_OBJECT: Final = "json"
PATTERN: Final = r"text|json|(schema|regex|choices|lark):[\s\S]+"
FORM: Final = (
    "text (any text), json (a JSON object), schema:JSON (of a JSON Schema), regex:PATTERN, "
    'choices:["A", "B"] or lark:GRAMMAR'
)
JSON_STYLE: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as `json.dumps` writes it. Free white space would let a model write blanks without end."""
_IN_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES: Final = ("enum", "const", "default", "examples")  # their contents are no schemas
_DEEPEST: Final = 64
_FORMATS: Final = {
    *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"),
}
_TOGETHER: Final = {"allOf", "dependentSchemas", "unevaluatedProperties"}
_BRANCHES: Final = {"anyOf", "oneOf", "$ref"}
_DECIDES: Final = {"additionalProperties", "patternProperties", "enum", "const"}
_BYTES_OF_MASK: Final = 256 // 8  # one bit for each byte; then comes the end of the answer


class GrammarError(SettingsError):
    """A grammar is invalid, or cannot be enforced.

    Attributes:
        keys: the keywords of a JSON Schema that are at fault, if known.
    """

    def __init__(self, message: str, keys: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


def of_schema(schema: Mapping[str, Any]) -> str:
    """Returns the grammar of JSON that a JSON Schema describes."""
    return f"schema:{json.dumps(schema, ensure_ascii=False)}"


def of_choices(choices: Sequence[str]) -> str:
    """Returns the grammar of exactly one of these texts."""
    return f"choices:{json.dumps([*choices], ensure_ascii=False)}"


def schema_of(grammar: str) -> Any:
    """Returns the JSON Schema of a valid grammar; None for other kinds."""
    if grammar == JSON_OBJECT:
        return {"type": "object"}
    kind, _, text = grammar.partition(":")
    return json.loads(text) if kind == "schema" else None


@functools.lru_cache(maxsize=64)
def compiled(grammar: str) -> str:
    """Returns a setting's grammar in the form of llguidance.

    Raises:
        GrammarError: it is invalid, or has a part that llguidance does not enforce.
    """
    kind, _, text = grammar.partition(":")
    match kind:
        case "json":
            return _checked("The JSON object", _of_schema({"type": "object"}))
        case "schema":
            return _checked("The JSON schema", _of_schema(_schema(text)))
        case "regex":
            return _checked("The regular expression", _library().grammar_from_regex(text))
        case "choices":
            return _checked("The list of choices", _of_choices(text))
        case _:
            return _checked("The grammar", _of_lark(text))


def json_rule(schema: Mapping[str, Any]) -> str:
    """Returns the right side of a Lark rule for JSON of a schema.

    Keywords without support are ignored. Any object stands for a schema that cannot be read at all.
    """
    style = {**JSON_STYLE, "lenient": True}
    rule = f"%json {json.dumps({**fitted(schema), 'x-guidance': style}, ensure_ascii=False)}"
    return (
        rule
        if _is_valid(f"start: {rule}")
        else f"%json {json.dumps({'type': 'object', 'x-guidance': style})}"
    )


@functools.lru_cache(maxsize=256)
def _is_valid(source: str) -> bool:
    failed, _ = _library().validate_grammar_with_warnings(source)
    return not failed


def quoted(text: str) -> str:
    """Returns a text as a Lark string."""
    return json.dumps(text, ensure_ascii=False)


def require_enforced(schema: Any) -> None:
    """Rejects parts of a JSON Schema that the library accepts and does not enforce.

    Raises:
        GrammarError: there is such a part.
    """
    for part in _parts(schema, 0):
        if part.get("properties") and part.get("patternProperties"):
            raise GrammarError(
                "The JSON schema has patternProperties and properties, which are not enforced together. "
                "Use one of them.",
                ("patternProperties",),
            )
        for name, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if _permits_its_bound(part, name):
                raise GrammarError(
                    f"The JSON schema has the {name} {part[name]}, which is not enforced for numbers so near "
                    f"to the other limit. Use {limit}.",
                    (name,),
                )


def _permits_its_bound(part: Mapping[str, Any], name: str) -> bool:
    """Whether the library lets a number through that its exclusive bound forbids."""
    bound = part.get(name)
    if isinstance(bound, bool) or not isinstance(bound, int | float) or part.get("type") == "integer":
        return False
    from llguidance import LLTokenizer

    kept = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    limits = {key: part[key] for key in kept if isinstance(part.get(key), int | float)}
    tokenizer = LLTokenizer("byte")
    grammar = _grammar_of({"type": "number", **limits})
    for text in (json.dumps(bound), json.dumps(float(bound)), f"{bound:g}", *(["-0"] if not bound else ())):
        matcher = _library()(tokenizer, grammar, log_level=0)
        tokens = tokenizer.tokenize_str(text)
        if matcher.validate_tokens(tokens) == len(tokens):
            matcher.consume_tokens(tokens)
            if matcher.is_accepting():
                return True
    return False


def _library() -> Any:
    from llguidance import LLMatcher  # here, because most commands need no grammar

    return LLMatcher


def _of_schema(schema: Mapping[str, Any] | bool) -> str:
    require_enforced(schema)
    return _grammar_of(fitted(_object(schema)))


def _grammar_of(schema: Mapping[str, Any]) -> str:
    try:
        return str(_library().grammar_from_json_schema(schema, overrides=JSON_STYLE))
    except ValueError:
        words = "The JSON schema has a number that is too large: use whole numbers below 2^64."
        raise GrammarError(words) from None


def _object(schema: Mapping[str, Any] | bool) -> dict[str, Any]:
    return {} if schema is True else {"enum": []} if schema is False else {**schema}


def _schema(text: str) -> Mapping[str, Any] | bool:
    try:
        schema = read_json(text)
    except JsonError as error:
        raise GrammarError(f"The JSON schema is not JSON: {error}. Correct it.") from None
    if not isinstance(schema, dict | bool):
        raise GrammarError('The JSON schema must be an object, such as {"type": "object"}.')
    return schema


def _of_choices(text: str) -> str:
    try:
        choices = read_json(text)
    except JsonError as error:
        raise GrammarError(f"The list of choices is not JSON: {error}. Correct it.") from None
    fits = isinstance(choices, list) and choices and all(isinstance(one, str) and one for one in choices)
    if not fits:
        raise GrammarError('The choices must be a list of texts, such as ["yes", "no"].')
    # One terminal: a rule may have 2,000 alternatives at most.
    return f"start: CHOICE\nCHOICE: {' | '.join(map(quoted, dict.fromkeys(choices)))}"


def _of_lark(text: str) -> str:
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return any_to_lark(text)
    except Exception as error:  # of its reader of GBNF
        raise GrammarError(f"The grammar cannot be read: {_reason(str(error))}") from None


def _checked(what: str, source: str) -> str:
    failed, messages = _library().validate_grammar_with_warnings(source)
    if failed:
        raise GrammarError(f"{what} cannot be enforced: {_reason(messages[0])}", _keys(messages[0]))
    if "<[" not in source:  # tokens of a model
        _require_answers(what, source)
    return source


def _require_answers(what: str, source: str) -> None:
    """Rejects a grammar that is endless or too large for a first token, or permits only an empty answer."""
    from llguidance import LLMatcher

    state = LLMatcher(_bytes(), source, log_level=0, limits=limits())
    permitted = b"" if state.is_error() else state.compute_bitmask()
    if error := state.get_error():
        raise GrammarError(f"{what} cannot be enforced: {first_reason(error)}. Simplify it.")
    if not any(permitted[:_BYTES_OF_MASK]):
        raise GrammarError(f"{what} permits only an empty answer. Add a text to it.")


@functools.cache
def _bytes() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


@functools.cache
def limits() -> Any:
    """Returns the limits of llguidance: its errors would else repeat the whole grammar."""
    from llguidance import LLParserLimits

    return LLParserLimits(verbose_errors=False)


def first_reason(error: str) -> str:
    """Returns an error of llguidance as one sentence, without its end."""
    if "NoExtensionBias" in error:
        return "a part of it refers to itself without an end"
    return error.splitlines()[0].rstrip(". ")


def _reason(message: str) -> str:
    """The library's message as sentences, with what to do."""
    patterns = [line for line in message.splitlines() if line.startswith("error: ")]  # of its regex library
    line = " ".join((patterns[-1].removeprefix("error: ") if patterns else message).split())
    if keys := _keys(line):
        named = ", ".join(f"`{key}`" for key in keys)
        return f"{named} is not supported. Remove it, and check the answer yourself."
    if line.startswith("oneOf constraints"):
        return "its oneOf has branches that may overlap. Use anyOf, or give each branch a const property."
    return f"{line.rstrip('. ')}. Correct it."


def _keys(message: str) -> list[str]:
    """The keywords that a message of the library names."""
    before, _, keys = message.partition("Unimplemented keys: ")
    return [] if before or not keys else list(json.loads(keys))


def fitted(schema: Any) -> Any:
    """Returns a JSON Schema as a model's answers should keep to it.

    It permits no undescribed properties, unless it mentions `additionalProperties` or several schemas
    describe an object together: a model may write properties without end. An unknown `format` is a remark,
    as JSON Schema has it.
    """
    close = not any(
        _TOGETHER & part.keys() or (_BRANCHES & part.keys() and {"properties", "required"} & part.keys())
        for part in _parts(schema, 0)
    )
    return _fitted(schema, close=close)


def _fitted(schema: Any, *, close: bool) -> Any:
    if isinstance(schema, list):
        return [_fitted(one, close=close) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        name: inner
        if name in _VALUES
        else {key: _fitted(one, close=close) for key, one in inner.items()}
        if name in _IN_MAPS and isinstance(inner, Mapping)
        else _fitted(inner, close=close)
        for name, inner in schema.items()
        if not (name == "format" and isinstance(inner, str) and inner not in _FORMATS)
        and not (name == "uniqueItems" and inner is False)
    }
    known, required = schema.get("properties"), schema.get("required", [])
    described = (
        isinstance(known, Mapping) and isinstance(required, list) and not {*map(str, required)} - {*known}
    )
    if close and described and not _DECIDES & schema.keys():
        made["additionalProperties"] = False
    return made


def _parts(schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yields a schema and all schemas in it."""
    if depth > _DEEPEST:
        raise GrammarError(f"The JSON schema nests deeper than {_DEEPEST} levels. Simplify it.")
    if isinstance(schema, list):
        for one in schema:
            yield from _parts(one, depth + 1)
    if not isinstance(schema, Mapping):
        return
    yield schema
    for name, inner in schema.items():
        if name in _IN_MAPS and isinstance(inner, Mapping):
            yield from _parts([*inner.values()], depth + 1)
        elif name not in _VALUES:
            yield from _parts(inner, depth + 1)
