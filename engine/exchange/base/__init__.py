"""What all imports and exports share."""
