"""All formats of published judgments, and the recognition of a file's format by the fields of its first row."""

from collections.abc import Mapping, Sequence

from judgelm.data.benchmarks.alpaca_eval import are_tables
from judgelm.data.judgments.base import JudgmentFormat
from judgelm.data.judgments.benchmark_outputs import AUTO_J, JUDGEBENCH, LLMBAR, PANDALM
from judgelm.data.judgments.correctness import MMLU_PRO
from judgelm.data.judgments.leaderboards import ALPACA_EVAL, ARENA_HARD, FASTCHAT_PAIR, FASTCHAT_SINGLE
from judgelm.data.judgments.reviews import CHERRY, REVIEWS
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import Row
from judgelm.errors import ConfigError, InputError, not_found

FORMATS: Mapping[str, JudgmentFormat] = {
    published.name: published
    for published in (
        *(LLMBAR, JUDGEBENCH, AUTO_J, PANDALM, ALPACA_EVAL, FASTCHAT_PAIR, FASTCHAT_SINGLE, ARENA_HARD),
        *(REVIEWS, CHERRY, MMLU_PRO),
    )
}


def get_format(name: str) -> JudgmentFormat:
    """The format of that name.

    Raises:
        ConfigError: unknown name; the message lists the available ones.
    """
    if name not in FORMATS:
        raise not_found("format", name, FORMATS)
    return FORMATS[name]


def recognise(files: Sequence[str]) -> JudgmentFormat:
    """The format of published judgments.

    Raises:
        InputError: a file cannot be read, or its fields fit no format.
        ConfigError: the files are of different formats.
    """
    if are_tables(files):
        return ALPACA_EVAL
    formats = {path: _recognise(path) for path in files}
    if len({published.name for published in formats.values()}) > 1:
        listed = ", ".join(f"{path} is {published.name}" for path, published in formats.items())
        raise ConfigError(f"files of different formats: {listed}; import them one by one")
    return next(iter(formats.values()))


def _recognise(path: str) -> JudgmentFormat:
    row = first_row(path)
    if row is None:
        raise InputError(f"{path}: no row can be read; give a file of published judgments")
    matches = [published for published in FORMATS.values() if _fits(published, row)]
    if not matches:
        fields = ", ".join(row.data) or "none"
        raise InputError(
            f"{path}: not recognised by its fields ({fields}); name its format with --format: {', '.join(FORMATS)}"
        )
    return max(matches, key=lambda published: len(published.needs))


def _fits(published: JudgmentFormat, row: Row) -> bool:
    fields = row.data.keys()
    if published is AUTO_J:
        return fields == {"output"}
    if published is PANDALM:
        return "idx" in fields and any(name.endswith("_result") for name in fields)
    if published is MMLU_PRO and not fields & {"pred", "outputs"}:
        return False
    return set(published.needs) <= fields
