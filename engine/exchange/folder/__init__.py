"""Folders and long texts as schemas."""
