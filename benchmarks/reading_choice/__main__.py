"""Ask a model about the development pairs in each wording, and keep what it says.

    python -m benchmarks.reading_choice --model MODEL --name NAME --pools FOLDER --out FOLDER [--wordings a,b]
    python -m benchmarks.reading_choice.report --pools FOLDER --out FOLDER

Writes `NAME/WORDING.jsonl`, one line a pair: for each of the two prompts the log-probability of each of the wording's
words. Pairs that a file has are not asked again. All wordings of a pair are asked together, so that they share what
their prompts have in common; `--time N` instead measures each wording by itself on N pairs (`NAME/seconds.json`).
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reading_choice.sets import SETS, development_pairs
from benchmarks.reading_choice.wordings import WORDINGS, Wording
from benchmarks.reading_training.pairs import Pair, json_lines
from judgelm.engines.base import EngineOptions
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loaded_model import load
from judgelm.records import Completion, Request

PAIRS_AT_ONCE = 4


def main() -> None:
    """Ask what is missing, or measure the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or GGUF file")
    parser.add_argument("--name", required=True, help="of the model, in the files")
    parser.add_argument("--pools", type=Path, required=True, help="folder of benchmarks.reading_training's pools")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wordings", type=lambda text: text.split(","), default=list(WORDINGS))
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(SETS))
    parser.add_argument("--share", type=float, default=1.0, help="of each set: the first pairs")
    parser.add_argument("--time", type=int, metavar="N", help="measure seconds a pair of each wording on N pairs")
    options = parser.parse_args()
    sets = development_pairs(options.pools)
    pairs = in_proportion([sets[name] for name in options.sets], options.share)
    wordings = [WORDINGS[name] for name in options.wordings]
    loaded = load(EngineOptions(model=options.model, dtype="bfloat16"))
    folder = options.out / options.name
    folder.mkdir(parents=True, exist_ok=True)
    if options.time:
        seconds = {}
        for wording in wordings:  # a new engine has nothing in its prefix cache
            seconds[wording.name] = seconds_per_pair(
                TransformersEngine(loaded), wording, sets["alpaca"][: options.time]
            )
        (folder / "seconds.json").write_text(json.dumps({"pairs": options.time, "seconds": seconds}) + "\n")
        print(seconds)
        return
    engine = TransformersEngine(loaded)
    begun = time.monotonic()
    for index, rows in enumerate(ask_missing(engine, folder, pairs, wordings), 1):
        for name, row in rows:
            with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{index * PAIRS_AT_ONCE} pairs, {time.monotonic() - begun:.0f} s", flush=True)


def in_proportion(sets: Sequence[Sequence[Pair]], share: float) -> list[Pair]:
    """The first pairs of each set, mixed so that any beginning has the same part of each."""
    places = [(index / len(pairs), pair) for pairs in sets for index, pair in enumerate(pairs)]
    return [pair for place, pair in sorted(places, key=lambda entry: entry[0]) if place < share]


def ask_missing(
    engine: TransformersEngine, folder: Path, pairs: Sequence[Pair], wordings: Sequence[Wording]
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The new rows of a few pairs at a time, with the names of their wordings."""
    done = {wording.name: _ids(folder / f"{wording.name}.jsonl") for wording in wordings}
    missing = [(pair, [wording for wording in wordings if pair.id not in done[wording.name]]) for pair in pairs]
    missing = [entry for entry in missing if entry[1]]
    for start in range(0, len(missing), PAIRS_AT_ONCE):
        batch = missing[start : start + PAIRS_AT_ONCE]
        requests = {
            (pair.id, wording.name): wording.requests(pair)
            for wording in wordings
            for pair, asked in batch
            if wording in asked
        }
        completions = ask(engine, [request for both in requests.values() for request in both])
        yield [
            (name, row_of(pair_id, WORDINGS[name], [completions[request.key] for request in both]))
            for (pair_id, name), both in requests.items()
        ]


def _ids(path: Path) -> set[str]:
    return {row["id"] for row in json_lines(path)} if path.is_file() else set()


def ask(engine: TransformersEngine, requests: Sequence[Request]) -> dict[str, Completion]:
    """Completions by the requests' keys.

    Raises:
        RuntimeError: a request failed.
    """
    engine.submit(requests)
    completions: dict[str, Completion] = {}
    while len(completions) < len(requests):
        completions |= {completion.key: completion for completion in engine.collect(60)}
    for completion in completions.values():
        if completion.candidate_logprobs is None:
            raise RuntimeError(f"{completion.key}: no probabilities: {completion.error or completion.finish_reasons}")
    return completions


def row_of(pair_id: str, wording: Wording, completions: Sequence[Completion]) -> dict[str, Any]:
    """The line of a pair: log-probabilities of the words, shape (2 prompts, words)."""
    logprobs = [
        [round(value, 5) for value in wording.word_logprobs(completion.candidate_logprobs or ())]
        for completion in completions
    ]
    return {"id": pair_id, "logprobs": logprobs, "prompt_tokens": sum(each.prompt_tokens for each in completions)}


def seconds_per_pair(engine: TransformersEngine, wording: Wording, pairs: Sequence[Pair]) -> float:
    """Mean time of a pair in this wording alone, in batches as large as the engine makes them."""
    begun = time.monotonic()
    ask(engine, [request for pair in pairs for request in wording.requests(pair)])
    return (time.monotonic() - begun) / len(pairs)


if __name__ == "__main__":
    main()
