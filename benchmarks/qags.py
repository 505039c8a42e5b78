"""How well mode `grounded` finds unsupported sentences of summaries, on QAGS (Wang et al. 2020).

    python -m benchmarks.qags mturk_xsum.jsonl --wordings benchmarks/qags.yaml      # development
    python -m benchmarks.qags mturk_cnndm.jsonl                                     # test

The files are those of W4ngatang/qags. A sentence is supported if two of three people say so, and a summary if all
of its sentences are. Prints the AUROC per sentence and per summary, with intervals over articles.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from judgelm.judge import Judge
from judgelm.modes.grounded import Grounded
from judgelm.prompts.prompt_file import parse_prompts
from judgelm.records import Sample
from judgelm.runs.in_memory import judge_samples

Floats = NDArray[np.float64]
RESAMPLES = 2000


class Summary(NamedTuple):
    """An article with the sentences of a summary, and whether each is supported."""

    article: str
    sentences: tuple[str, ...]
    supported: tuple[bool, ...]


def main() -> None:
    """Judge the summaries, and print a row for each way to score them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--wordings", type=Path, help="prompt files by name, to compare")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--save", type=Path, help="write all probabilities as JSON")
    options = parser.parse_args()
    summaries = read_summaries(options.file)[: options.limit]
    print(f"{len(summaries)} summaries, {sum(len(each.sentences) for each in summaries)} sentences", flush=True)
    scores: dict[str, list[list[float]]] = {}
    with Judge(options.model, engine="transformers") as judge:
        for name, mode in modes(options.wordings).items():
            began = time.monotonic()
            scores[name] = probabilities(judge, summaries, mode)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
            if options.save is not None:
                options.save.write_text(json.dumps(scores), encoding="utf-8")
            report(name, summaries, scores[name])
    report("word overlap", summaries, [[overlap(text, each.article) for text in each.sentences] for each in summaries])
    report("shorter", summaries, [[-float(len(text)) for text in each.sentences] for each in summaries])
    if "answer" in scores:
        for name in ("min", "mean"):
            compare(name, summaries, scores)


def read_summaries(path: Path) -> list[Summary]:
    """Read a file of QAGS."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        votes = [[each["response"] == "yes" for each in part["responses"]] for part in row["summary_sentences"]]
        texts = tuple(part["sentence"].strip() for part in row["summary_sentences"])
        found.append(Summary(row["article"], texts, tuple(2 * sum(each) > len(each) for each in votes)))
    return found


def modes(wordings: Path | None) -> dict[str, Grounded]:
    """Return the mode per claim and on the whole answer, or a mode for each wording."""
    if wordings is None:
        return {"claims": Grounded(claims="sentences"), "answer": Grounded()}
    texts: Mapping[str, Any] = yaml.safe_load(wordings.read_text(encoding="utf-8"))
    made = {}
    for name, entry in texts.items():
        [prompt] = parse_prompts(json.dumps({"name": name, "ask": "prompt", **entry}), f"{name}.yaml")
        made[name] = Grounded(prompt=prompt, claims="sentences")
    return made


def probabilities(judge: Judge, summaries: Sequence[Summary], mode: Grounded) -> list[list[float]]:
    """Return P(supported) of each sentence, or of the whole summary for `claims="answer"`."""
    samples = []
    for index, each in enumerate(summaries):
        fields: dict[str, object] = {"context": each.article}
        if mode.claims != "answer":
            fields["claims"] = list(each.sentences)
        samples.append(Sample(id=str(index), question="", answers=(" ".join(each.sentences),), metadata=fields))
    judgments = judge_samples(samples, mode, judge.engine, progress=True)
    return [[shown.scores[0] if shown.scores else float("nan") for shown in each.shown] for each in judgments]


def overlap(text: str, article: str) -> float:
    """Return the share of a sentence's words that are in the article."""
    words, known = text.lower().split(), set(article.lower().split())
    return sum(word in known for word in words) / len(words)


def report(name: str, summaries: Sequence[Summary], scores: Sequence[Sequence[float]]) -> None:
    """Print the AUROC per sentence and per summary."""
    parts = []
    if all(len(each.sentences) == len(own) for each, own in zip(summaries, scores, strict=True)):
        value, spread = auroc(sentence_rows(summaries, scores))
        parts.append(f"per sentence {value:.3f} ({spread[0]:.3f} to {spread[1]:.3f})")
    for aggregate in (min, np.mean) if max(map(len, scores)) > 1 else (min,):
        value, spread = auroc(summary_rows(summaries, scores, aggregate))
        label = {"min": "minimum", "mean": "mean"}[aggregate.__name__]
        parts.append(f"per summary, {label} {value:.3f} ({spread[0]:.3f} to {spread[1]:.3f})")
    print(f"  {name}: {'; '.join(parts)}", flush=True)


def compare(name: str, summaries: Sequence[Summary], scores: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Print the difference per summary between claims and the whole answer, on the same resamples."""
    aggregate = {"min": min, "mean": np.mean}[name]
    both = [summary_rows(summaries, scores[each], aggregate) for each in ("claims", "answer")]
    draws = [resampled(rows) for rows in both]
    low, high = np.nanquantile(draws[0] - draws[1], [0.025, 0.975])
    difference = auroc(both[0])[0] - auroc(both[1])[0]
    print(f"  claims ({name}) minus answer: {difference:+.3f} ({low:+.3f} to {high:+.3f})", flush=True)


Rows = list[tuple[Floats, Floats]]
"""Truth and scores of each article."""


def sentence_rows(summaries: Sequence[Summary], scores: Sequence[Sequence[float]]) -> Rows:
    """Return the sentences of each article."""
    pairs = zip(summaries, scores, strict=True)
    return [(np.array(each.supported, float), np.array(own, float)) for each, own in pairs]


def summary_rows(summaries: Sequence[Summary], scores: Sequence[Sequence[float]], aggregate: Any) -> Rows:
    """Return the summary of each article."""
    pairs = zip(summaries, scores, strict=True)
    return [(np.array([all(each.supported)], float), np.array([float(aggregate(own))])) for each, own in pairs]


def auroc(rows: Rows) -> tuple[float, tuple[float, float]]:
    """Return the AUROC with its interval from a bootstrap over articles."""
    low, high = np.nanquantile(resampled(rows), [0.025, 0.975])
    return _auroc(rows), (float(low), float(high))


def resampled(rows: Rows) -> Floats:
    """Return the AUROC of each resample."""
    draws = np.random.default_rng(0)
    return np.array(
        [_auroc([rows[place] for place in draws.integers(len(rows), size=len(rows))]) for _ in range(RESAMPLES)]
    )


def _auroc(rows: Rows) -> float:
    truth, score = (np.concatenate(column) for column in zip(*rows, strict=True))
    known = ~np.isnan(score)
    return float(roc_auc_score(truth[known], score[known])) if len(set(truth[known])) > 1 else float("nan")


if __name__ == "__main__":
    main()
