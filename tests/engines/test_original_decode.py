"""Same scores as the original JudgeLM's loop: one prompt at a time through `generate`, greedy, float32."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgelm.data.samples import SampleStream
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.parsing.scores import parse_pair, parse_pair_original
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sampling, Scores
from tests.support.driving import run
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


def compare(engine, original, requests, at_least):
    """Every prompt that nothing was done to and that the original can read."""
    done = run(engine, requests)
    compared = 0
    for request in requests:
        completion = done[request.key]
        if completion.truncations or completion.sanitized or request.prompt.sanitized or not completion.texts:
            continue
        there = parse_pair_original(original.reply("".join(span.text for span in request.prompt.spans)))
        if isinstance(there, Scores):
            compared += 1
            assert parse_pair(completion.texts[0], (-99, 99)) == there
    assert compared >= at_least


@pytest.fixture(scope="module")
def original(tiny_judge):
    return OriginalJudge(tiny_judge)


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_on_made_up_pairs(name, original, tiny_judge, request):
    if name == "vllm":
        engine = request.getfixturevalue("vllm_engine")
    else:
        engine = load_engine(name, EngineOptions(model=str(tiny_judge)))
    compare(engine, original, requests_of(map(word_sample, range(60))), at_least=100)


@pytest.mark.slow
def test_on_real_pairs(original, tiny_judge, shared_data):
    samples = list(SampleStream([str(shared_data / "pandalm" / "testset-v1.json")]))
    short = [one for one in samples if len(one.question + one.answers[0] + one.answers[1]) < 400]
    engine = load_engine("transformers", EngineOptions(model=str(tiny_judge)))
    compare(engine, original, requests_of(short), at_least=120)
