"""A tolerant XML reader: from bytes to elements with exact spans."""
