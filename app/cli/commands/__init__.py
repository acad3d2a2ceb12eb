"""The commands of `pml`, a file each."""
