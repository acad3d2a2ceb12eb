"""The page's help: documents of docs/ as blocks without HTML."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.requests import Nothing, OneDocument
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.files.text_files import read_text_file

if TYPE_CHECKING:
    from markdown_it.token import Token

ORDER = ("glossary", "tutorial", "schemas", "pml", "reuse", "settings", "models", "store", "troubleshooting")
"""The first documents; the others follow by name."""


class HelpSpan(TypedDict):
    """A piece of a line; `href` is `#NAME` or `#NAME/HEADING` for another help document."""

    text: str
    style: Literal["text", "code", "strong", "em"]
    href: NotRequired[str]


class HelpBlock(TypedDict):
    """A heading, paragraph, list item, code block, or table, whose first row is its head.

    `level` is a heading's rank, or the depth in lists; `marker` is an item's number.
    """

    kind: Literal["heading", "paragraph", "item", "code", "table"]
    level: int
    spans: NotRequired[list[HelpSpan]]
    rows: NotRequired[list[list[list[HelpSpan]]]]
    text: NotRequired[str]
    marker: NotRequired[str]
    anchor: NotRequired[str]


class HelpTitle(TypedDict):
    """A document of the help."""

    name: str
    title: str


class HelpTitles(TypedDict):
    """The help documents in display order."""

    documents: list[HelpTitle]


class HelpDocument(TypedDict):
    """A help document in blocks."""

    name: str
    blocks: list[HelpBlock]


def docs_folder() -> Path | None:
    """Returns the folder of the documents, from the source tree or the installation, or None."""
    folder = Path(__file__).resolve().parents[3] / "docs"
    if (folder / "glossary.md").is_file():
        return folder
    try:
        files = distribution("prompt-cache-studio").files or ()
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.match("prompt-cache-studio/docs/glossary.md"))
    return next((path.parent for path in paths if path.is_file()), None)


class Help(Endpoints):
    """The endpoints of the page's help."""

    def __init__(self, _parts: Parts | None = None, *, folder: Path | None = None) -> None:
        self._folder = folder or docs_folder()

    @endpoint
    def list_help(self, _request: Nothing) -> HelpTitles:
        """Returns the documents' titles."""
        return {"documents": [{"name": name, "title": title} for name, title in self._titles().items()]}

    @endpoint
    def read_help(self, request: OneDocument) -> HelpDocument:
        """Returns one document in blocks."""
        if self._folder is None or request.name not in self._titles():
            raise PromptCacheError(f"There is no document {request.name!r} in this installation.")
        return {"name": request.name, "blocks": blocks(read_text_file(self._folder / f"{request.name}.md"))}

    def _titles(self) -> dict[str, str]:
        folder = self._folder
        if folder is None:
            return {}
        names = sorted(path.stem for path in folder.glob("*.md"))
        ordered = [name for name in ORDER if name in names] + [name for name in names if name not in ORDER]
        return {name: _title(read_text_file(folder / f"{name}.md"), name) for name in ordered}


def _title(source: str, name: str) -> str:
    first = source.lstrip().partition("\n")[0]
    return first.lstrip("# ").replace("`", "").strip() if first.startswith("# ") else name


def blocks(source: str) -> list[HelpBlock]:
    """Returns a Markdown document in blocks, without HTML."""
    from markdown_it import MarkdownIt

    return _read(MarkdownIt("commonmark").enable("table").parse(source))


def _read(tokens: list[Token]) -> list[HelpBlock]:
    result: list[HelpBlock] = []
    numbers: list[int | None] = []
    marker: str | None = None
    heading = 0
    rows: list[list[list[HelpSpan]]] | None = None
    for token in tokens:
        match token.type:
            case "heading_open":
                heading = int(token.tag[1:])
            case "heading_close":
                heading = 0
            case "bullet_list_open":
                numbers.append(None)
            case "ordered_list_open":
                numbers.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                numbers.pop()
            case "list_item_open":
                number = numbers[-1]
                marker = "•" if number is None else f"{number}."
                numbers[-1] = None if number is None else number + 1
            case "list_item_close":
                marker = None
            case "fence" | "code_block":
                result.append({"kind": "code", "level": len(numbers), "text": token.content.rstrip("\n")})
            case "table_open":
                rows = []
            case "tr_open":
                assert rows is not None
                rows.append([])
            case "table_close":
                assert rows is not None
                result.append({"kind": "table", "level": len(numbers), "rows": rows})
                rows = None
            case "inline":
                spans = _spans(token.children or [])
                if rows is not None:
                    rows[-1].append(spans)
                elif heading:
                    anchor = _anchor("".join(span["text"] for span in spans))
                    result.append({"kind": "heading", "level": heading, "spans": spans, "anchor": anchor})
                elif marker is not None:
                    result.append({"kind": "item", "level": len(numbers), "spans": spans, "marker": marker})
                    marker = None
                else:
                    result.append({"kind": "paragraph", "level": len(numbers), "spans": spans})
    return result


def _spans(children: list[Token]) -> list[HelpSpan]:
    spans: list[HelpSpan] = []
    styles: list[Literal["strong", "em"]] = []
    href = ""

    def add(text: str, style: Literal["text", "code", "strong", "em"]) -> None:
        span: HelpSpan = {"text": text, "style": style}
        if href:
            span["href"] = href
        spans.append(span)

    for child in children:
        match child.type:
            case "text":
                add(child.content, styles[-1] if styles else "text")
            case "code_inline":
                add(child.content, "code")
            case "softbreak" | "hardbreak":
                add(" ", "text")
            case "strong_open":
                styles.append("strong")
            case "em_open":
                styles.append("em")
            case "strong_close" | "em_close":
                styles.pop()
            case "link_open":
                href = _target(str(child.attrGet("href") or ""))
            case "link_close":
                href = ""
    return [span for span in spans if span["text"]]


def _target(href: str) -> str:
    """Returns a link's target: a help document or another site; "" for other files."""
    if re.match(r"https?://", href):
        return href
    if href.startswith("#"):
        return f"#/{href[1:]}"
    match = re.fullmatch(r"(?:\./)?([\w-]+)\.md(?:#(.+))?", href)
    return f"#{match[1]}" + (f"/{match[2]}" if match[2] else "") if match else ""


def _anchor(heading: str) -> str:
    """Returns the anchor of a heading as Markdown sites form it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
