"""The studio and the command line: everything a person sees. The engine knows nothing of this package."""
