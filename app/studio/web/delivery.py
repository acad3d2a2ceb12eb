"""Delivers the page fast: the studio's own start shows at once, and browsers keep its files."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FOREIGN = re.compile(
    r'<meta\s+(?:property="og|name="twitter):[^>]*>\s*'  # titles and images of Gradio
    r'|<link rel="manifest"[^>]*>\s*'
    r"|<script>(?:(?!</script>).)*iframeResizer\.contentWindow.*?</script>\s*",  # the page is in no frame
    re.DOTALL,
)
_BODY = re.compile(r"<body[^>]*>")
_LASTING = (b"cache-control", b"public, max-age=31536000, immutable")


class Delivery:
    """ASGI middleware around Gradio's application.

    Args:
        app: the application.
        assets: the path of the page's own files.
        head: HTML for the end of the page's head.
        body: HTML for the beginning of the page's body.
    """

    def __init__(self, app: ASGIApp, assets: str, head: str, body: str) -> None:
        self._app, self._head, self._body = app, head, body
        self._lasting = (f"{assets}/", "/assets/", "/static/fonts/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests on without compression, which takes longer than this machine's own network."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "headers": [item for item in scope["headers"] if item[0] != b"accept-encoding"]}
        if (scope["method"], scope["path"]) == ("GET", "/"):
            await self._page(scope, receive, send)
            return

        async def lasting(message: Message) -> None:
            if message.get("status") == 200:
                message["headers"] = [*message["headers"], _LASTING]
            await send(message)

        await self._app(scope, receive, lasting if scope["path"].startswith(self._lasting) else send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}
        parts: list[bytes] = []

        async def rewritten(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            parts.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            body = b"".join(parts)
            if start["status"] == 200:
                body = self.rewritten(body.decode()).encode()
            headers = [item for item in start["headers"] if item[0].lower() != b"content-length"]
            length = (b"content-length", str(len(body)).encode())
            await send({**start, "headers": [*headers, length]})
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, rewritten)

    def rewritten(self, page: str) -> str:
        """Returns Gradio's page with the studio's head and start."""
        page = _FOREIGN.sub("", page).replace("</head>", f"{self._head}</head>", 1)
        return _BODY.sub(lambda body: body[0] + self._body, page, count=1)
