"""The reasons of a miss: the page on the store explains each."""

from __future__ import annotations

import re
from pathlib import Path

from engine.base.tiers import Reason

STORE_PAGE = Path(__file__).resolve().parents[2] / "docs" / "store.md"


def test_the_document_of_the_store_explains_every_reason_and_no_other() -> None:
    table = STORE_PAGE.read_text(encoding="utf-8").partition("| reason | meaning |")[2]
    firsts = re.findall(r"^\| (`.*?) \|", table.split("\n\n")[0], re.MULTILINE)
    names = [name for first in firsts for name in re.findall("`([^`]+)`", first)]
    assert sorted(names) == sorted(Reason)
