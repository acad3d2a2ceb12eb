"""Text becomes the same tokens from every thread, and the same tokens as the whole text gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.engine import Engine
from engine.pml import parse_prompt, parse_schema
from engine.store import Store
from tests.engine.tiny import tiny_model

AUTHOR = "an author may write </s> and <s> in a text"
TURN = "<s><|user|>\nHello</s>\n"


def test_threads_never_see_one_another() -> None:
    model = tiny_model()
    plain, marks = model.tokenize(AUTHOR), model.chat.token_ids(TURN)
    assert model.tokenizer.eos_token_id not in plain
    assert model.tokenizer.eos_token_id in marks

    def work(turn: int) -> int:
        if turn % 3 == 2:  # the one who lent the tokenizer may go on using it
            return (
                model.tokenizer(TURN, split_special_tokens=turn % 2 > 0, truncation=True, max_length=3)
                is None
            )
        if turn % 3:
            return model.tokenize(AUTHOR) != plain
        return model.chat.token_ids(TURN) != marks

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(9000))) == 0


def test_no_wrong_tokens_are_kept_in_a_layout(tmp_path: Path) -> None:
    engine = Engine(tiny_model(), Store.open(tmp_path))
    source = (
        '<schema name="s"><system>{}&lt;/s></system><user><module name="m">&lt;s></module></user></schema>'
    )
    prompt = parse_prompt("<prompt><m/>Why &lt;/s>?</prompt>").tree
    assert prompt is not None

    def planned(turn: int) -> tuple[int, ...]:
        schema = parse_schema(source.format(turn % 40)).tree
        assert schema is not None
        _, plan = engine._plan(schema, prompt)
        return tuple(t for t in plan.token_ids if t in (0, 1))  # <s> and </s>, the template's own only

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(planned, range(600))) == {(0, 1, 1)}
