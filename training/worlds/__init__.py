"""Seeded grammars the demo model learns from: travel, documents, learning plans and code."""
