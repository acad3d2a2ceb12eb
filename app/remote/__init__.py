"""Runs that `pml run` delegates to a studio of the same user: discovery and protocol.

The command's side loads neither torch nor gradio.
"""
