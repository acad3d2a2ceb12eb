"""Tables of results: no text in them is a formula."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

from app.batch.batch_table import safe_cell, table_text
from app.studio.sweeps.plan import COLUMNS, as_csv

BASE = Path(__file__).parents[3] / "assets/studio/base"
FORMULAS = [
    *("=1", "+1", "-1", "@A", "\t=1", "\ta", "\ra"),
    *(" =1", "\n=1", "\r\n =1", "\xa0@A", "\u3000-1", "\ufeff=1", "\u200b\u2060+1", "\0=1", "\ufe0f=1"),
    *("＝1", "＋1", "－1", "＠A", "﹦1", " ＝1"),
]
PLAIN = ["", " ", "\n", "a=1", "'=1", "1-1", " a", "(=1)", "–1"]


def test_formulas_start_with_an_apostrophe_and_other_texts_stay() -> None:
    assert [safe_cell(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    assert [safe_cell(text) for text in PLAIN] == PLAIN
    assert safe_cell(-1) == -1
    text, guarded = table_text([{" =id": "\n=1"}])
    assert (text, guarded) == ("\ufeff' =id\r\n\"'\n=1\"\r\n", True)


def test_the_page_guards_the_same_texts(tmp_path: Path) -> None:
    for name in ("download.js", "dom.js"):
        shutil.copy(BASE / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    cells = json.dumps([[text] for text in FORMULAS + PLAIN])
    (tmp_path / "main.js").write_text(
        f'import {{ csv }} from "./download.js"\nprocess.stdout.write(csv({cells}))', encoding="utf-8"
    )
    found = subprocess.run(["node", "main.js"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    read = csv.reader(io.StringIO(found.stdout.decode(), newline=""))
    assert ["".join(cells) for cells in read] == [safe_cell(text) for text in FORMULAS + PLAIN]


def test_a_sweep_guards_the_name_of_its_model() -> None:
    numbers = dict.fromkeys(COLUMNS, 1.0)
    report = {
        "sweep": {"axis": "cached"},
        "model": {"name": "=1+1", "dtype": "float32", "device": "cpu"},
        "results": [{**numbers, "name": "cached", "samples_ms": [1.0], "params": numbers}],
    }
    (row,) = csv.DictReader(io.StringIO(as_csv(report)))
    assert row["model"] == "'=1+1"
