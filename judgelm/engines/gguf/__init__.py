"""GGUF files as models: found, checked, dequantised once into the cache, then loaded as any checkpoint is."""
