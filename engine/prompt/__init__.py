"""What a prompt is in integers: token ids, positions, and what each segment saw. No tensors, no files."""
