"""The server: the engine behind the HTTP interfaces of OpenAI and Anthropic, and resources of its own."""
