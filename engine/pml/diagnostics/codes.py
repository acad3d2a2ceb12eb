"""The codes of diagnostics: how severe each is, and what it means."""

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
    "E109": ("error", "A character that has to be escaped: `<`, `&`, or `]]>` in text."),
    "E110": ("error", "An entity other than XML's own five, or a character reference to no character."),
    "E111": ("error", "A DOCTYPE or another `<!…>` declaration."),
    "E112": ("error", "A processing instruction."),
    "E113": ("error", "An XML declaration that is not first, or names another encoding than UTF-8."),
    "E114": ("error", "A comment or CDATA section that is never closed, or `--` inside a comment."),
    "E115": ("error", "Something stands outside the root element."),
    "E116": ("error", "The document holds no element."),
    "E117": ("error", "Elements are nested more than 256 deep."),
    "E118": ("error", "A name with a prefix; only `xml:space` and `xml:lang` are known."),
    "E119": ("error", "There are more faults than are shown."),
    "E120": ("error", "The document has more than 40,000 elements, attributes and comments."),
    "E121": ("error", "The file is no PML at all: Markdown, JSON, a web page, a program, …"),
    "E199": ("error", "Another fault of the XML, in the words of the XML parser."),
    "E201": ("error", "The root element is not `schema`, or not `prompt`."),
    "E202": ("error", "A required attribute is missing or empty."),
    "E203": ("error", "An attribute that this element does not have."),
    "E204": ("error", "An attribute has a value that it cannot have."),
    "E205": ("error", "An element that PML does not have."),
    "E206": ("error", "An element stands where it may not stand."),
    "E207": ("error", "Text stands where there may be none."),
    "E208": ("error", "A `src` that leaves the schema's folder, or that is not a relative path."),
    "E209": ("error", "A `src` file that cannot be read: missing, no regular file, not UTF-8, or too large."),
    "E210": ("error", "A module with `src` that has content of its own."),
    "E211": ("error", "A file that cannot be included: no schema, in a circle, or with turns in a turn."),
    "E212": ("error", "A module holds whole turns, and something beside them."),
    "E301": ("error", "A name that does not follow the rule for names."),
    "E302": ("error", "Two sibling modules have one name."),
    "E303": ("error", "A module has the name of a PML element."),
    "E304": ("error", "A parameter of a module is defined twice."),
    "E305": ("error", "The `scaffold` of a union names no member of it."),
    "E306": ("error", "A scaffold names a module that the schema does not have."),
    "E401": ("error", "The prompt is written for another schema."),
    "E402": ("error", "The prompt imports a module that the schema does not have."),
    "E403": ("error", "An import is nested otherwise than in the schema."),
    "E404": ("error", "A name directly under the prompt belongs to several nested modules."),
    "E405": ("error", "A module is imported twice."),
    "E406": ("error", "Two members of one union are imported."),
    "E407": ("error", "An argument for a parameter that the module does not have."),
    "E408": ("error", "An argument is given twice."),
    "E409": ("error", "A role stands before the last import of the prompt."),
    "E501": ("error", "An argument or a default has more tokens than its parameter's length."),
    "E502": (
        "error",
        "More tokens than the context window, in the prompt or in a module with what it is encoded after.",
    ),
    "E503": ("error", "The prompt has no tokens at all."),
    "E505": ("error", "The chat template refuses this sequence of roles."),
    "E506": ("error", "Schema placement keeps the schema's order, and the imports have another."),
    "E507": ("error", "Schema placement has less room between two modules than the text there needs."),
    "E508": ("error", "The chat template does not take a turn behind the one before it."),
    "E509": ("error", "A token of the tokenizer that the model does not know."),
    "W600": ("info", "There is more advice than is shown."),
    "W601": ("warning", "A union has one member only."),
    "W602": ("warning", "A union has no member."),
    "W603": ("warning", "A module is empty."),
    "W604": ("info", "An imported parameter has neither an argument nor a default."),
    "W605": ("warning", "A module repeats the text of another."),
    "W606": ("warning", "A scaffold that no prompt can use, or that names one module only."),
    "W607": ("info", "The model has no token for unknown text, so another one fills a parameter's slot."),
    "W608": ("warning", "The chat template writes the date, so segments are computed again on another day."),
    "W609": ("info", "The chat template writes nothing that invites the assistant to answer."),
    "W610": ("info", "The chat template refuses system text, so it begins the first user turn."),
    "W611": ("info", "Tokens at borders of modules are others than in the text as a whole."),
    "W612": ("warning", "The chat template rewrites, moves or leaves out what turns say."),
    "W613": (
        "warning",
        "Words, or marks of Markdown, touch where modules, defaults, arguments, included or new text meet.",
    ),
    "W615": ("warning", "Two names beside each other look the same and have other characters."),
    "W616": (
        "warning",
        "A heading, list item or other block does not begin its line where a module is left out or moved.",
    ),
    "W617": ("info", "Text of a prompt beside whole turns is read at the end of the prompt."),
}


def catalogue_table() -> str:
    """The catalogue as the Markdown table of the language reference."""
    rows = [f"| `{code}` | {severity} | {text} |" for code, (severity, text) in sorted(CATALOGUE.items())]
    return "\n".join(("| code | severity | means |", "|---|---|---|", *rows))
