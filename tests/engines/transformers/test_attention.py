"""Packed attention and blocks of running replies equal attention over each prompt."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it

from judgelm.engines.transformers.attention import AttentionOptions, PromptBatch, PromptSegment, packed_attention
from judgelm.engines.transformers.decode_blocks import DecodeBlocks
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Prompt, Request, Sampling


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
        tensors = (tensor.transpose(0, 1) for tensor in (query[q0:q1], key[k0:k1], value[k0:k1]))
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
    inputs = (SimpleNamespace(layer_idx=0), query, key, value, None)
    together, separately = (
        packed_attention(*inputs, segments=[segment], sliding_window=window)[0] for segment in (batch, alone)
    )
    torch.testing.assert_close(together, separately, atol=2e-6, rtol=0)
    for first, second in zip(batch.prompts, alone.prompts, strict=True):
        torch.testing.assert_close(first.kv.layers()[0][0], second.kv.layers()[0][0])


HEADS, KV_HEADS, SIZE = 4, 2, 16


class Reply:
    """A reply with the keys and values that its attention should see."""

    def __init__(self, key: str, prompt_tokens: int, dtype: torch.dtype) -> None:
        request = Request(key=key, prompt=Prompt(spans=()), sampling=Sampling(max_tokens=300))
        tokenized = TokenizedPrompt(text="", ids=[0] * prompt_tokens, truncations=(), sanitized=0)
        self.sequence = RunningSequence(QueuedRequest(request, tokenized, None), 0)
        self.sequence.ids.append(0)
        self.keys, self.values = (torch.randn(1, KV_HEADS, prompt_tokens, SIZE).to(dtype) for _ in range(2))
        self.kv = KVCache()
        self.kv.write(0, self.keys, self.values, 0)
        self.kv.advance(prompt_tokens)

    def see(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Note a new token's key and value, shape (1, kv heads, 1, head size)."""
        self.keys, self.values = torch.cat((self.keys, key), 2), torch.cat((self.values, value), 2)

    def expected(self, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """Attention of the last token in float64, shape (1, 1, heads, head size)."""
        keys, values = (tensor.double().repeat_interleave(HEADS // KV_HEADS, 1) for tensor in (self.keys, self.values))
        if options.window is not None:
            keys, values = keys[:, :, -options.window :], values[:, :, -options.window :]
        scores = options.capped(query.double() @ keys.transpose(2, 3) * options.scale(query))
        return (F.softmax(scores, -1) @ values).transpose(1, 2)


def one_pass(blocks: DecodeBlocks, replies: list[Reply], dtype: torch.dtype, options: AttentionOptions) -> None:
    """Attend for every running reply and compare; then each has a further token."""
    blocks.make_room()
    for block in blocks.blocks:
        block.begin_pass(torch.tensor([sequence.read_tokens for sequence in block.sequences]))
        query = torch.randn(1, HEADS, block.tokens, SIZE).to(dtype)
        key, value = (torch.randn(1, KV_HEADS, block.tokens, SIZE).to(dtype) for _ in range(2))
        out = block.attend(0, query, key, value, options)
        for row, sequence in enumerate(block.sequences):
            reply = next(candidate for candidate in replies if candidate.sequence is sequence)
            place = slice(row, row + 1)
            reply.see(key[:, :, place], value[:, :, place])
            # bfloat16 has 8 bits: scores of about 4 are off by 0.016, hence their shares by 1.6 percent
            tolerance = 2e-6 if dtype == torch.float32 else 0.03
            expected = reply.expected(query[:, :, place], options)
            torch.testing.assert_close(out[:, place].double(), expected, atol=tolerance, rtol=tolerance)
            sequence.ids.append(0)


@pytest.mark.parametrize("options", [{}, {"scaling": 0.3}, {"window": 50}, {"softcap": 2.0}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_reply_attends_only_to_its_own_tokens(options, dtype):
    torch.manual_seed(0)
    draws = random.Random(0)
    blocks, replies = DecodeBlocks(2000), list[Reply]()
    for turn in range(80):
        if turn < 40:
            replies.append(Reply(str(turn), draws.choice((1, 40, 63, 64, 200)), dtype))
            blocks.join(replies[-1].sequence, replies[-1].kv, ())
        if turn % 3 == 2:
            blocks.leave(draws.choice(list(blocks)))
        one_pass(blocks, replies, dtype, AttentionOptions(**options))
    assert len(blocks) == 40 - 26


def test_tokens_read_in_a_tree_follow_the_prompt():
    torch.manual_seed(0)
    blocks, reply = DecodeBlocks(0), Reply("0", 5, torch.float32)
    key, value = (torch.randn(1, KV_HEADS, 4, SIZE) for _ in range(2))
    reply.kv.write(0, key, value, 5)
    blocks.join(reply.sequence, reply.kv, [0, 2])
    reply.sequence.ids += [0, 0]
    reply.see(key[:, :, [0, 2]], value[:, :, [0, 2]])
    one_pass(blocks, [reply], torch.float32, AttentionOptions())


def test_a_finished_reply_can_be_continued_from_a_copy():
    torch.manual_seed(0)
    blocks, replies = DecodeBlocks(0), [Reply(str(index), 30 + index, torch.float32) for index in range(3)]
    for reply in replies:
        blocks.join(reply.sequence, reply.kv, ())
    for _ in range(100):
        one_pass(blocks, replies, torch.float32, AttentionOptions())
    for reply, kv in zip(replies, (replies[0].kv, KVCache(), KVCache(500)), strict=True):
        blocks.copy(reply.sequence, kv)
        assert kv.length == reply.sequence.read_tokens == reply.keys.shape[2]
        for copied, expected in zip(kv.layers()[0], (reply.keys, reply.values), strict=True):
            torch.testing.assert_close(copied[:, : kv.length], expected[0])


def test_memory_is_freed_with_the_replies():
    blocks, replies = DecodeBlocks(0), [Reply(str(index), 100, torch.float32) for index in range(40)]
    for reply in replies:
        blocks.join(reply.sequence, reply.kv, ())
    assert [len(block.sequences) for block in blocks.blocks] == [32, 8]
    assert blocks.tokens == 40 * 400, "the maximum that the replies need"
    blocks.discard({str(index) for index in range(40) if index != 7})
    assert [sequence.parent.request.key for sequence in blocks] == ["7"]
    assert len(blocks.blocks) == 1
