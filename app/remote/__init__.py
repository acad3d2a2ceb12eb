"""Runs that `pml run` hands to a studio of the same user: how the two find each other, and what they say.

The side of the command line loads neither torch nor gradio.
"""
