"""The base class of pages, and the elements that their scripts fill."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import gradio as gr

from app.studio.web.endpoints import Endpoints
from app.studio.workspace.page_state import Parts


class Page(Endpoints):
    """One page. Its script is `assets/studio/pages/NAME.js`, its style sheet `NAME.css` in the same folder.

    Attributes:
        name: the page's name in URLs and file names.
        title: the title in the navigation.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def __init__(self, parts: Parts) -> None: ...

    def build(self) -> None:
        """Adds the page's elements to its column."""
        host(self.name)


def host(part: str, *, told: str = "", **options: Any) -> gr.HTML:
    """Returns an element that our JavaScript fills. Its template is constant, so Gradio never re-renders it.

    Args:
        part: the element's name.
        told: further properties for the script, as JavaScript.
        options: properties of the element.
    """
    boot = f"""
const functions = typeof server === "undefined" ? null : server;
const parts = {{element, server: functions, {told}}};
const boot = () => window.promptCacheStudio.host("{part}", parts);
if (window.promptCacheStudio) boot(); else window.addEventListener("studio-ready", boot, {{once: true}});"""
    return gr.HTML(
        value="",
        html_template=f'<div class="studio-host studio-{part}"></div>',
        js_on_load=boot,
        apply_default_css=False,
        container=False,
        elem_id=part,
        elem_classes="studio-frame",
        **options,
    )
