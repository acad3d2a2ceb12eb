"""The page: hosts for our own JavaScript, a Plotly chart, and the wires between them and the server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from app.studio.author import Author
from app.studio.cache import CachePage

TITLE = "Prompt Cache Studio"


def assets_folder() -> Path:
    """The folder of the page's scripts and styles."""
    return Path(str(files("assets"))) / "studio"


def assets_path(folder: Path) -> str:
    """The URL path of that folder. It changes with the files, so a browser never mixes two versions."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return f"/studio-assets-{digest.hexdigest()[:12]}"


def head(path: str) -> str:
    """What the page's head loads: only from this server."""
    return (
        f'<link rel="icon" type="image/svg+xml" href="{path}/icon.svg">'
        f'<link rel="stylesheet" href="{path}/studio.css">'
        f'<script type="module" src="{path}/studio.js"></script>'
    )


def theme() -> gr.themes.Base:
    """Colours and fonts of Gradio's own parts; the fonts come with Gradio."""
    return gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=[gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace"],
        radius_size="sm",
        spacing_size="sm",
    )


def host(part: str, *, events: tuple[str, ...] = (), **options: Any) -> gr.HTML:
    """An element that our JavaScript fills. Its template never changes, so Gradio never renders it again."""
    names = " ".join(f"'{event}'" for event in events)
    boot = f"""
const functions = typeof server === "undefined" ? null : server;
const boot = () => window.promptCacheStudio.{part}({{element, props, trigger, server: functions, watch}});
if (window.promptCacheStudio) boot(); else window.addEventListener("studio-ready", boot, {{once: true}});
// events: {names}"""
    return gr.HTML(
        value="",
        html_template=f'<div class="studio-{part}"></div>',
        js_on_load=boot,
        apply_default_css=False,
        container=False,
        elem_id=part,
        **options,
    )


def build(author: Author, cache: CachePage) -> gr.Blocks:
    """The studio's page over the server sides of its parts."""
    with gr.Blocks(title=TITLE, fill_width=True, analytics_enabled=False) as page:
        shell = host("shell", events=("run",), server_functions=[*author.endpoints(), *cache.endpoints()])
        with gr.Column(elem_id="page-author", elem_classes="studio-page"):
            host("author")
            with gr.Column(elem_id="ttft"):
                chart = gr.Plot(author.chart(), show_label=False, container=False, elem_id="ttft-chart")
                host("history")
        with gr.Column(elem_id="page-cache", elem_classes="studio-page"):
            host("cache")
        with gr.Column(elem_id="page-gallery", elem_classes="studio-page"):
            host("gallery")

        def run(event: gr.EventData) -> Iterator[tuple[str, go.Figure | dict[str, Any]]]:
            for frame, figure in author.run(_payload(event)):
                yield frame, gr.skip() if figure is None else figure

        shell.run(
            run, None, [shell, chart], show_progress="hidden", concurrency_limit=1, api_visibility="private"
        )
        page.load(author.chart, None, chart, show_progress="hidden", api_visibility="private")
    return page


def _payload(event: gr.EventData) -> dict[str, Any]:
    data = getattr(event, "_data", None)
    if isinstance(data, str):
        data = json.loads(data)
    return data if isinstance(data, dict) else {}
