"""The tokenizer and its chat template."""
