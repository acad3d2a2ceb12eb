"""The commands of `pml`, one file each."""
