"""A document that is let go is gone at once: an editor makes one at every key."""

from __future__ import annotations

import gc

from engine.pml import bind, parse_prompt, parse_schema

SCHEMA = (
    "<schema name='s'><user><module name='m'>a <param name='p' len='2'/><module name='n'/></module></user>"
)


def test_parsed_documents_leave_no_cycles_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        for source in (SCHEMA, SCHEMA + "</schema>"):
            parsed = parse_schema(source.encode())  # bytes are in no cache
            prompt = parse_prompt(b"<prompt><n/><m p='x'/> new</prompt>")
            assert parsed.tree is not None
            assert prompt.tree is not None
            bound = bind(parsed.tree, prompt.tree)
            assert bound.schema is parsed.tree
            del parsed, prompt, bound
        assert gc.collect() == 0
    finally:
        gc.enable()
