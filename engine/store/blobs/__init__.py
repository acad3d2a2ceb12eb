"""The folder of the store and its segment files."""
