"""Shared parts of commands: options, output and documents."""
