"""How the bundled demo model was made: corpus, tokenizer, training, evaluation."""
