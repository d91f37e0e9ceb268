"""Checkpoint directories: weights, tokenizer, chat template, GGUF import, and finding a model by name."""
