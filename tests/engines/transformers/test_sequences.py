"""Blocks of running replies."""

import random

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name for it

from judgelm.engines.transformers.attention import AttentionOptions
from judgelm.engines.transformers.decode_blocks import DecodeBlocks
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.sequences import QueuedRequest, RunningSequence
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Prompt, Request, Sampling

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


@pytest.mark.parametrize(
    "options",
    [AttentionOptions(), AttentionOptions(scaling=0.3), AttentionOptions(window=50), AttentionOptions(softcap=2.0)],
)
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
            leaving = draws.choice(list(blocks))
            blocks.leave(leaving)
        one_pass(blocks, replies, dtype, options)
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
