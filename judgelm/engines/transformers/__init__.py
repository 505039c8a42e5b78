"""The transformers engine: continuous batching without padding."""
