"""The figures that the project has goals for, measured in one go: `pml bench suite`."""
