"""The command `pml decide`."""
