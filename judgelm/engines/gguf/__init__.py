"""GGUF files as models: dequantised once into the cache, then loaded as any checkpoint is."""

from judgelm.engines.gguf.checkpoint import GgufRecord, checkpoint_of, gguf_checkpoint, gguf_note, gguf_record

__all__ = ["GgufRecord", "checkpoint_of", "gguf_checkpoint", "gguf_note", "gguf_record"]
