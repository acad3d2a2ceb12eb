"""Tiers, outcomes and reasons: declared once, spelled everywhere as they are declared."""

from __future__ import annotations

import json
import re
from pathlib import Path

from engine.base.tiers import TIERS, Outcome, Reason, Tier

STORE_PAGE = Path(__file__).resolve().parents[2] / "docs" / "store.md"


def test_the_document_of_the_store_explains_every_reason_and_no_other() -> None:
    table = STORE_PAGE.read_text(encoding="utf-8").partition("| reason | meaning |")[2]
    firsts = re.findall(r"^\| (`.*?) \|", table.split("\n\n")[0], re.MULTILINE)
    names = [name for first in firsts for name in re.findall("`([^`]+)`", first)]
    assert sorted(names) == sorted(Reason)


def test_tiers_are_ordered_from_far_to_near() -> None:
    assert TIERS == (Tier.NONE, Tier.DISK, Tier.MEMORY)
    assert min([Tier.MEMORY, Tier.DISK], key=TIERS.index) is Tier.DISK


def test_tiers_and_outcomes_are_plain_words_in_json() -> None:
    told = json.loads(json.dumps({"tier": Tier.DISK, "outcome": Outcome.MISS, "reason": Reason.AGE}))
    assert told == {"tier": "disk", "outcome": "miss", "reason": "evicted: age"}
    assert Tier.NONE.to_json() == {
        "name": "none",
        "label": "not yet",
        "meaning": "Not computed yet; its first run computes it",
    }
