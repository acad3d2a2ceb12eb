"""The endpoints that every page uses."""

from __future__ import annotations

from app.studio.workspace.chats import Chats
from app.studio.workspace.file_menu import FileDesk
from app.studio.workspace.forms import Forms
from app.studio.workspace.help import Help
from app.studio.workspace.imports import Importing
from app.studio.workspace.workspace import Workspaces

SHARED: tuple[type[Workspaces | FileDesk | Importing | Help | Forms | Chats], ...] = (
    Workspaces,
    FileDesk,
    Importing,
    Help,
    Forms,
    Chats,
)
