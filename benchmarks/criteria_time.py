"""Time of ten criteria against one, on the same answers: what the common beginning of a checklist's prompts saves.

    python -m benchmarks.criteria_time --model FOLDER --pairs PANDALM/testset-v1.json [--count 20] [--rounds 3]

The first answers of the pairs are judged by one criterion and by ten in turns, by one loaded engine. `s` is the share
of a prompt behind the beginning that the criteria of its answer share. Computed once, that beginning makes ten criteria
cost (1 + 9 s) times one; the aim is 1.15 times that at most.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cpu_judging import prompts_of
from benchmarks.lora_speed import spread
from benchmarks.throughput.layer_products import needed_tokens
from judgelm.data.samples import SampleStream
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.modes.checklist import Checklist
from judgelm.records import Sample
from judgelm.runs.runner import judge

_CRITERIA = (
    "The answer does what the question asks for.",
    "The answer states nothing that is false.",
    "The answer is complete.",
    "The answer says nothing twice.",
    "The answer is written in the language of the question.",
    "The answer keeps to the form that the question asks for.",
    "The answer gives a reason where one is due.",
    "The answer says what it does not know.",
    "The answer is polite to its reader.",
    "The answer needs no knowledge that its reader lacks.",
)


def main() -> None:
    """Judge in turns, and print the ratio of times beside what perfect sharing allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    every = list(SampleStream([str(options.pairs)]))
    chosen = [every[index * len(every) // options.count] for index in range(min(options.count, len(every)))]
    samples = [replace(sample, answers=sample.answers[:1], answer_models=()) for sample in chosen]
    modes = {count: Checklist(criteria=_CRITERIA[:count]) for count in (1, 10)}
    needed = {count: needed_tokens(prompts_of(options.model, samples, mode)) for count, mode in modes.items()}
    perfect = needed[10] / needed[1]
    over: list[float] = []
    for index in range(options.rounds):
        order = (1, 10) if index % 2 else (10, 1)
        turns = {count: timed(options.model, samples, modes[count]) for count in order}
        over.append(turns[10][0] / turns[1][0] / perfect)
        for count, (seconds, computed) in sorted(turns.items()):
            print(f"{count} criteria: {seconds:.1f} s, {computed:,} tokens computed of {needed[count]:,} needed")
    print(f"{len(samples)} answers, s = {(perfect - 1) / 9:.3f}: perfectly shared {perfect:.2f} times one")
    print(f"time of ten criteria / (1 + 9 s) times that of one: {spread(over, '.2f')}")


def timed(model: Path, samples: Sequence[Sample], mode: Checklist) -> tuple[float, int]:
    """Seconds to judge with a model that has read one other text, and the prompt tokens that were computed."""
    engine = load_engine("transformers", EngineOptions(model=str(model)))
    warm = replace(samples[0], question="Is this the first text?", answers=("Yes, it is.",))
    list(judge([warm], mode, engine))
    reused = engine.stats()["reused_prompt_tokens"]
    began = time.perf_counter()
    judgments = list(judge(samples, mode, engine))
    seconds = time.perf_counter() - began
    assert all(judgment.failure is None for judgment in judgments)
    read = sum(judgment.prompt_tokens for judgment in judgments)
    computed = read - (engine.stats()["reused_prompt_tokens"] - reused)
    engine.close()
    return seconds, computed


if __name__ == "__main__":
    main()
