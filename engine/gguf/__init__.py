"""GGUF, the format of llama.cpp: its metadata, tokenizer and tensors for transformers."""
