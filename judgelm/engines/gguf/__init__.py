"""GGUF files as models: dequantised once into the cache, then loaded like any checkpoint."""
