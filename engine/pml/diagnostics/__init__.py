"""Diagnostics of PML documents: codes, places, fixes and spelling."""
