"""Time the making of training rows: one process that tokenises as rows once were, against all cores.

    python -m benchmarks.row_preparation --rows 4000 --tokenizer FOLDER [--data ../shared/data]

Rows are shaped as JudgeLM's: a question, two answers and a reference out of AlpacaEval's files, two reviews out of
Vicuna's as the reasons, some 680 tokens each; three epochs, swap and reference drop with 0.5 each. Without --tokenizer
a BPE of 32,000 pieces is trained on the texts. Both ways are timed in turns, and their rows must be the same bytes.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.data.builder.options import usable_workers
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.chunks import Chunk, RowJob, make_chunks
from judgelm.training.rows.sft import SFTRowBuilder

EPOCHS = range(3)
LONGEST = 900
"""Characters of an answer: what makes rows of some 680 tokens."""


class TokenisedTwice(SFTRowBuilder):
    """As rows were made: a target alone, its prompt, both together, with offsets, in every epoch again."""

    def __init__(self, tokenizer: Any, options: RowOptions) -> None:
        super().__init__(tokenizer, options)
        self._truncator.tokenizer = tokenizer
        self._tokens = self._each_time  # type: ignore[assignment]

    def _each_time(self, prompt: Any, texts: Any) -> Any:
        [(line, reason)] = texts
        room = self.options.window // 2
        tokenized: Any = self._truncator.truncate(prompt, min(len(self._truncator.ids(line + reason)) + 1, room))
        if not hasattr(tokenized, "ids"):
            return None
        target = self._after_prompt(tokenized, prompt, line + reason)
        return tokenized, [[*target, self._tokenizer.eos_token_id] if len(target) < room else target[:room]]


def main() -> None:
    """Make the labelled file, time both ways in turns, print rows per second and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, help="default: one for each core")
    parser.add_argument("--tokenizer", help="folder of a fast tokenizer")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    workers = usable_workers(options.workers)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in judgelm_rows(options.data, options.rows)))
        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer) if options.tokenizer else trained(file)
        rates: dict[str, list[float]] = {"one process, as before": [], "one process": [], f"{workers} workers": []}
        hashes = set()
        for _ in range(options.rounds):
            for (name, timed), kind, count in zip(
                rates.items(), (TokenisedTwice, SFTRowBuilder, SFTRowBuilder), (1, 1, workers), strict=True
            ):
                rate, tokens, digest = time_rows(str(file), tokenizer, kind, count)
                timed.append(rate)
                hashes.add(digest)
                print(f"{name}: {rate:.0f} rows/s, {tokens:.0f} tokens a row", file=sys.stderr)
    if len(hashes) != 1:
        sys.exit("error: the two ways made different rows")
    before = statistics.median(rates["one process, as before"])
    for name, timed in rates.items():
        median = statistics.median(timed)
        print(
            f"{name}: {median:.0f} rows/s ({min(timed):.0f} to {max(timed):.0f}, {len(timed)} rounds), "
            f"{median / before:.2f} times as fast; 100,000 rows x 3 epochs in {300_000 / median / 60:.1f} min"
        )


def time_rows(file: str, tokenizer: Any, kind: type[SFTRowBuilder], workers: int) -> tuple[float, float, str]:
    """Rows a second, tokens a row, and a hash of all rows. Workers are started within the time."""
    made = RowOptions(template="judgelm-v1", window=2048, swap_prob=0.5, reference_drop_prob=0.5)
    job = RowJob(builder=kind, tokenizer=tokenizer, options=made, epochs=EPOCHS)
    digest, rows, tokens = hashlib.sha256(), 0, 0
    began = time.perf_counter()
    chunks: Iterator[Chunk] = make_chunks(kind(tokenizer, made).items([file]), job, workers)
    for chunk in chunks:
        for batch in chunk.rows:
            ids = batch.column("input_ids").values
            rows, tokens = rows + batch.num_rows, tokens + len(ids)
            digest.update(ids.to_numpy().tobytes())
    return rows / (time.perf_counter() - began), tokens / rows, digest.hexdigest()


def judgelm_rows(data: Path, count: int) -> Iterator[dict[str, Any]]:
    """Labelled rows of real texts; the scores are drawn."""
    read = pyarrow.parquet.read_table
    questions = read(data / "alpaca_eval_judgments/instructions.parquet")["instruction"].to_pylist()
    outputs = read(data / "alpaca_eval_judgments/outputs.parquet")
    answers: dict[int, list[str]] = {}
    for question, text in zip(outputs["instruction"].to_pylist(), outputs["text"].to_pylist(), strict=True):
        if len(text) <= LONGEST:
            answers.setdefault(question, []).append(text)
    answers = {question: texts for question, texts in answers.items() if len(texts) > 2}
    reviews = [
        json.loads(line)["text"] for path in sorted(data.glob("vicuna_reviews/review/*")) for line in path.open()
    ]
    reasons = [review.split("\n", 1)[1] for review in reviews if "\n" in review]
    rng = random.Random(0)
    for index in range(count):
        question = rng.choice(sorted(answers))
        first, second, reference = rng.sample(answers[question], 3)
        row = {"question_id": index, "question_body": questions[question], "reference": {"text": reference}}
        row |= {"answer1_body": first, "answer2_body": second}
        for name in ("", "_w_reference"):
            scores = [rng.randint(1, 10), rng.randint(1, 10)]
            row |= {f"score{name}": scores, f"text{name}": f"{scores[0]} {scores[1]}\n{rng.choice(reasons)}"}
        yield row


def trained(file: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 32,000 pieces on the file's texts."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(file)], vocab_size=32_000, special_tokens=["</s>"], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="</s>")


if __name__ == "__main__":
    main()
