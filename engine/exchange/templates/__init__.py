"""Prompt templates as schemas, and schemas as Jinja templates."""
