"""The embedded engine: transformers models, continuous batching, no padding."""
