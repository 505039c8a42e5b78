"""Packed attention equals attention over each prompt."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it

from judgelm.engines.transformers.attention import PromptBatch, PromptSegment, packed_attention
from judgelm.engines.transformers.kv_cache import KVCache


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_blocks_of_long_prompts_equal_one_causal_call(kv_heads):
    torch.manual_seed(0)
    lengths = (1, 127, 128, 129, 300, 600)  # below, at and above a block of 128 and the kernel's 512 keys
    query = torch.randn(1, 4, sum(lengths), 16)
    key, value = (torch.randn(1, kv_heads, sum(lengths), 16) for _ in range(2))
    segments = [PromptSegment(KVCache(length), length) for length in lengths]
    packed, _ = packed_attention(SimpleNamespace(layer_idx=0), query, key, value, None, segments=segments)
    parts = zip(*(tensor.split(lengths, 2) for tensor in (query, key, value)), strict=True)
    expected = [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True) for part in parts]
    torch.testing.assert_close(packed, torch.cat(expected, 2).transpose(1, 2), atol=2e-6, rtol=0)


def kernel(query, key, value, query_ends, key_ends, max_q, max_k, *, scale, window_size, enable_gqa=True):
    """torch's GPU kernel, prompt by prompt: the last query sees the last key."""
    assert (max_q, max_k) == (int(query_ends.diff().max()), int(key_ends.diff().max()))
    parts = []
    for (q0, q1), (k0, k1) in zip(pairwise(query_ends.tolist()), pairwise(key_ends.tolist()), strict=True):
        position = torch.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0)
        place = torch.arange(k1 - k0)[None]
        left, right = window_size
        seen = (place <= position + right) & ((left < 0) | (place >= position - left))
        tensors = (
            tensor[start:end].transpose(0, 1)
            for tensor, start, end in ((query, q0, q1), (key, k0, k1), (value, k0, k1))
        )
        parts.append(F.scaled_dot_product_attention(*tensors, attn_mask=seen, scale=scale, enable_gqa=enable_gqa))
    return torch.cat([part.transpose(0, 1) for part in parts])


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("cached", [(0, 0, 0), (0, 40, 7)])
def test_one_call_equals_one_call_per_prompt(window, cached):
    torch.manual_seed(0)
    lengths = (1, 50, 130)

    def prompts():
        generator = torch.Generator().manual_seed(1)
        for past, length in zip(cached, lengths, strict=True):
            kv = KVCache(past + length)
            if past:
                kv.write(0, *(torch.randn(1, 2, past, 16, generator=generator) for _ in range(2)), 0)
                kv.advance(past)
            yield PromptSegment(kv, length)

    query = torch.randn(1, 4, sum(lengths), 16)
    key, value = (torch.randn(1, 2, sum(lengths), 16) for _ in range(2))
    batch = PromptBatch(list(prompts()), kernel_for=lambda *arguments: kernel)
    alone = PromptBatch(list(prompts()), kernel_for=lambda *arguments: None)
    together, separately = (
        packed_attention(
            SimpleNamespace(layer_idx=0), query, key, value, None, segments=[segment], sliding_window=window
        )[0]
        for segment in (batch, alone)
    )
    torch.testing.assert_close(together, separately, atol=2e-6, rtol=0)
    for first, second in zip(batch.prompts, alone.prompts, strict=True):
        torch.testing.assert_close(first.kv.layers()[0][0], second.kv.layers()[0][0])
