"""Prefixes that clients mark: written to disk up to the mark, to the token, and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.server.core.service import Limits
from tests.app.server.served import LONG, Served, served


def marked(text: str, ttl: str | None = None) -> dict[str, Any]:
    control = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return {"type": "text", "text": text, "cache_control": control}


def ask(server: Served, system: list[Any], question: str, **more: Any) -> Any:
    made = server.anthropic().messages.create(
        model=server.model,
        max_tokens=2,
        system=system,
        extra_body={"temperature": 0},
        messages=[{"role": "user", "content": question}],
        **more,
    )
    usage = made.usage
    total = server.anthropic().messages.count_tokens(
        model=server.model, system=system, messages=[{"role": "user", "content": question}]
    )
    read, created = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert usage.input_tokens + read + created == total.input_tokens
    assert (
        usage.cache_creation.ephemeral_5m_input_tokens + usage.cache_creation.ephemeral_1h_input_tokens
        == created
    )
    return made


def size(server: Served, system: list[Any]) -> int:
    """How many tokens stand up to the end of the system text."""
    from engine import Block, Message

    messages = [
        Message("system", tuple(Block(one["text"]) for one in system)),
        Message("user", (Block("?"),)),
    ]
    return server.engine.conversation(messages).borders()[len(system) - 1]


def test_a_mark_is_written_and_then_read_to_the_token_also_after_a_restart(tmp_path: Path) -> None:
    system = [marked(LONG)]
    with served(tmp_path) as server:
        length = size(server, system)
        assert length % 64
        first = ask(server, system, "Once?").usage
        assert (first.cache_creation_input_tokens, first.cache_read_input_tokens) == (length, 0)
        second = ask(server, system, "Something else, then?").usage
        assert (second.cache_creation_input_tokens, second.cache_read_input_tokens) == (0, length)
    with served(tmp_path) as server:
        third = ask(server, system, "And now?").usage
        assert (third.cache_creation_input_tokens, third.cache_read_input_tokens) == (0, length)


def test_the_mark_moves_on_with_the_conversation(server: Served) -> None:
    client, turns, before = server.anthropic(), [], 0
    for number in range(4):
        text = f"Question {number}: {LONG}"
        asked = [*turns, {"role": "user", "content": [marked(text)]}]
        usage = client.messages.create(
            model=server.model, max_tokens=2, messages=asked, extra_body={"temperature": 0}
        ).usage
        assert usage.cache_read_input_tokens >= before
        assert usage.cache_creation_input_tokens > 0
        before = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        turns += [{"role": "user", "content": text}, {"role": "assistant", "content": "Indeed."}]


def test_times_to_live_are_told_apart(server: Served) -> None:
    system = [marked(f"An hour. {LONG}", "1h"), marked(f"Five minutes. {LONG}")]
    first = ask(server, system, "Once?").usage.cache_creation
    hour, both = size(server, system[:1]), size(server, system)
    assert (first.ephemeral_1h_input_tokens, first.ephemeral_5m_input_tokens) == (hour, both - hour)


def test_a_request_that_is_marked_as_a_whole_marks_its_last_block(server: Served) -> None:
    asked: dict[str, Any] = {"model": server.model, "max_tokens": 2, "cache_control": {"type": "ephemeral"}}
    asked["messages"] = [{"role": "user", "content": f"As a whole. {LONG}"}]
    client = server.anthropic()
    first, second = (client.messages.create(**asked, extra_body={"temperature": 0}).usage for _ in range(2))
    assert first.cache_creation_input_tokens > 64
    assert second.cache_read_input_tokens >= first.cache_creation_input_tokens
    assert second.cache_creation_input_tokens == 0


def test_a_prefix_that_is_too_short_is_not_kept_and_says_so(server: Served) -> None:
    made = ask(server, [marked("Short.")], "Once?", extra_headers={"x-prompt-cache": "report"})
    assert made.usage.cache_creation_input_tokens == 0
    (told,) = made.prompt_cache["marks"]
    assert told["param"] == "system.0.cache_control"
    assert told["reason"].startswith("below_minimum")


def test_where_there_is_no_room_nothing_counts_as_written_and_the_report_says_why(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        kept = ask(server, [marked(LONG, "1h")], "Once?").usage.cache_creation_input_tokens
        assert kept > 64
        server.engine.store.set_budget(server.engine.store.stats().bytes)
        system = [marked(f"An hour. {LONG}", "1h"), marked(f"Five minutes. {LONG}")]
        made = ask(server, system, "Twice?", extra_headers={"x-prompt-cache": "report"})
        assert made.usage.cache_creation_input_tokens == made.prompt_cache["written"] == 0
        for told in made.prompt_cache["marks"]:
            assert told["reason"].startswith("not_written: ")
            assert "no room left" in told["reason"]
            assert str(tmp_path) not in told["reason"]
        server.engine.store.finish_writing()
        assert sum(row["tokens"] for row in server.engine.store.segments()) == kept


def test_modules_count_as_written_as_far_as_there_is_room(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        size = server.engine.model.bytes_per_token
        server.engine.store.set_budget(100 * size)
        texts = {"a": "Alpha. " * 8, "b": "Beta. " * 40, "c": LONG * 3}
        blocks = [{"type": "text", "text": text, "module": name} for name, text in texts.items()]
        made = server.openai().chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": [*blocks, {"type": "text", "text": "?"}]}],  # type: ignore[list-item]
            max_tokens=2,
            temperature=0,
            extra_body={"include": ["prompt_cache"]},
        )
        server.engine.store.finish_writing()
        stored = sum(row["tokens"] for row in server.engine.store.segments())
        usage: Any = made.usage
        written = usage.prompt_tokens_details.cache_write_tokens
        assert 0 < written <= stored < written + 8, "but for what a prompt leaves out of a segment's edges"
        tokens = sum(one["tokens"] for one in made.prompt_cache["modules"])  # type: ignore[attr-defined]
        assert stored < tokens


def test_a_text_that_nobody_marks_is_not_written(server: Served) -> None:
    client = server.openai()
    prompt = f"As it is. {LONG}"
    for _ in range(2):
        made = client.completions.create(
            model=server.model, prompt=prompt, max_tokens=2, extra_body={"include": ["prompt_cache"]}
        )
        assert made.usage is not None
        told: Any = made.usage.prompt_tokens_details
        assert told.cache_write_tokens == 0
        assert made.prompt_cache["modules"] == []  # type: ignore[attr-defined]
    assert told.cached_tokens >= made.usage.prompt_tokens - 64
    server.engine.store.finish_writing()
    assert "completion" not in {row["schema"] for row in server.engine.store.segments()}


def test_the_least_length_can_be_set(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(least=8)) as server:
        assert ask(server, [marked("A short system text.")], "Once?").usage.cache_creation_input_tokens > 8


def test_breakpoints_of_openai_are_written_and_read(server: Served) -> None:
    client = server.openai()

    def usage(question: str, **more: Any) -> Any:
        part = {"type": "text", "text": f"OpenAI. {LONG}", "prompt_cache_breakpoint": {"mode": "explicit"}}
        messages: list[Any] = [{"role": "system", "content": [part]}, {"role": "user", "content": question}]
        made = client.chat.completions.create(
            model=server.model, messages=messages, max_tokens=2, temperature=0, **more
        )
        return made.usage.prompt_tokens_details

    first = usage("Once?")
    second = usage(
        "Twice, or how often?", extra_body={"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}
    )
    assert first.cache_write_tokens > 64
    assert (first.cached_tokens, second.cached_tokens, second.cache_write_tokens) == (
        0,
        first.cache_write_tokens,
        0,
    )


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_warm_up_answers_nothing_and_the_next_request_reads(server: Served, dialect: str) -> None:
    text = f"Warm, in the words of {dialect}. {LONG}"
    if dialect == "anthropic":
        client = server.anthropic()
        asked = {"model": server.model, "messages": [{"role": "user", "content": [marked(text)]}]}
        made = client.messages.create(**asked, max_tokens=0)
        assert (made.content, made.stop_reason, made.usage.output_tokens) == ([], "max_tokens", 0)
        assert client.messages.create(**asked, max_tokens=1).usage.cache_read_input_tokens >= 128
    else:
        chat = server.openai().chat.completions
        told: dict[str, Any] = {
            "model": server.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 1,
        }
        made = chat.create(**told, extra_body={"prompt_cache_options": {"mode": "implicit", "prewarm": True}})
        assert made.usage.completion_tokens == 0
        assert chat.create(**told).usage.prompt_tokens_details.cached_tokens >= 128


@pytest.mark.parametrize("strict", [True, False])
def test_a_time_to_live_is_a_floor_and_a_ceiling_where_that_is_wanted(tmp_path: Path, strict: bool) -> None:
    system = [marked(f"For five minutes. {LONG}")]
    now = [1_000_000.0]
    with served(tmp_path, strict=strict, clock=lambda: now[0]) as server:
        length = size(server, system)
        assert ask(server, system, "Once?").usage.cache_creation_input_tokens == length
        now[0] += 299
        assert ask(server, system, "Twice?").usage.cache_read_input_tokens == length
        server.engine.store.finish_writing()
        assert server.engine.store.prune(max_bytes=0).segments == 0, "nothing evicts it before"
        now[0] += 299
        assert ask(server, system, "A third time?").usage.cache_read_input_tokens == length, "a read renews"
        now[0] += 301
        last = ask(server, system, "At last?").usage
        found = (last.cache_creation_input_tokens, last.cache_read_input_tokens)
        assert found == ((length, 0) if strict else (0, length))


def test_a_promise_holds_over_a_restart(tmp_path: Path) -> None:
    system = [marked(f"For an hour. {LONG}", "1h")]
    with served(tmp_path) as server:
        length = size(server, system)
        ask(server, system, "Once?")
    with served(tmp_path) as server:
        assert server.engine.store.prune(max_bytes=0).segments == 0
        assert ask(server, system, "Again?").usage.cache_read_input_tokens == length


def test_what_another_server_forgets_for_its_time_is_forgotten_in_memory_too(tmp_path: Path) -> None:
    now = [1e9]
    system = [marked(f"Among two. {LONG}")]
    with (
        served(tmp_path, strict=True, clock=lambda: now[0]) as one,
        served(tmp_path, strict=True, clock=lambda: now[0]) as other,
    ):
        length = ask(one, system, "Once?").usage.cache_creation_input_tokens
        assert length > 64
        now[0] += 400
        ask(other, [marked("Something else.")], "Well?")
        assert ask(one, system, "Twice?").usage.cache_read_input_tokens == 0
        assert ask(one, system, "And now?").usage.cache_read_input_tokens == length


@pytest.mark.parametrize("path", ["plan", "residency"])
def test_plans_and_residents_know_what_has_outlived_its_time(tmp_path: Path, path: str) -> None:
    now = [1e9]
    with served(tmp_path, strict=True, clock=lambda: now[0]) as server:
        system = [marked(f"Planned. {LONG}")]
        ask(server, system, "Once?")
        body = {"model": server.model, "system": system, "messages": [{"role": "user", "content": "Twice?"}]}

        def seen() -> bool:
            if path == "residency":
                return bool(server.http.get("/v1/prompt_cache/residency").json()["segments"])
            headers = {"anthropic-version": "2023-06-01"}
            told = server.http.post("/v1/prompt_cache/plan", json=body, headers=headers).json()
            return bool(told["read"] > 64)

        assert seen()
        now[0] += 400
        assert not seen()


def named(name: str, text: str, ttl: str | None = None) -> dict[str, Any]:
    return {**(marked(text, ttl) if ttl else {"type": "text", "text": text}), "module": name}


def test_times_to_live_are_told_apart_round_named_blocks(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        ask(server, [named("a", LONG)], "Once?")
        hour = marked(f"An hour. {LONG}", "1h")
        usage = ask(server, [hour, named("a", LONG), marked(f"Five minutes. {LONG}")], "Twice?").usage
        assert usage.cache_creation.ephemeral_1h_input_tokens >= size(server, [hour]) - 1
        assert usage.cache_creation.ephemeral_5m_input_tokens > 64
        hour = marked(f"Another hour. {LONG}", "1h")
        usage = ask(server, [hour, named("b", f"Without a mark. {LONG}")], "And now?").usage
        assert 0 <= size(server, [hour]) - usage.cache_creation.ephemeral_1h_input_tokens <= 8
        assert usage.cache_creation.ephemeral_5m_input_tokens > 64, "it has none, and none that is longer"


def test_the_report_has_each_name_of_a_text(server: Served) -> None:
    text = f"One text. {LONG}"
    for outcome in ("miss", "hit"):
        made = ask(
            server, [named("z", text), named("a", text)], "So?", extra_headers={"x-prompt-cache": "report"}
        )
        told = [one for one in made.prompt_cache["modules"] if one["path"]]
        assert {one["path"] for one in told} == {"a", "z"}
        assert {one["outcome"] for one in told} == {outcome}


def test_a_mark_that_finds_no_block_is_refused(server: Served) -> None:
    body = {"model": server.model, "max_tokens": 1, "cache_control": {"type": "ephemeral"}}
    told = server.http.post("/v1/messages", json={**body, "messages": [{"role": "user", "content": []}]})
    assert told.status_code == 400, told.text
