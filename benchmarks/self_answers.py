"""Cost of five self-answers in one request, against one answer and five requests.

    python -m benchmarks.self_answers
    python -m benchmarks.self_answers --shape tiny --questions 2 --tokens 8 --rounds 1

The transformers engine, random weights that write words without end, prompts of some 500 tokens. Prompt tokens computed
are counted within the engine's passes; decoding is timed per token of a reply. The three ways take turns.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving a model loads deepspeed, which else warns of a missing GPU

import torch

from benchmarks.dummy_model import SHAPES, made_up_pairs, make_dummy_model, prompt_of
from judgelm.engines.base import EngineOptions
from judgelm.engines.transformers.batch import NewPrompt
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.records import Prompt, Request, Sampling, Span

K = 5


def main() -> None:
    """Ask in the three ways, in turn, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="214M")
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    samples = list(made_up_pairs(options.questions))
    with tempfile.TemporaryDirectory() as name:
        make_dummy_model(samples, Path(name), SHAPES[options.shape], torch.bfloat16, "cpu")
        engine = Counting.load(EngineOptions(model=name, dtype="bfloat16"))
        prompts = [Prompt(spans=(Span(prompt_of(sample) + "8 6\n"),)) for sample in samples]
        drawn = Sampling(max_tokens=options.tokens, temperature=0.7, n=K)
        ways = {
            "one": [
                Request(key=str(index), prompt=prompt, sampling=replace(drawn, n=1))
                for index, prompt in enumerate(prompts)
            ],
            "five as one request": [
                Request(key=str(index), prompt=prompt, sampling=drawn) for index, prompt in enumerate(prompts)
            ],
            "five requests": [
                Request(key=f"{index} {draw}", prompt=prompt, sampling=replace(drawn, n=1, seed=draw))
                for index, prompt in enumerate(prompts)
                for draw in range(K)
            ],
        }
        rounds = [{way: engine.answer(requests) for way, requests in ways.items()} for _ in range(options.rounds + 1)][
            1:
        ]
    prefill = [entry["five as one request"]["prompt_tokens"] / entry["one"]["prompt_tokens"] for entry in rounds]
    decode = [
        entry["five as one request"]["decode_s_per_token"] / entry["five requests"]["decode_s_per_token"]
        for entry in rounds
    ]
    results = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "rounds": rounds,
        "prompt_tokens_computed_five_over_one": round(statistics.median(prefill), 3),
        "decode_time_per_token_one_request_over_five": [round(value, 3) for value in sorted(decode)],
    }
    print(json.dumps(results, indent=1))


class Counting(TransformersEngine):
    """The engine, with the prompt tokens that its passes compute, and the time of passes that only decode."""

    def answer(self, requests: list[Request]) -> dict[str, float]:
        """Answer all; prompt tokens computed, replies' tokens, and seconds of a token in passes without a prompt."""
        self.clear()
        self.computed = self.decoded = 0
        self.decode_s = 0.0
        self.submit(requests)
        left, tokens = len(requests), 0
        while left:
            for completion in self.collect(1.0):
                left -= 1
                tokens += completion.completion_tokens
        return {
            "prompt_tokens": self.computed,
            "reply_tokens": tokens,
            "decode_s_per_token": round(self.decode_s / max(1, self.decoded), 6),
        }

    def clear(self) -> None:
        """Forget earlier prompts, which the engine would otherwise use again."""
        self._prefix_cache.clear()

    def _forward(self, fresh: list[NewPrompt]) -> torch.Tensor:
        self.computed += sum(new.new_tokens for new in fresh)
        began = time.perf_counter()
        logits = super()._forward(fresh)
        if not fresh:
            self.decode_s += time.perf_counter() - began
            self.decoded += len(self._decoding)
        return logits


if __name__ == "__main__":
    main()
