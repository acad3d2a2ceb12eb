"""Templates of embeddings: schemas whose parameter `text` takes the text. No tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.base.errors import SettingsError
from engine.pml import Module
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.tree import Argument, Import, Prompt, Text
from engine.prompt.recipe import RecipeSlice
from engine.prompt.template.tokenizer import Fragment
from engine.prompt.tokenized import TokenizedPrompt, TokenizedSchema

TEXT = "text"  # the parameter's name
_SLOT = f'<param name="{TEXT}" len="8"/>'
PLAIN = '<schema name="plain-text"/>'
BUILT_IN: Mapping[str, str] = {
    "prompteol": (
        f'<schema name="prompteol">This sentence : "<module name="sentence">{_SLOT}" means in one word:"'
        "</module></schema>"
    ),
    "echo": (
        f'<schema name="echo">Rewrite the sentence: <module name="sentence">{_SLOT}, rewritten sentence: '
        f'<param name="{TEXT}"/></module></schema>'
    ),
}


@dataclass(frozen=True)
class Template:
    """The tokens around a text.

    Attributes:
        prompt: the prompt whose plan these tokens are from.
        parts: the tokens before, between and after the places of the text, one more than there are places.
        slices: the slices of segments in the first part, in order of position.
    """

    prompt: TokenizedPrompt
    parts: tuple[tuple[int, ...], ...]
    slices: tuple[RecipeSlice, ...]

    def around(self, text: str) -> tuple[list[int], slice]:
        """Returns the tokens of a text in the template, and those at the last place of the text."""
        encode = self.prompt.schema.spec.chat.tokens.encode
        tokens, place = list(self.parts[0]), slice(0)
        for part in self.parts[1:]:
            behind = tokens[-1] if tokens else None
            (written,) = encode([Fragment(text)], begins=not tokens, behind=behind)
            place = slice(len(tokens), len(tokens) + len(written))
            tokens += [*written, *part]
        return tokens, place


def _imports(nodes: Iterable[object]) -> Iterator[Import]:
    """Imports of the modules with a parameter `text`."""
    for node in nodes:
        within = tuple(_imports(getattr(node, "children", getattr(node, "members", ()))))
        if not isinstance(node, Module):
            yield from within
            continue
        own = any(param.name == TEXT for param in node.params())
        arguments = (Argument(TEXT, TEXT, NOWHERE, NOWHERE),) if own else ()
        if own or within:
            yield Import(node.name, arguments, within, NOWHERE, NOWHERE)


def template_of(schema: TokenizedSchema, *, plain: bool) -> Template:
    """Returns the template of a schema: with a text in every parameter `text`, or a `plain` text after it.

    Raises:
        SettingsError: the schema has no such parameter.
    """
    tree = schema.tree
    children = (Text(TEXT, NOWHERE),) if plain else tuple(_imports(tree.children))
    if not children:
        raise SettingsError(
            f"template {tree.name!r} has no parameter for the text. Add one to a module: "
            f'<module name="sentence"><param name="{TEXT}" len="8"/></module>.'
        )
    prompt = TokenizedPrompt(schema, Prompt(tree.name, children, NOWHERE))
    planned = prompt.planned()
    parts: list[list[int]] = [[]]
    slices: list[RecipeSlice] = []
    for piece, use in zip(planned.plan.pieces, planned.slices, strict=True):
        if piece.kind == "text" if plain else piece.path.endswith(f":{TEXT}"):
            parts.append([])
            continue
        if len(parts) == 1 and use is not None and piece.start == len(parts[0]):
            slices.append(use)
        parts[-1] += piece.token_ids
    return Template(prompt, tuple(map(tuple, parts)), tuple(slices))
