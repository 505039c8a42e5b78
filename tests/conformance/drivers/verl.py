"""verl's own reward loop with judgelm as the custom reward function, as its trainer's configuration names it."""

import asyncio
import json
import sys

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

with open(sys.argv[1], encoding="utf-8") as file:
    asked = json.load(file)

tokenizer = AutoTokenizer.from_pretrained(asked["tokenizer"])


def rows(items):
    """Responses as verl's rollout leaves them: prompts on the left, responses padded on the right."""
    replies = [tokenizer(item["response"], add_special_tokens=False)["input_ids"] for item in items]
    longest = max(map(len, replies))
    responses = torch.full((len(items), longest), tokenizer.pad_token_id or 0)
    mask = torch.zeros((len(items), 1 + longest), dtype=torch.long)
    mask[:, 0] = 1
    for row, ids in enumerate(replies):
        responses[row, : len(ids)] = torch.tensor(ids)
        mask[row, 1 : 1 + len(ids)] = 1
    batch = {"prompts": torch.zeros((len(items), 1), dtype=torch.long), "responses": responses, "attention_mask": mask}
    others = {
        "data_source": np.array(["any"] * len(items), dtype=object),
        "reward_model": np.array([{"ground_truth": item["reference"]} for item in items], dtype=object),
        "extra_info": np.array([{"question": item["question"]} for item in items], dtype=object),
    }
    return DataProto(batch=TensorDict(batch, batch_size=len(items)), non_tensor_batch=others)


def config(reward_kwargs):
    """The part of verl's configuration that the reward loop reads."""
    function = {"path": "pkg://judgelm.rewards.verl", "name": "compute_score", "reward_kwargs": reward_kwargs}
    manager = {"source": "register", "name": "naive"}
    reward = {"reward_model": {"enable": False}, "reward_manager": manager, "custom_reward_function": function}
    model = {"path": asked["tokenizer"], "tokenizer_path": asked["tokenizer"]}
    return OmegaConf.create({"actor_rollout_ref": {"model": model}, "reward": reward})


async def main():
    """Score every batch by a worker of its own."""
    found = {}
    for name, options in asked["rewards"].items():
        data = rows(asked["items"])
        worker = RewardLoopWorker(config(options))
        try:
            outputs = await worker.compute_score_batch(data)
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
            continue
        scores = [output["reward_score"] for output in outputs]
        tensor = worker.reward_manager.assemble_rm_scores(data, scores)
        found[name] = {
            "scores": scores,
            "sums": tensor.sum(1).tolist(),
            "judged": [output["reward_extra_info"]["judged"] for output in outputs],
        }
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump(found, out)


asyncio.run(main())
