"""The user interfaces: studio, command line and servers. The engine does not import this package."""
