"""What a page of the studio is, and the elements that its scripts fill."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import gradio as gr

from app.studio.web.endpoints import Endpoints
from app.studio.workspace.page_state import Parts


class Page(Endpoints):
    """One page. Its script is `assets/studio/pages/NAME.js`, its style sheet `NAME.css` beside it.

    Attributes:
        name: the page's name in its address, and that of its files.
        title: the title in the rail.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def __init__(self, parts: Parts) -> None: ...

    def build(self) -> None:
        """Puts its elements into the page's column."""
        host(self.name)


def host(part: str, *, told: str = "", **options: Any) -> gr.HTML:
    """An element that our JavaScript fills. Its template never changes, so Gradio never renders it again.

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
