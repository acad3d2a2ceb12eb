"""Chats: several turns over the modules of one prompt, with branches."""
