"""The server: OpenAI's and Anthropic's HTTP APIs, and resources of its own."""
