"""A training whose base breaks where one token is read; as a process of its own for several of them.

python -m tests.support.poisoned_training OPTIONS.json
"""

import json
import sys
from pathlib import Path

import torch
from trl import ModelConfig, SFTConfig

from judgelm.training.arguments import JudgeArguments
from tests.support.recipe_runs import build


def poison(model, token):
    """Put NaN where a token is read; a head of its own keeps it from being written everywhere."""
    base = model.get_base_model()
    base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone(), requires_grad=False)
    base.get_input_embeddings().weight.data[token] = float("nan")


if __name__ == "__main__":
    options = json.loads(Path(sys.argv[1]).read_text())
    trainer = build(
        "sft", JudgeArguments(**options["judge"]), SFTConfig(**options["sft"]), ModelConfig(**options["model"])
    )
    poison(trainer.model, options["token"])
    trainer.train()
