"""Schemas as resources: put, described, listed, kept for a while, deleted; hostile names and documents."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.core import schema_files, schema_folder
from app.server.http.access import Access
from engine.store import Store
from tests.app.server.served import LONG, Served, served

SCHEMA = f"""<schema name="trip">
  <system>Plan short journeys.</system>
  <user>
    <module name="rome">{LONG}Rome is best on foot.</module>
    <module name="oslo">{LONG}Oslo has a fjord and <param name="what" len="12" default="boats"/>.</module>
  </user>
</schema>"""
PATH = "/v1/prompt_cache/schemas"
XML = {"content-type": "application/xml"}


def named(name: str, words: str = "Rome is best on foot.") -> str:
    return f'<schema name="{name}"><user><module name="one">{words}</module></user></schema>'


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as made:
        yield made
        for one in made.get(PATH).json()["schemas"]:
            made.delete(f"{PATH}/{one['name']}")


def put(client: httpx.Client, name: str, pml: str, **more: Any) -> httpx.Response:
    return client.put(f"{PATH}/{name}", json={"pml": pml, **more})


def test_a_schema_is_put_described_and_deleted(server: Served, client: httpx.Client) -> None:
    made = client.put(f"{PATH}/trip", content=SCHEMA.encode(), headers=XML)
    assert made.status_code == 201
    told = made.json()
    assert (told["name"], told["model"], told["pinned"]) == ("trip", server.model, False)
    assert told["expires_at"] is None
    prepared = server.engine.schema(SCHEMA)
    layout = prepared.tokenized.layout
    assert [(one["path"], one["tokens"]) for one in told["modules"]] == [
        (run.path, run.tokens) for run in layout.runs
    ]
    assert told["token_count"] == sum(run.tokens for run in layout.runs)
    keys = {one["key"] for one in told["modules"] if one["key"]}
    assert keys == {recipe.key for recipe in prepared.tokenized.encodings("anchored")}
    again = client.put(f"{PATH}/trip", content=SCHEMA.encode(), headers={"content-type": "text/xml"})
    assert (again.status_code, again.json()["created_at"]) == (200, told["created_at"])
    assert client.get(f"{PATH}/trip").json()["digest"] == told["digest"]
    assert client.delete(f"{PATH}/trip").status_code == 204
    for gone in (client.get, client.delete):
        found = gone(f"{PATH}/trip")
        assert (found.status_code, found.json()["error"]["code"]) == (404, "schema_not_found")
        assert "'trip'" in found.json()["error"]["message"]


def test_another_text_replaces_it_and_what_is_the_same_keeps_its_segment(client: httpx.Client) -> None:
    first = put(client, "trip", SCHEMA, encode=True).json()
    assert {one["tier"] for one in first["modules"] if one["key"]} <= {"disk", "memory"}
    other = put(client, "trip", SCHEMA.replace("fjord", "harbour"))
    assert other.status_code == 201
    before = {one["path"]: one for one in first["modules"]}
    after = {one["path"]: one for one in other.json()["modules"]}
    assert after["rome"]["key"] == before["rome"]["key"]
    assert after["rome"]["tier"] in ("disk", "memory")
    assert after["oslo"]["key"] != before["oslo"]["key"]
    assert after["oslo"]["tier"] == "none"
    assert other.json()["digest"] != first["digest"]


def test_schemas_are_listed_by_name_and_page(client: httpx.Client) -> None:
    given = ["delta", "alpha", "charlie", "bravo", "Ärger", "東京"]
    for name in given:
        assert put(client, name, named(name)).status_code == 201
    found, token = [], None
    while True:
        asked = {"page_size": 4, **({"page_token": token} if token else {})}
        page = client.get(PATH, params=asked).json()
        assert len(page["schemas"]) <= 4
        found += [one["name"] for one in page["schemas"]]
        token = page.get("next_page_token")
        if token is None:
            break
    assert found == sorted(given)
    for bad in ({"page_size": 0}, {"page_size": "x"}, {"page_token": "é"}, {"page_token": "A"}):
        found_fault = client.get(PATH, params=bad)
        assert found_fault.status_code == 400
        assert found_fault.json()["error"]["param"].endswith(next(iter(bad)))


def test_only_terms_are_changed(client: httpx.Client) -> None:
    put(client, "trip", SCHEMA)
    now = time.time()
    told = client.patch(f"{PATH}/trip", json={"ttl": "5m"}).json()
    assert told["expires_at"].endswith("Z")
    assert abs(moment(told["expires_at"]) - now - 300) < 60
    told = client.patch(f"{PATH}/trip", json={"expires_at": "2030-01-01T00:00:00+01:00"}).json()
    assert told["expires_at"] == "2029-12-31T23:00:00.000Z"
    told = client.patch(f"{PATH}/trip", json={"pinned": True}).json()
    assert (told["pinned"], told["expires_at"]) == (True, "2029-12-31T23:00:00.000Z")
    assert client.patch(f"{PATH}/trip", json={"ttl": None}).json()["expires_at"] is None
    for body, param in (
        ({"pml": SCHEMA}, "pml"),
        ({"name": "x"}, "name"),
        ({"ttl": "5 minutes"}, "ttl"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": -1}, "ttl"),
        ({"ttl": "9999999999d"}, "ttl"),
        ({"ttl": [1]}, "ttl"),
        ({"ttl": "1h", "expires_at": "2030-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2030-01-01"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"pinned": "maybe"}, "pinned"),
    ):
        refused = client.patch(f"{PATH}/trip", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), body
    assert client.patch(f"{PATH}/trip", content=b'{"ttl": NaN}').status_code == 400
    assert client.patch(f"{PATH}/trip", content=b"[" * 100_000).status_code == 400
    assert client.patch(f"{PATH}/trip", json=[]).status_code == 400
    assert client.patch(f"{PATH}/nobody", json={"ttl": "5m"}).status_code == 404


def moment(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("300s", 300), ("5m", 300), ("1h", 3600), (90, 90), ("2d", 172800), ("1.5s", 1.5)]
)
def test_times_to_live_are_read_as_the_vendors_write_them(
    client: httpx.Client, ttl: Any, seconds: float
) -> None:
    told = put(client, "short", named("short"), ttl=ttl).json()
    assert abs(moment(told["expires_at"]) - moment(told["created_at"]) - seconds) < 5


def test_what_is_not_said_again_stays(client: httpx.Client) -> None:
    first = put(client, "trip", SCHEMA, ttl="1h", pinned=True).json()
    same = client.put(f"{PATH}/trip", content=SCHEMA.encode(), headers=XML).json()
    assert (same["expires_at"], same["pinned"]) == (first["expires_at"], True)


def test_a_schema_is_gone_when_its_time_is_over(server: Served, client: httpx.Client) -> None:
    put(client, "brief", named("brief", LONG), ttl="5m", pinned=True, encode=True)
    put(client, "stays", named("stays"))
    assert "brief" in server.engine.store.settings.pins()
    server.service.schemas.clock = lambda: time.time() + 301
    try:
        assert client.get(f"{PATH}/brief").status_code == 404
        assert [one["name"] for one in client.get(PATH).json()["schemas"]] == ["stays"]
        assert client.patch(f"{PATH}/brief", json={"ttl": "1h"}).status_code == 404
        assert "brief" not in server.engine.store.settings.pins()
    finally:
        server.service.schemas.clock = time.time
    assert client.get(f"{PATH}/brief").status_code == 404


def test_pins_are_taken_away_again(server: Served, client: httpx.Client) -> None:
    pins = server.engine.store.settings.pins
    put(client, "held", named("held", LONG), pinned=True, encode=True)
    assert "held" in pins()
    client.patch(f"{PATH}/held", json={"pinned": False})
    assert "held" not in pins()
    client.patch(f"{PATH}/held", json={"pinned": True})
    assert "held" in pins()
    client.delete(f"{PATH}/held")
    assert "held" not in pins()


def test_schemas_are_there_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        told = put(client, "trip", SCHEMA, ttl="1h", encode=True).json()
    with served(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        again = client.get(f"{PATH}/trip").json()
        assert {**again, "modules": []} == {**told, "modules": []}
        assert {one["tier"] for one in again["modules"] if one["key"]} == {"disk"}
    with_store = Store.open(tmp_path)
    try:
        assert with_store.verify().foreign == ()
    finally:
        with_store.close()


def test_clients_see_their_own_schemas_where_they_are_apart(tmp_path: Path) -> None:
    access = Access(keys=("one", "two"))
    with served(tmp_path, access=access, isolate=True) as server:
        one, two = (
            httpx.Client(base_url=server.url, headers={"x-api-key": key}, timeout=60) for key in access.keys
        )
        with one, two:
            put(one, "trip", SCHEMA)
            assert two.get(f"{PATH}/trip").status_code == 404
            assert two.get(PATH).json() == {"schemas": []}
            assert two.delete(f"{PATH}/trip").status_code == 404
            assert put(two, "trip", named("trip", "Quite another.")).status_code == 201
            assert one.get(f"{PATH}/trip").json()["digest"] != two.get(f"{PATH}/trip").json()["digest"]
            asked = {
                "model": server.model,
                "messages": [],
                "max_tokens": 1,
                "prompt_cache": {"schema": "mine"},
            }
            put(one, "mine", named("mine"))
            assert two.post("/v1/chat/completions", json=asked).status_code == 404
            assert one.post("/v1/chat/completions", json=asked).status_code == 200
            two.delete(f"{PATH}/trip")
            assert one.get(f"{PATH}/trip").status_code == 200


@pytest.mark.parametrize(
    ("pml", "code", "line", "column"),
    [
        ('<schema name="trip">\n  <user>A & B</user>\n</schema>', "E109", 2, 11),
        (
            '<schema name="trip">\n<module name="a">x</module>\n<module name="a">y</module></schema>',
            "E302",
            3,
            15,
        ),
        ('<!DOCTYPE x [<!ENTITY a "b">]>\n<schema name="trip"/>', "E111", 1, 1),
        ('<schema name="trip">&xxe;</schema>', "E110", 1, 21),
        ("trip.pml", "E121", 1, 1),
        ("", "E116", 1, 1),
        ('<schema name="trip">\0</schema>', "E103", 1, 21),
        ('<prompt schema="trip"/>', "E201", 1, 2),
    ],
)
def test_faults_are_told_with_their_places(
    client: httpx.Client, pml: str, code: str, line: int, column: int
) -> None:
    found = put(client, "trip", pml)
    assert found.status_code == 400
    error = found.json()["error"]
    assert error["param"] == "pml"
    told = [(one["code"], one["line"], one["column"]) for one in error["diagnostics"]]
    assert (code, line, column) in told
    assert all(one["message"] and "hint" in one for one in error["diagnostics"])
    assert client.get(f"{PATH}/trip").status_code == 404


def test_entities_are_not_unfolded(client: httpx.Client) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY a "aaaa">' + "".join(
        f'<!ENTITY {chr(98 + at)} "{f"&{chr(97 + at)};" * 10}">' for at in range(20)
    )
    found = put(client, "trip", f'{bomb}]><schema name="trip"><user>&u;</user></schema>')
    assert found.status_code == 400


def test_no_file_of_the_server_is_read(
    server: Served, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    (tmp_path / "secret.pml").write_text('<schema name="s"><user>the secret</user></schema>')
    monkeypatch.chdir(tmp_path)
    opened: list[Any] = []
    real = os.open

    def watched(path: Any, *given: Any, **more: Any) -> int:
        opened.append(path)
        return real(path, *given, **more)

    monkeypatch.setattr(os, "open", watched)
    for src in (
        "secret.txt",
        f"{tmp_path}/secret.txt",
        "../secret.txt",
        "/dev/zero",
        "secret.pml",
        "file:///x",
    ):
        for inner in (f'<module name="a" src="{src}"/>', f'<include src="{src}"/>'):
            pml = f'<schema name="trip"><user>{inner}</user></schema>'
            found = put(client, "trip", pml)
            assert found.status_code == 400
            assert found.json()["error"]["diagnostics"][0]["code"] in ("E208", "E209", "E211")
            assert "the secret" not in found.text
            error = found.json()["error"]
            assert "send" in error["diagnostics"][0]["hint"]
            for told in (error["message"], error["diagnostics"][0]["message"]):
                assert "put its text in the PML" in told
                assert "folder" not in told
            asked = {"model": server.model, "messages": [], "prompt_cache": {"schema": pml}}
            assert client.post("/v1/chat/completions", json=asked).status_code == 400
    assert not [one for one in opened if "secret" in str(one) or str(one) == "/dev/zero"]


HOSTILE = ("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "a%00b", "x" * 5000, "%ff%fe", "a%2fb", ".lock")
HOSTILE += ("%E2%80%AEgnp", "CON", "trip.json", "tr%C4%B1p", "%D1%82rip", " trip", "TRIP")


def test_no_name_leads_out_of_the_folder(server: Served, client: httpx.Client) -> None:
    folder = server.engine.store.folder

    def others() -> set[Path]:
        return {one for one in (*folder.parent.iterdir(), *folder.iterdir()) if one.name != "schemas"}

    before = others()
    for name in HOSTILE:
        url = f"{server.url}{PATH}/{name}"
        for found in (
            client.put(url, json={"pml": SCHEMA}),
            client.get(url),
            client.patch(url, json={"ttl": 9}),
            client.delete(url),
        ):
            assert found.status_code in (400, 404, 405), (name, found.status_code)
    assert others() == before
    shelf = names(folder / "schemas")
    assert all(one == ".lock" or schema_folder.FILE_NAME.fullmatch(one) for one in shelf)


def test_names_that_look_alike_are_others(client: httpx.Client) -> None:
    latin, cyrillic, composed, decomposed = "trip", "т" + "rip", "é", "e\u0301"
    for name in (latin, cyrillic, composed, decomposed):
        assert put(client, name, named(name, name)).status_code == 201
    digests = {
        client.get(f"{PATH}/{name}").json()["digest"] for name in (latin, cyrillic, composed, decomposed)
    }
    assert len(digests) == 4


def test_the_name_must_be_the_schemas_own(client: httpx.Client) -> None:
    found = put(client, "other", SCHEMA)
    assert (found.status_code, found.json()["error"]["param"]) == (400, "name")
    assert "'trip'" in found.json()["error"]["message"]


def test_large_documents_are_taken_or_refused(client: httpx.Client) -> None:
    large = named("large", "x " * (2600 * 1024))
    found = put(client, "large", large)
    assert (found.status_code, found.json()["error"]["param"]) == (413, "pml")
    deep = '<schema name="deep">' + '<module name="a">' * 300 + "</module>" * 300 + "</schema>"
    assert put(client, "deep", deep).status_code == 400
    wide = '<schema name="wide"><user>' + "<b/>" * 20_000 + "</user></schema>"
    found = put(client, "wide", wide)
    assert found.status_code == 400
    assert len(found.json()["error"]["diagnostics"]) <= 1001


def test_bodies_that_are_none_are_refused(client: httpx.Client) -> None:
    url = f"{PATH}/trip"
    for content, kind in (
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"{}", "application/json"),
        (b'{"pml": 3}', "application/json"),
        (b'{"pml": "\\ud800"}', "application/json"),
        (b'{"pml": "x", "src": "y"}', "application/json"),
        (b"\xff\xfe<\0", "application/xml"),
        (b"\xff", "text/xml"),
    ):
        assert client.put(url, content=content, headers={"content-type": kind}).status_code == 400, content
    refused = client.put(url, content=b"<schema/>", headers={"content-type": "text/html"})
    assert refused.status_code == 415
    assert "application/xml" in refused.json()["error"]["message"]


def test_of_clients_that_put_one_name_at_once_one_wins_whole(server: Served, client: httpx.Client) -> None:
    texts = [named("race", f"Version {number}. {LONG}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(lambda text: put(client, "race", text).status_code, texts)]
    assert set(found) <= {200, 201}
    kept = server.service.schemas.get("", "race")
    assert kept is not None
    assert kept.text in texts
    leftovers = [one for one in names(server.engine.store.folder / "schemas") if one.endswith(".tmp")]
    assert leftovers == []


def test_a_file_that_was_not_written_here_counts_for_nothing(server: Served, client: httpx.Client) -> None:
    put(client, "trip", SCHEMA)
    folder = server.engine.store.folder / "schemas"
    (file,) = (folder / name for name in names(folder) if name.endswith(".json"))
    sound = json.loads(file.read_bytes())
    for broken in (
        b"",
        b"[" * 100_000,
        b'{"version": 1}',
        json.dumps({**sound, "name": "other"}).encode(),
        json.dumps({**sound, "created_at": "x"}).encode(),
        json.dumps({**sound, "text": "\ud800"}).encode(),
        json.dumps({**sound, "expires_at": 1e400}).encode(),
    ):
        file.write_bytes(broken)
        assert client.get(f"{PATH}/trip").status_code == 404
        assert client.get(PATH).json() == {"schemas": []}
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert client.get(f"{PATH}/trip").status_code == 404
    assert put(client, "trip", SCHEMA).status_code == 201
    assert not file.is_symlink()


def test_there_is_a_bound_of_schemas(
    server: Served, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_files, "MOST", 2)
    for name in ("one", "two"):
        assert put(client, name, named(name)).status_code == 201
    full = put(client, "three", named("three"))
    assert (full.status_code, full.json()["error"]["param"]) == (400, "pml")
    assert put(client, "two", named("two", "Other words.")).status_code == 201
    monkeypatch.setattr(schema_files, "MOST_BYTES", 100)
    assert put(client, "two", named("two", "x " * 100)).status_code == 400
