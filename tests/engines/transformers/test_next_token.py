"""Attention of a single token in 16 bits: by plain products over a store with room to spare."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it

from judgelm.engines.transformers.packed_attention import KVCache, Segment, packed_attention


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_a_next_token_is_attended_as_by_the_fused_kernel(kv_heads, scaling):
    torch.manual_seed(0)
    layer, prompts = SimpleNamespace(layer_idx=0), (1, 40, 200)
    stores = [KVCache(length + 7) for length in prompts]  # room that is never written must not count
    past = [torch.randn(2, 1, kv_heads, length, 16).bfloat16() for length in prompts]
    for store, (keys, values) in zip(stores, past, strict=True):
        store.write(0, keys, values)
        store.advance(keys.shape[2])
        store.buffers(0)[0][:, :, store.length :] = float("nan")  # what an unwritten place may hold
    query = torch.randn(1, 4, 3, 16).bfloat16()
    key, value = (torch.randn(1, kv_heads, 3, 16).bfloat16() for _ in range(2))
    segments = [Segment(store, 1) for store in stores]
    got, _ = packed_attention(layer, query, key, value, None, segments=segments, scaling=scaling)
    for place, (keys, values) in enumerate(past):
        one = slice(place, place + 1)
        want = F.scaled_dot_product_attention(
            query[:, :, one].double(),
            torch.cat((keys, key[:, :, one]), 2).double(),
            torch.cat((values, value[:, :, one]), 2).double(),
            scale=scaling,
            enable_gqa=True,
        )
        # bfloat16 has 8 bits: scores of about 4 are off by 0.016, hence their shares by 1.6 percent
        torch.testing.assert_close(got[:, one].transpose(1, 2).double(), want, atol=0.03, rtol=0.03)
