"""The parts that the page asks, whichever of its pages is shown."""

from __future__ import annotations

from app.studio.files import FileDesk
from app.studio.help import Help
from app.studio.importing import Importing
from app.studio.workspaces import Workspaces

SHARED: tuple[type[Workspaces | FileDesk | Importing | Help], ...] = (Workspaces, FileDesk, Importing, Help)
