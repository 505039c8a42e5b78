r"""Collect answers of many models to seed questions, and draw pairs of them for a teacher.

    python data_tools/collect_answers.py collect questions.jsonl -o answers/ --config configs/data/collect.yaml
    python data_tools/collect_answers.py collect questions.jsonl -o answers/ \
        --answerer name=vicuna,model=lmsys/vicuna-7b-v1.5 \
        --answerer name=vicuna,model=lmsys/vicuna-7b-v1.5,temperature=0.7,seed=1 \
        --answerer name=local,engine=openai,model=NAME,engine_args.base_url=http://localhost:8000/v1
    python data_tools/collect_answers.py pairs questions.jsonl --answers answers/*.jsonl -o pairs.jsonl --with-reference

`collect` loads one model after another and writes answers/NAME.jsonl for each, with its manifest beside it; the same
command again goes on wherever it was stopped, and does not load what has finished. A question is a row with
`question_body` or `question`, and perhaps an id, a reference and a category. `pairs` draws answers of different models
at random, by seed and question alone, and writes JudgeLM rows without scores, which `annotate.py` takes.
"""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from judgelm.cli.console import EXIT_FAILURES, EXIT_INTERRUPTED, EXIT_USAGE, terminated_as_interrupt
from judgelm.data.answers.files import AnswerSet, PairSampler, pair_rows, read_questions
from judgelm.data.answers.generators import AnswerGenerator, build_generator, merge_generators, parse_generator
from judgelm.data.readers.rows import Reject
from judgelm.errors import ConfigError, JudgelmError
from judgelm.jsonl import Appender
from judgelm.records import Sample
from judgelm.runs.answer_generation import collect
from judgelm.runs.process_cleanup import end_orphans, mark_children
from judgelm.runs.stats import AnswerStats
from judgelm.yaml_files import read_yaml

LOG_EVERY_S = 30.0


def main() -> int:
    """Read the options, collect or draw, and say what became of everything."""
    options = parse_options()
    try:
        with terminated_as_interrupt():
            return {"collect": collect_all, "pairs": draw_pairs}[options.command](options)
    except JudgelmError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="let models answer")
    collecting.add_argument("questions", metavar="QUESTIONS")
    collecting.add_argument("-o", "--out", required=True, type=Path, metavar="FOLDER", help="one file for each model")
    collecting.add_argument("--config", type=Path, help="YAML file with a list of answerers")
    collecting.add_argument("--answerer", action="append", default=[], metavar="NAME=VALUE,...", help="one more")
    collecting.add_argument("--limit", type=int, help="only the first so many questions")
    collecting.add_argument("--retry", choices=["engine", "failed"], default="engine", help="which failures to redo")
    collecting.add_argument("--overwrite", action="store_true", help="start over")
    pairs = commands.add_parser("pairs", help="draw pairs of answers")
    pairs.add_argument("questions", metavar="QUESTIONS")
    pairs.add_argument("--answers", required=True, nargs="+", metavar="FILE")
    pairs.add_argument("-o", "--out", required=True, type=Path, metavar="OUT.jsonl")
    pairs.add_argument("--pairs-per-question", type=int, default=1, help="at most (default 1)")
    pairs.add_argument("--seed", type=int, default=0, help="with the question's id it decides what is drawn")
    pairs.add_argument("--with-reference", action="store_true", help='references are answers too, of model "reference"')
    pairs.add_argument("--same-model", action="store_true", help="a model may meet itself, in another decoding")
    pairs.add_argument("--drop-truncated", action="store_true", help="leave out answers that met their token limit")
    return parser.parse_args()


def collect_all(options: argparse.Namespace) -> int:
    """Let each model answer; one that cannot be loaded does not keep the others from it."""
    answerers = merge_generators([*configured(options.config), *map(parse_generator, options.answerer)])
    if not answerers:
        raise ConfigError("no answerer; name one with --answerer name=...,model=... or in a --config file")
    questions = questions_of(options.questions, options.limit)
    options.out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for answerer in answerers:
        out = options.out / f"{answerer.name}.jsonl"
        end_orphans(str(out))
        mark_children(str(out))
        log = Log(answerer.name, len(questions) * len(answerer.decodings))
        try:
            stats = collect(questions, answerer, out, retry=options.retry, overwrite=options.overwrite, on_answer=log)
        except JudgelmError as error:
            print(f"{answerer.name}: error: {error}", file=sys.stderr)
            worst = EXIT_USAGE
            continue
        print(f"{log.line(stats)} in {out}")
        if stats.failures:
            print(f"{answerer.name}: the first failure: {stats.first_failure}", file=sys.stderr)
            worst = worst or EXIT_FAILURES
    return worst


class Log:
    """A line every half minute."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total = name, total
        self._logged = time.monotonic()

    def __call__(self, stats: AnswerStats) -> None:
        """Print it when it is due."""
        if time.monotonic() - self._logged > LOG_EVERY_S:
            self._logged = time.monotonic()
            print(self.line(stats), file=sys.stderr)

    def line(self, stats: AnswerStats) -> str:
        """How far it is."""
        failures = stats.failures + stats.earlier_failures
        failed = ", ".join(f"{count} failed ({code})" for code, count in failures.items())
        cost = f", {stats.engine_stats['cost_usd']:,.4f} USD" if stats.engine_stats.get("cost_usd") else ""
        return (
            f"{self._name}: {stats.answered + stats.skipped} of {self._total} asked, {stats.skipped} of them before, "
            f"{stats.truncated} at their token limit{failed and f', {failed}'}{cost}"
        )


def configured(path: Path | None) -> list[AnswerGenerator]:
    """The answerers of a configuration file."""
    if path is None:
        return []
    given = read_yaml(path)
    if not isinstance(given, dict) or given.keys() != {"answerers"} or not isinstance(given["answerers"], list):
        raise ConfigError(f"--config {path}: expected a list under the one name answerers")
    return [
        build_generator(settings if isinstance(settings, dict) else {"name": settings})
        for settings in given["answerers"]
    ]


def questions_of(path: str, limit: int | None = None) -> list[Sample]:
    """The questions; a row that cannot be used is named and left out."""

    def show(reject: Reject) -> None:
        print(f"left out {reject.message}", file=sys.stderr)

    return read_questions(path, on_reject=show, limit=limit)


def draw_pairs(options: argparse.Namespace) -> int:
    """Write the pairs; the file appears when it is whole."""
    if options.pairs_per_question < 1:
        raise ConfigError(f"--pairs-per-question {options.pairs_per_question}: it must be 1 or more")
    questions = questions_of(options.questions)
    answers = AnswerSet(options.answers, drop_truncated=options.drop_truncated)
    draw = PairSampler(pairs=options.pairs_per_question, seed=options.seed, same_model=options.same_model)
    counts: Counter[str] = Counter()
    partial = Path(f"{options.out}.partial")
    with Appender(partial, overwrite=True) as file:
        for row in pair_rows(questions, answers, draw, with_reference=options.with_reference, counts=counts):
            file.write(row)
    os.replace(partial, options.out)
    counts["answers that failed or were dropped"] = answers.left_out
    for outcome, count in counts.items():
        print(f"{count:>8}  {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
