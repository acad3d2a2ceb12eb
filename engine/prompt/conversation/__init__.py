"""Conversations, tools and questions as bound prompts."""
