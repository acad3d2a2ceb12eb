"""What every part of the engine shares: errors, events, segments and choices."""
