"""Same scores as the original JudgeLM's loop: one prompt at a time through `generate`, greedy, float32."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.parsing.scores import parse_pair, parse_pair_original
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sampling, Scores
from tests.support.driving import run
from tests.support.flows import text_of
from tests.support.tiny_judges import TEMPLATE, word_sample

STOP = "###"


class OriginalJudge:
    """`gen_model_judgement.py` of baaivision/JudgeLM at temperature 0.

    Where a reply lacks the stop string that one cuts off its last character. That stays in, except where it would eat
    into a score line that nothing follows.
    """

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder)

    def reply(self, prompt, max_new_tokens=40):
        ids = self.tokenizer([prompt]).input_ids
        with torch.inference_mode():
            out = self.model.generate(torch.as_tensor(ids), do_sample=False, max_new_tokens=max_new_tokens)
        text = self.tokenizer.decode(
            out[0][len(ids[0]) :], skip_special_tokens=True, spaces_between_special_tokens=False
        )
        return text[: text.find(STOP)].strip() if "\n" in text else text.strip()


def requests_of(samples):
    return [
        Request(
            key=f"{sample.id} {order}",
            prompt=get_template(TEMPLATE).render(sample, order, None),
            sampling=Sampling(max_tokens=24, stop=("\n",)),
        )
        for sample in samples
        for order in ((0, 1), (1, 0))
    ]


def test_scores_are_those_of_the_original(tiny_judge):
    """Of every prompt that nothing was done to and that the original can read."""
    original, requests = OriginalJudge(tiny_judge), requests_of(map(word_sample, range(60)))
    done = run(load_engine("transformers", EngineOptions(model=str(tiny_judge))), requests)
    compared = 0
    for request in requests:
        completion = done[request.key]
        if completion.truncations or completion.sanitized or request.prompt.sanitized or not completion.texts:
            continue
        there = parse_pair_original(original.reply(text_of(request.prompt)))
        if isinstance(there, Scores):
            compared += 1
            assert parse_pair(completion.texts[0], (-99, 99)) == there
    assert compared >= 100
