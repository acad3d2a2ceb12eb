"""The Models page: what is loaded, what could be, and another model in its place while the page goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from engine.checkpoint.synthetic import byte_tokenizer
from tests.browser.conftest import QUESTIONS, Server, unrouted
from tests.browser.test_author import rewrite
from tests.browser.test_cache import SMALL, run
from tests.engine.tiny import tiny_network

LOADED = 120_000  # milliseconds


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """The folder of a model with one token per byte."""
    folder = tmp_path / "tiny-model"
    tiny_network(length=16384).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def models(author: Page, studio: Server) -> Iterator[Page]:
    """The Models page; afterwards the bundled model answers again, whatever the test has come to."""
    del studio
    author.evaluate("location.hash = '#/models'")
    expect(author.locator(".model-facts").first).to_be_visible()
    yield author
    author.evaluate("location.hash = '#/models'")
    if author.locator(".loaded strong").inner_text() != "demo":
        load(author, "demo")


def load(page: Page, name: str) -> None:
    page.get_by_label("A folder or GGUF file").fill(name)
    expect(page.locator("#model-verdict")).to_contain_text("fits")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator(".models-status")).to_contain_text("is loaded", timeout=LOADED)
    expect(page.locator(".loaded strong")).to_have_text(Path(name).name)


def tokens_of_module(page: Page) -> int:
    table = page.get_by_role("region", name="The open schema in this model")
    return int(table.get_by_role("row").last.locator("td").first.inner_text())


def test_another_model_answers_and_the_bundled_one_again(models: Page, tiny: str) -> None:
    pill = models.locator(".top .model, .model-button").first
    models.evaluate("location.hash = '#/author'")
    rewrite(models, "schema", SMALL)
    rewrite(models, "prompt", '<prompt schema="small"><m/>Well?</prompt>')
    run(models)
    models.evaluate("location.hash = '#/models'")
    expect(models.locator(".schema-sizes strong")).to_have_text("small")
    before = tokens_of_module(models)
    load(models, tiny)
    expect(pill).to_contain_text("tiny-model")
    expect(models.locator(".own")).to_contain_text("tiny-model")  # after the schema is measured
    assert tokens_of_module(models) == len("one two three") > before, "a token per byte"
    models.evaluate("location.hash = '#/author'")
    run(models)
    models.evaluate("location.hash = '#/models'")
    recent = models.get_by_role("group", name="Recent")
    expect(recent.get_by_role("button", name="tiny-model", exact=True)).to_be_visible()
    load(models, "demo")
    expect(pill).to_contain_text("demo")
    expect(models.locator(".own")).to_contain_text("demo")
    assert tokens_of_module(models) == before
    models.evaluate("location.hash = '#/author'")
    run(models)
    models.evaluate("location.hash = '#/models'")
    recent.get_by_role("button", name=re.compile("Forget .*tiny-model")).click()
    expect(recent).to_have_count(0)
    expect(models.get_by_label("A folder or GGUF file")).to_be_focused()


@pytest.mark.long
def test_files_of_one_name_are_told_apart(models: Page) -> None:
    others = {"device": "auto", "dtype": "auto", "weights": "auto", "quantize": "none"}
    names = ("/a/one/x.gguf", "/a/two/x.gguf", "/a/y.gguf", "/x.gguf")

    def answer(route: Route) -> None:
        if route.request.post_data_json["fn_name"] != "models_state":
            return route.continue_()
        told = route.fetch()
        recent = [{"name": name, **others} for name in names]
        return route.fulfill(response=told, json={**told.json(), "recent": recent})

    models.route(QUESTIONS, answer)
    models.evaluate("location.hash = '#/author'")
    models.evaluate("location.hash = '#/models'")
    recent = models.get_by_role("group", name="Recent").locator("button.choice")
    expect(recent).to_have_text(["one/x.gguf", "two/x.gguf", "y.gguf", "x.gguf"])
    unrouted(models)


def test_a_name_is_judged_as_it_is_typed_and_a_failure_keeps_the_model(
    models: Page, tiny: str, tmp_path: Path
) -> None:
    name, verdict = models.get_by_label("A folder or GGUF file"), models.locator("#model-verdict")
    load_button = models.get_by_role("button", name="Load", exact=True)
    name.fill(str(tmp_path))
    expect(verdict).to_contain_text("config.json is missing")
    expect(load_button).to_be_disabled()
    name.fill("owner/name")
    expect(verdict).to_contain_text("not on this machine")
    expect(models.get_by_role("button", name="Look up on huggingface.co")).to_be_visible()
    models.get_by_role("button", name="llama2-7b").click()
    expect(models.locator(".look")).to_contain_text("6.74 B")
    expect(models.get_by_label("Device").locator("option[value=mps]")).to_be_disabled()
    weights = Path(tiny) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4000])  # cut short: seen only when it is read
    name.fill(tiny)
    expect(verdict).to_contain_text("fits")
    load_button.click()
    expect(models.locator(".models-status")).to_contain_text("demo stays loaded", timeout=LOADED)
    expect(models.locator(".loaded strong")).to_have_text("demo")
    pill = models.locator(".pill.model")
    pill.locator(".name").evaluate("node => { node.textContent = 'A-Model-With-A-Very-Long-Name.Q4_K_M' }")
    expect(pill).to_contain_text("· cpu ·")
    assert pill.evaluate("node => node.scrollWidth <= node.clientWidth")
    models.set_viewport_size({"width": 400, "height": 800})
    assert models.evaluate("document.documentElement.scrollWidth") <= 400
