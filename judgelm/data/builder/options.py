"""Options of the data builder (inputs, augmentation, cleaning, split) and the sources of their defaults."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from judgelm.data.builder.balance import LENGTH_STRATA, Balance
from judgelm.data.label_codes import parse_label_code
from judgelm.data.samples import Reading
from judgelm.data.swap_names import OnAmbiguous
from judgelm.errors import ConfigError

_CHECKED = ConfigDict(extra="forbid")


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CHECKED)
class InputOptions:
    """One labelled file.

    Attributes:
        path: the file, in any format that judgelm recognises.
        name: value of its rows' `source`; empty for the file's name without its endings.
        winner_scores: scores of winner, loser and of both in a tie, for labels that name a winner alone.
        columns: name that a layout knows -> the file's own, such as `{question: prompt}`.
        label_code: meaning of the label values, such as `0=first,1=tie,2=second`.
        sheet: name or number (from 1) of a workbook's sheet.
    """

    path: str
    name: str = ""
    winner_scores: tuple[float, float, float] | None = None
    columns: Mapping[str, str] = Field(default_factory=dict)
    label_code: str | None = None
    sheet: str | None = None

    @property
    def source(self) -> str:
        """Value of its rows' `source`."""
        return self.name or Path(self.path).name.partition(".")[0]

    @property
    def reading(self) -> Reading:
        """The user's column names and label code.

        Raises:
            ConfigError: the code has another form.
        """
        code = None if self.label_code is None else parse_label_code(self.label_code)
        return Reading(columns=self.columns, label_code=code, sheet=self.sheet)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CHECKED)
class BuildOptions:
    """Options of a build. Probabilities the paper does not state are those of the original's script, 0.5.

    Attributes:
        inputs: the labelled files; a plain path means `{path: ...}`.
        out: folder to write into.
        format: of the sets: `jsonl`, or `parquet`.
        seed: every draw depends on the seed and a row's id.
        epochs: copies of each pair in the training set, each with its own draws.
        swap: `draw` swaps the answers of a pair with `swap_prob`; `both` writes each pair in both orders; `none`.
        swap_prob: probability that an epoch shows a pair with its answers swapped.
        ambiguous: treatment of a pair to be swapped whose reason does not say clearly which answer it means:
            `keep` leaves the pair unswapped, `drop_reason` swaps it without that reason.
        reference: `both` writes both judgments of a pair, and training draws; `draw` draws here, prompt and target
            together, with `reference_drop_prob`; `ignore` drops every reference and what was judged by it.
        reference_drop_prob: probability that a pair judged with a reference is shown without.
        references: file of id -> reference that replaces a row's own; what was judged by the old one goes.
        reason_prob: share of pairs that keep their reasons; the others are score lines alone.
        scale: lowest and highest valid score.
        out_of_scale: `drop` a judgment outside it, or `clip` its scores.
        resample: how often a pair of this winner (`1`, `2`, `tie`, before any swap) is taken in the mean, such as 2.0
            or 0.5; those not named are taken once.
        near_duplicates: similarity in [0.7, 1] from which the later of two rows is dropped; 1 drops equal rows only,
            and needs a quarter of the memory, of about 2 KB a row.
        validation: a share of the questions (below 1) or a number of them; 0 makes no validation set. Questions are
            drawn by hash, and near copies of one go together.
        test: as `validation`, for a test set on still other questions.
        balance: what must not predict the winner, in each set by itself: `position`, `models`, `length`. Pairs are
            swapped for the first and left out for the others; see `judgelm.data.builder.splits`.
        length_strata: bounds of the strata of the difference in length, in characters, ascending, for `balance`.
        longer_share: how often the longer answer wins in the training set, for `balance` by length and not by models:
            people prefer the longer answer more often than not, so a judge may learn that, and should learn little of
            it. Validation and test sets stay at one half.
        exclude: files of test questions, in any format; pairs that ask one of them, a near copy, or one with
            the same passage of 13 words are dropped; see `judgelm.data.duplicates`.
        max_per_question: pairs of a question that stay, drawn by hash before balancing. None is no limit.
        max_characters: pairs with more characters in question and both answers together are dropped.
        tokenizer: folder or hub id, for `max_tokens`.
        template: with which prompts are measured; the trainer's own.
        max_tokens: longer rows, prompt and reply together, are dropped. None measures nothing.
        subsets: sizes of nested training subsets, written in addition to the whole set.
        abilities: rows beside the pairs, each kind in files of its own: `single` answers (Figure 5, from pairs
            judged with a reference), `multi` (three or four answers of one question, from its pairs; their texts are
            held in memory), `chat` (every row as messages, for other trainers). See `judgelm.data.augmentation`.
        max_reject_rate: share of the rows read above which those that cannot be used end the command with exit code 2.
        workers: number of processes, or `auto`: one for each core that this process may use, up to 16. It does not
            change the files.
    """

    inputs: tuple[InputOptions, ...] = Field(min_length=1)
    out: str
    format: Literal["jsonl", "parquet"] = "jsonl"
    seed: int = 0
    epochs: int = Field(default=1, ge=1)
    swap: Literal["draw", "both", "none"] = "draw"
    swap_prob: float = Field(default=0.5, ge=0, le=1)
    ambiguous: OnAmbiguous = "keep"
    reference: Literal["both", "draw", "ignore"] = "both"
    reference_drop_prob: float = Field(default=0.5, ge=0, le=1)
    references: str | None = None
    reason_prob: float = Field(default=1.0, ge=0, le=1)
    scale: tuple[float, float] = (1, 10)
    out_of_scale: Literal["drop", "clip"] = "drop"
    resample: dict[Literal["1", "2", "tie"], float] = Field(default_factory=dict)
    near_duplicates: float = Field(default=0.9, ge=0.7, le=1)
    validation: float = Field(default=0.05, ge=0)
    test: float = Field(default=0, ge=0)
    balance: tuple[Balance, ...] = ()
    length_strata: tuple[int, ...] = LENGTH_STRATA
    longer_share: float = Field(default=0.5, gt=0, lt=1)
    exclude: tuple[str, ...] = ()
    max_per_question: int | None = Field(default=None, ge=1)
    max_characters: int | None = Field(default=None, ge=1)
    tokenizer: str | None = None
    template: str = "judgelm-v1"
    max_tokens: int | None = Field(default=None, ge=1)
    subsets: tuple[int, ...] = ()
    abilities: tuple[Literal["single", "multi", "chat"], ...] = ()
    max_reject_rate: float = Field(default=0.05, ge=0, le=1)
    workers: int | str = 1

    @property
    def files_read(self) -> tuple[str, ...]:
        """The files that the build reads, and so must not write."""
        return (
            *(source.path for source in self.inputs),
            *self.exclude,
            *((self.references,) if self.references else ()),
        )


_OPTIONS = TypeAdapter(BuildOptions)
_MOST_WORKERS = 16
"""One process reads for all, and can feed about this many."""


def usable_workers(requested: int | str | None) -> int:
    """Processes that work on rows: the number that is requested, else one for each core of this process, up to 16."""
    if isinstance(requested, int) and requested:
        return requested
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


def build_options(values: Mapping[str, Any], location: str) -> BuildOptions:
    """Options out of a YAML file or keywords.

    Args:
        values: the options by name.
        location: where they stand, for errors.

    Raises:
        ConfigError: one is unknown, wrong, or does not go with another.
    """
    options_read = dict(values)
    if isinstance(inputs := options_read.get("inputs"), list | tuple):
        options_read["inputs"] = [{"path": value} if isinstance(value, str) else value for value in inputs]
    if isinstance(resample := options_read.get("resample"), Mapping):
        options_read["resample"] = {str(winner): share for winner, share in resample.items()}
    try:
        options = _OPTIONS.validate_python(options_read)
    except ValidationError as error:
        raise ConfigError(f"{location}: {_finding(error)}") from error
    for source, inputs_so_named in Counter(value.source for value in options.inputs).items():
        if inputs_so_named > 1:
            raise ConfigError(f"{location}: {inputs_so_named} inputs are named {source}; give each its own name")
    if options.max_tokens is not None and options.tokenizer is None:
        raise ConfigError(f"{location}: max_tokens needs a tokenizer to count with; give tokenizer, or leave it out")
    if any(share < 0 for share in options.resample.values()):
        raise ConfigError(f"{location}: resample: a share below 0; 0 drops all pairs of that winner")
    for name, amount in (("validation", options.validation), ("test", options.test)):
        if amount >= 1 and not float(amount).is_integer():
            raise ConfigError(f"{location}: {name} {amount:g}: a share below 1, or a whole number of questions")
    if options.workers != "auto" and not (isinstance(options.workers, int) and options.workers >= 1):
        raise ConfigError(f"{location}: workers={options.workers!r}: a number of processes from 1, or auto")
    if options.longer_share != 0.5 and ("length" not in options.balance or "models" in options.balance):
        raise ConfigError(f"{location}: longer_share needs balance by length, and not by models")
    if list(options.length_strata) != sorted(set(options.length_strata)):
        raise ConfigError(f"{location}: length_strata: expected ascending bounds, each once")
    return options


def _finding(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    known = ", ".join(option.name for option in fields(BuildOptions))
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown option {name}; available: {known}"
    if first["type"].startswith("missing"):
        return f"{name} is missing; give it in the file, or as {name}=VALUE behind the command"
    return f"{name}={first['input']!r}: {first['msg'].replace('tuple', 'list')}"
