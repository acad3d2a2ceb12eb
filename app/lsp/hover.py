"""Hover texts, in plain text without markup."""

from __future__ import annotations

from app.base.pml_keywords import ATTRIBUTES, ELEMENTS, IN_PROMPTS, OPTION, PROMPT_ATTRIBUTES, preview
from app.lsp.sizes import TokenCounter, sizes
from app.lsp.targets import Target, target_at
from app.lsp.view import View
from engine.pml import Param, Span


def hover(view: View, offset: int, counter: TokenCounter | None) -> tuple[str, Span] | None:
    """Returns the hover text at an offset and its word; None without one."""
    target = target_at(view, offset)
    if target is None:
        return None
    text = _said(view, target, counter)
    return (text, target.span) if text else None


def _said(view: View, target: Target, counter: TokenCounter | None) -> str:
    match target.kind:
        case "module":
            return _module(view, target.path, counter)
        case "param":
            return _param(view, target)
        case "schema":
            home = view.home
            return f"schema {target.name}\n{home.path.name}" if home else f"schema {target.name}"
        case "element":
            detail = (ELEMENTS | IN_PROMPTS | {"option": OPTION}).get(target.name)
            return f"<{target.name}>\n{detail}" if detail else ""
        case "attribute":
            detail = (PROMPT_ATTRIBUTES | ATTRIBUTES).get(target.path, {}).get(target.name)
            return f"{target.name}\n{detail}" if detail else ""
    return ""


def _module(view: View, path: str, counter: TokenCounter | None) -> str:
    module = view.schema.module(path) if view.schema else None
    if module is None:
        return ""
    lines = [module.path, preview(module), str(sizes(module, counter))]
    lines += [_limit(param) for param in module.params()]
    if not module.cache:
        lines.append("never stored")
    if view.basis is not None and view.basis.stale:
        lines.append("from the last version of the schema without errors")
    return "\n".join(line for line in lines if line)


def _param(view: View, target: Target) -> str:
    module = view.schema.module(target.path) if view.schema else None
    params = [param for param in module.params() if param.name == target.name] if module else []
    return f"{target.path}\n{_limit(params[0])}" if params else ""


def _limit(param: Param) -> str:
    default = f", “{param.default}” by default" if param.default is not None else ""
    return f"{param.name}: at most {param.length} tokens{default}"
