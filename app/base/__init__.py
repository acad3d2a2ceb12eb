"""Shared code of the command line, the studio, the server and the language server."""
