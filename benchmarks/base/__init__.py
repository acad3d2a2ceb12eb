"""What all measurements share: cases, options, charts and tables."""
