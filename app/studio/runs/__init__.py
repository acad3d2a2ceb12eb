"""One run of the studio: its state, its report and the comparison of its sides."""
