"""Every figure that the project has a goal for, measured in one go: `pml bench suite`."""
