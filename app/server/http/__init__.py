"""HTTP for the server: access, bodies, errors and streams."""
