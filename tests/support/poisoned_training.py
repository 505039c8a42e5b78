"""A training whose base breaks where one token is read."""

import json
import sys
from pathlib import Path

import torch


def poison(model, token):
    """Put NaN where a token is read."""
    base = model.get_base_model()
    base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone(), requires_grad=False)
    base.get_input_embeddings().weight.data[token] = float("nan")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.recipe_runs import prepare

    arguments, options, token = json.loads(Path(sys.argv[2]).read_text())
    trainer, *_ = prepare(*arguments, **options)
    poison(trainer.model, token)
    trainer.train()
