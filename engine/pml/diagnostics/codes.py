"""The severity and meaning of each diagnostic code."""

from __future__ import annotations

from typing import Final, Literal

Severity = Literal["error", "warning", "info"]

CATALOGUE: Final[dict[str, tuple[Severity, str]]] = {
    "E101": ("error", "The document is not UTF-8 text."),
    "E102": ("error", "The document is larger than 5 MB."),
    "E103": ("error", "A character that XML forbids: NUL, another control character, half a surrogate pair."),
    "E104": ("error", "A tag is not finished: its `>` is missing."),
    "E105": ("error", "An element is never closed."),
    "E106": ("error", "A closing tag has no opening tag."),
    "E107": ("error", 'An attribute is not written as `name="value"`.'),
    "E108": ("error", "An attribute is given twice in one tag."),
    "E109": ("error", "A character that must be escaped: `<`, `&`, or `]]>` in text."),
    "E110": ("error", "An entity other than XML's own five, or an invalid character reference."),
    "E111": ("error", "A DOCTYPE or another `<!…>` declaration."),
    "E112": ("error", "A processing instruction."),
    "E113": ("error", "An XML declaration that is not first, or names another encoding than UTF-8."),
    "E114": ("error", "A comment or CDATA section that is never closed, or `--` inside a comment."),
    "E115": ("error", "Content outside the root element."),
    "E116": ("error", "The document has no element."),
    "E117": ("error", "Elements are nested more than 256 deep."),
    "E118": ("error", "A name with a prefix; only `xml:space` and `xml:lang` are known."),
    "E119": ("error", "There are more errors than shown."),
    "E120": ("error", "The document has more than 40,000 elements, attributes and comments."),
    "E121": ("error", "The file is not PML: Markdown, JSON, a web page, a program, …"),
    "E199": ("error", "Another XML error, as reported by the XML parser."),
    "E201": ("error", "The root element is not `schema`, or not `prompt`."),
    "E202": ("error", "A required attribute is missing or empty."),
    "E203": ("error", "An unknown attribute."),
    "E204": ("error", "An attribute has an invalid value."),
    "E205": ("error", "An unknown element."),
    "E206": ("error", "An element is at a place where it is not allowed."),
    "E207": ("error", "Text is at a place where it is not allowed."),
    "E208": ("error", "A `src` that leaves the document's folder or is not a relative path."),
    "E209": (
        "error",
        "A `src` file that cannot be read: missing, not a regular file, not UTF-8, or too large.",
    ),
    "E210": ("error", "A module with `src` that has content of its own."),
    "E211": (
        "error",
        "A file that cannot be included: not a schema, a circular include, or turns inside a turn.",
    ),
    "E212": ("error", "A module mixes whole turns with other content."),
    "E213": (
        "error",
        "A question without instructions, or with too few or too many options.",
    ),
    "E214": ("error", "An answer format without a pattern or options, or a second one."),
    "E215": ("error", "An answer format that cannot be enforced."),
    "E301": ("error", "An invalid name."),
    "E302": ("error", "Two sibling modules have the same name."),
    "E303": ("error", "A module has the name of a PML element."),
    "E304": ("error", "A parameter of a module is defined twice."),
    "E305": ("error", "The `scaffold` of a union is not one of its members."),
    "E306": ("error", "A scaffold names a module that the schema does not have."),
    "E307": ("error", "Two questions of a prompt, or two options of a question, have the same name."),
    "E401": ("error", "The prompt is written for another schema."),
    "E402": ("error", "The prompt imports a module that the schema does not have."),
    "E403": ("error", "An import is not nested as in the schema."),
    "E404": ("error", "The name of a top-level import belongs to several nested modules."),
    "E405": ("error", "A module is imported twice."),
    "E406": ("error", "Two members of one union are imported."),
    "E407": ("error", "An argument for a parameter that the module does not have."),
    "E408": ("error", "An argument is given twice."),
    "E409": ("error", "A role precedes the last import of the prompt."),
    "E501": ("error", "An argument or a default has more tokens than its parameter's length."),
    "E502": (
        "error",
        "More tokens than the context window, in the prompt or in a module with the text before it.",
    ),
    "E503": ("error", "The prompt has no tokens at all."),
    "E505": ("error", "The chat template rejects this sequence of roles."),
    "E506": ("error", "Schema placement needs the imports in the schema's order."),
    "E507": ("error", "Schema placement has too little space between two modules for the text there."),
    "E508": ("error", "The chat template rejects a turn after the one before it."),
    "E509": ("error", "A token of the tokenizer that the model does not know."),
    "W600": ("info", "There is more advice than shown."),
    "W601": ("warning", "A union has only one member."),
    "W602": ("warning", "A union has no member."),
    "W603": ("warning", "A module is empty."),
    "W604": ("warning", "An imported parameter has neither an argument nor a default."),
    "W605": ("warning", "A module repeats the text of another."),
    "W606": ("warning", "A scaffold that no prompt can use, or that names only one module."),
    "W607": ("info", "The model has no token for unknown text, so another token fills the parameters."),
    "W608": ("warning", "The chat template contains the date, so segments are recomputed each day."),
    "W609": ("info", "The chat template has no generation prompt for the assistant."),
    "W610": ("info", "The chat template rejects system text, so the text begins the first user turn."),
    "W611": ("info", "Tokens at module boundaries differ from those of the whole text."),
    "W612": ("warning", "The chat template changes, moves or omits text of turns."),
    "W613": (
        "warning",
        "Words or Markdown marks run together where modules, arguments or other texts meet.",
    ),
    "W615": ("warning", "Two sibling names look the same but use different characters."),
    "W616": (
        "warning",
        "A Markdown block does not begin its line if a module is left out or moved.",
    ),
    "W617": ("info", "Text of a prompt next to whole turns is read at the end of the prompt."),
    "W618": ("warning", "A prompt without a question: nothing for the model to answer."),
    "W619": ("warning", "Text of a schema with turns belongs to none of them."),
}


def catalogue_table() -> str:
    """Returns the catalogue as the Markdown table of the language reference."""
    rows = [f"| `{code}` | {severity} | {text} |" for code, (severity, text) in sorted(CATALOGUE.items())]
    return "\n".join(("| code | severity | means |", "|---|---|---|", *rows))
