"""Load GGUF files by dequantising them once into a cached checkpoint."""
