"""Packed attention by blocks of queries is attention over the whole prompt."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it

from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.packed_attention import PromptSegment, packed_attention


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_long_prompts_are_attended_as_by_one_causal_call(kv_heads):
    torch.manual_seed(0)
    lengths = (1, 127, 128, 129, 300, 600)  # below, at and above a block of 128 and the kernel's 512 keys
    query = torch.randn(1, 4, sum(lengths), 16)
    key, value = (torch.randn(1, kv_heads, sum(lengths), 16) for _ in range(2))
    segments = [PromptSegment(KVCache(length), length) for length in lengths]
    got, _ = packed_attention(SimpleNamespace(layer_idx=0), query, key, value, None, segments=segments)
    parts = zip(*(tensor.split(lengths, 2) for tensor in (query, key, value)), strict=True)
    want = [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True).transpose(1, 2) for part in parts]
    torch.testing.assert_close(got, torch.cat(want, 1), atol=2e-6, rtol=0)
