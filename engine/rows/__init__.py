"""Batch rows: files, grids, prompts and expectations."""
