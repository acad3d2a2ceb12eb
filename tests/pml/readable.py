"""Drawn schemas and prompts that look as a person writes them, in several layouts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

NAMES = (
    *("intro", "terse", "tone", "rules", "style", "trip", "rome", "tokyo", "oslo", "budget", "notes"),
    *("doc-1", "doc-2", "doc-3", "about-cats", "about-dogs", "unit.py", "map.py", "glossary", "summary"),
    *("customer", "invoice", "policy", "faq", "table", "history", "persona", "examples", "appendix"),
    *("greeting", "closing", "sources", "warnings", "prices", "opening-hours", "how-to-get-there"),
    *("legal-notice", "colours", "sizes", "team", "roadmap", "milestones", "risks"),
)
SENTENCES = (
    *("Answer briefly.", "Be kind &amp; clear.", "Use a table where a &lt; b.", "Name the source."),
    *("The town lies by the river.", "R&amp;D is on the second floor.", "List&lt;String> names;"),
    *("It opens at nine; it closes at five.", "Prices are in euros.", "Ask before you buy."),
    *("We walked the ridge.", "No dogs inside.", "if x &amp;&amp; y then z", "Say so when you do not know."),
)
PARAMS = ("days", "city", "audience", "limit")


@dataclass
class Node:
    """An element, and in what layout its children are written."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def add(self, child: Node | str) -> Node | str:
        """Takes a child, and gives it back."""
        self.children.append(child)
        return child


@dataclass(frozen=True)
class Layout:
    """How elements are laid out: the step of indentation, or none at all; and what is written in a line."""

    step: str | None
    inline: bool

    def write(self, node: Node | str, depth: int = 0) -> str:
        """The text of a node, from its indentation to its line end."""
        before, after = ("", "") if self.step is None else (self.step * depth, "\n")
        if isinstance(node, str):
            return f"{before}{node}{after}"
        attributes = "".join(f' {name}="{value}"' for name, value in node.attributes.items())
        if not node.children:
            return f"{before}<{node.tag}{attributes}/>{after}"
        opening, closing = f"<{node.tag}{attributes}>", f"</{node.tag}>"
        plain = not any(isinstance(one, Node) and one.tag != "param" for one in node.children)
        if plain and (
            self.inline or self.step is None or any(isinstance(one, Node) for one in node.children)
        ):
            flat = Layout(None, True)
            return f"{before}{opening}{' '.join(flat.write(one) for one in node.children)}{closing}{after}"
        inner = "".join(self.write(one, depth + 1) for one in node.children)
        return f"{before}{opening}{after}{inner}{before}{closing}{after}"


LAYOUTS = (
    Layout("  ", False),
    Layout("  ", True),
    Layout("    ", True),
    Layout("\t", False),
    Layout("", True),
    Layout(None, True),
)


def _texts(rng: random.Random) -> list[Node | str]:
    return [rng.choice(SENTENCES) for _ in range(rng.randint(1, 2))]


def _module(rng: random.Random, names: list[str], depth: int) -> Node:
    module = Node("module", {"name": names.pop()})
    if rng.random() < 0.15:
        module.attributes["cache"] = "false"
    module.children += _texts(rng)
    if rng.random() < 0.3:
        name = rng.choice(PARAMS)
        attributes = {"name": name, "len": str(rng.randint(3, 9))}
        if rng.random() < 0.4:
            attributes["default"] = "a few"
        module.children += [Node("param", attributes), rng.choice(SENTENCES)]
    if depth and len(names) > 4 and rng.random() < 0.35:
        if rng.random() < 0.6:
            module.add(_union(rng, names, depth - 1))
        else:
            module.children += [_module(rng, names, depth - 1) for _ in range(rng.randint(1, 2))]
    return module


def _union(rng: random.Random, names: list[str], depth: int) -> Node:
    return Node("union", {}, [_module(rng, names, depth) for _ in range(rng.randint(2, 3))])


def schema(rng: random.Random) -> Node:
    """A schema of two to five turns, with modules in at least one."""
    names = list(NAMES)
    rng.shuffle(names)
    root = Node("schema", {"name": rng.choice(("library", "travel", "helpdesk"))})
    if rng.random() < 0.6:
        root.add(Node("system", {}, _texts(rng)))
    flat = rng.random() < 0.25
    host = root if flat else Node("user")
    host.children += _texts(rng)
    for _ in range(rng.randint(3, 7)):
        host.add(_union(rng, names, 1) if rng.random() < 0.3 else _module(rng, names, 2))
        if rng.random() < 0.2:
            host.add(rng.choice(SENTENCES))
    if not flat:
        root.add(host)
        if rng.random() < 0.4:
            root.add(Node("assistant", {}, _texts(rng)))
        if rng.random() < 0.3:
            turns = [Node("user", {}, _texts(rng)), Node("assistant", {}, _texts(rng))]
            root.add(Node("module", {"name": names.pop()}, list(turns)))
    return root


def _import(rng: random.Random, module: Node) -> Node:
    found = Node(module.attributes["name"])
    for child in module.children:
        if isinstance(child, Node) and child.tag == "param" and rng.random() < 0.7:
            if rng.random() < 0.7:
                found.attributes[child.attributes["name"]] = rng.choice(("3", "Lyon", "two weeks"))
            else:
                found.add(Node("arg", {"name": child.attributes["name"]}, ["3 days"]))
    nested = _picked(rng, [child for child in module.children if isinstance(child, Node)], 0.6)
    found.children += nested
    turns = any(isinstance(one, Node) and one.tag in ("user", "assistant") for one in module.children)
    if not nested and not turns and rng.random() < 0.12:
        found.add(rng.choice(SENTENCES))
    return found


def _picked(rng: random.Random, nodes: list[Node], share: float) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        if rng.random() > share:
            continue
        if node.tag == "union":
            members = [child for child in node.children if isinstance(child, Node)]
            found.append(_import(rng, rng.choice(members)))
        elif node.tag == "module":
            found.append(_import(rng, node))
    return found


def prompt(rng: random.Random, source: Node) -> Node:
    """A prompt for a schema, with a question at its end."""
    root = Node("prompt", {"schema": source.attributes["name"]})
    places: list[Node] = []
    for child in source.children:
        if isinstance(child, Node):
            places += (
                [one for one in child.children if isinstance(one, Node)]
                if child.tag in ("user",)
                else [child]
            )
    imports = _picked(rng, places, 0.7)
    if rng.random() < 0.25:
        rng.shuffle(imports)
    for one in imports:
        root.add(one)
        if rng.random() < 0.1:
            root.add(rng.choice(SENTENCES))
    if rng.random() < 0.7:
        root.add(Node("user", {}, ["What do you advise?"]))
    else:
        root.add("What do you advise?")
    return root
