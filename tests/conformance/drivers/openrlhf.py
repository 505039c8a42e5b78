"""OpenRLHF: its agent generates a response, and posts it to `--reward.remote_url`."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from openrlhf.utils.agent import SingleTurnAgentExecutor
from transformers import AutoTokenizer

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
tokenizer = AutoTokenizer.from_pretrained(asked["tokenizer"])
executor = SingleTurnAgentExecutor(asked["base_url"].removesuffix("/v1") + "/get_reward")


class Written:
    """An engine that generates a response that is already known."""

    def __init__(self, response):
        self.tokens = tokenizer(response, add_special_tokens=False)["input_ids"]

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        output = SimpleNamespace(token_ids=self.tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


async def reward(item):
    sampling = SimpleNamespace(max_tokens=64, logprobs=None)
    done = await executor.execute(
        item["prompt"], item["reference"], sampling, 512, tokenizer, Written(item["response"])
    )
    return {name: done[name] for name in ("reward", "scores")}


async def main():
    """The rewards of all items at once."""
    found = await asyncio.gather(*(reward(item) for item in asked["items"]))
    Path(sys.argv[2]).write_text(json.dumps({"found": found}), encoding="utf-8")


asyncio.run(main())
