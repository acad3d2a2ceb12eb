"""GGUF, the format of llama.cpp: its metadata, tokenizer and tensors as transformers has them."""
