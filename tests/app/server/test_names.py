"""The names that a served model is asked for by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.server.served import FAMILY, served
from tests.engine.cases import model_of


def test_a_model_of_a_path_has_a_name_of_its_own_and_is_found_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(FAMILY)
    path = str(tmp_path / "folder" / "Some-Model.Q4_1.gguf")
    monkeypatch.setattr(model, "name", path)
    monkeypatch.setattr(model, "stored", replace(model.stored, name="Some-Model.Q4_1"))
    with served(tmp_path, model=model) as server:
        listed = server.http.get("/v1/models").json()["data"]
        assert [one["id"] for one in listed] == ["Some-Model.Q4_1", "alias"]
        for name in ("Some-Model.Q4_1", "alias", path, "Some-Model.Q4_1.gguf"):
            asked = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            assert server.http.post("/v1/chat/completions", json=asked).status_code == 200, name
        wrong = server.http.get("/v1/models/other")
        assert wrong.status_code == 404
        assert path not in wrong.text
