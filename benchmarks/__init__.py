"""What the project's figures are measured with: ratios inside one run, both sides taking turns."""
