"""The page: its head, and one column per registered page."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import gradio as gr

from app.studio.pages import PAGES
from app.studio.pages.page import host
from app.studio.web.endpoints import by_name
from app.studio.workspace.all_pages import SHARED
from app.studio.workspace.page_state import Parts

TITLE = "Prompt Cache Studio"
EDITOR_FONTS = [f"/static/fonts/IBMPlexMono/IBMPlexMono-{weight}.woff2" for weight in ("Regular", "Bold")]
BUNDLE = "editor.bundle.js"  # imports nothing
_IMPORT = re.compile(r'^import .*? from "(\.[^"]+)"', re.MULTILINE)


def assets_folder() -> Path:
    """Returns the folder of the page's scripts and styles."""
    return (Path(str(files("assets"))) / "studio").resolve()


def assets_path(folder: Path) -> str:
    """Returns the folder's URL path. It changes with the files, so browsers never mix two versions."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return f"/studio-assets-{digest.hexdigest()[:12]}"


def head(folder: Path, path: str) -> str:
    """Returns the HTML head. It loads from this server only, and all scripts of the first page at once."""
    first = _imports(folder, "studio.js") | _imports(folder, f"pages/{PAGES[0].name}.js")
    return (
        f"<title>{TITLE}</title>"
        f'<link rel="icon" type="image/svg+xml" href="{path}/icon.svg">'
        + "".join(f'<link rel="modulepreload" href="{path}/{name}">' for name in sorted(first))
        + "".join(f'<link rel="preload" as="font" crossorigin href="{font}">' for font in EDITOR_FONTS)
        + f'<script type="module" src="{path}/studio.js"></script>'
    )


def start(folder: Path, path: str) -> str:
    """Returns the beginning of the HTML body: what shows until the page is ready, and the style sheets.

    The styles delay only what follows them. Other pages load theirs on first view.
    """
    styles = [
        "styles/studio.css",
        "styles/frame.css",
        "styles/dialogs.css",
        "styles/table.css",
        "styles/files.css",
        "styles/layout_bar.css",
        "styles/prompt_view.css",
        "styles/form.css",
        "styles/chart.css",
        f"pages/{PAGES[0].name}.css",
        "styles/run.css",
        "chat/chat.css",
        "decide/decide.css",
    ]
    titles = "".join(f"<span>{page.title}</span>" for page in PAGES)
    links = "".join(f'<link rel="stylesheet" href="{path}/{style}">' for style in styles)
    return (folder / "start.html").read_text(encoding="utf-8").replace("PAGES", titles) + links


def _imports(folder: Path, name: str) -> set[str]:
    """Returns a script and all that it imports, directly or not, by their places in the folder."""
    found, pending = set[str](), [folder / name]
    while pending:
        script = pending.pop()
        place = script.relative_to(folder).as_posix()
        if place not in found:
            found.add(place)
            source = "" if script.name == BUNDLE else script.read_text(encoding="utf-8")
            pending += [(script.parent / other).resolve() for other in _IMPORT.findall(source)]
    return found


def theme() -> gr.themes.Base:
    """Returns the theme of Gradio's components; its fonts are in Gradio's package."""
    return gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=[gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace"],
        radius_size="sm",
        spacing_size="sm",
    )


def build(parts: Parts) -> gr.Blocks:
    """Builds the studio's page."""
    pages = [page(parts) for page in PAGES]
    endpoints = by_name([*(shared(parts) for shared in SHARED), *pages])
    entries = json.dumps([{"name": page.name, "title": page.title} for page in pages])
    with gr.Blocks(title=TITLE, fill_width=True, analytics_enabled=False) as blocks:
        functions = [endpoint.function() for endpoint in endpoints.values()]
        host("shell", told=f"pages: {entries}", server_functions=functions)
        for page in pages:
            with gr.Column(elem_id=f"page-{page.name}", elem_classes="studio-page"):
                page.build()
    return blocks
