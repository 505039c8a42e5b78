"""A model whose weights are spread over processes on the CPU, which judges and trains on."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loaded_model import LoadedModel
from judgelm.modes import Pairwise
from judgelm.runs.runner import judge
from judgelm.training.validation import unwrapped
from tests.support.tiny_judges import TEMPLATE, word_sample

PROCESSES = 2


def texts_of(model, forward, tokenizer, samples, *, in_step):
    """What the model writes about each sample, by id, in both orders."""
    with unwrapped(model, forward, device=torch.device("cpu"), in_step=in_step) as live:
        eos = frozenset({tokenizer.eos_token_id})
        loaded = LoadedModel(model=live, tokenizer=tokenizer, window=256, eos_ids=eos, quantization=None, identity={})
        engine = TransformersEngine(loaded, max_num_batched_tokens=128)
        mode = Pairwise(template=TEMPLATE, both_orders=True)
        return {one.sample_id: [shown.text for shown in one.shown] for one in judge(samples, mode, engine)}


def judge_sharded(rank, folder, out):
    """One process: judge a share under FSDP2, far smaller on the second one, then train a step."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(PROCESSES)}
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=PROCESSES)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for layer in model.model.layers:
        fully_shard(layer, mesh=dist.device_mesh.init_device_mesh("cpu", (PROCESSES,)))
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (PROCESSES,)))
    samples = [word_sample(seed) for seed in range(21)]
    texts = texts_of(model, model, tokenizer, samples[:20] if rank == 0 else samples[20:], in_step=True)
    model.train()
    ids = torch.tensor([[5, 6, 7, 8]])
    model(input_ids=ids, labels=ids).loss.backward()
    Path(out, f"{rank}.json").write_text(json.dumps(texts))
    dist.destroy_process_group()
