"""Options for the data builder."""

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
    """A labelled file and how to read it.

    Attributes:
        name: `source` of the rows; by default, the file name without extensions.
        winner_scores: scores for the winner, the loser, and both answers in a tie, for labels without scores.
        columns: field -> column, such as `{question: prompt}`.
        label_code: such as `0=first,1=tie,2=second`.
        sheet: name or 1-based number.
    """

    path: str
    name: str = ""
    winner_scores: tuple[float, float, float] | None = None
    columns: Mapping[str, str] = Field(default_factory=dict)
    label_code: str | None = None
    sheet: str | None = None

    @property
    def source(self) -> str:
        """The value of `source` in the rows."""
        return self.name or Path(self.path).name.partition(".")[0]

    @property
    def reading(self) -> Reading:
        """The options for reading the file."""
        code = None if self.label_code is None else parse_label_code(self.label_code)
        return Reading(columns=self.columns, label_code=code, sheet=self.sheet)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CHECKED)
class BuildOptions:
    """Options for a build. Probabilities that the paper does not specify default to 0.5, as in the original script.

    Attributes:
        inputs: labelled files; a plain path is short for `{path: ...}`.
        seed: determines all random draws, together with each row's id.
        epochs: number of copies of each pair in the training set, with independent draws.
        swap: `draw` swaps each pair with probability `swap_prob`, `both` writes both orders, and `none` disables
            swapping.
        swap_prob: probability that a pair is swapped in an epoch.
        ambiguous: if names in a reason are ambiguous, `keep` the pair unswapped, or swap the pair and `drop_reason`.
        reference: `both` writes both judgments, one of which is drawn during training; `draw` draws one judgment during
            the build, with `reference_drop_prob`; `ignore` drops references and the judgments made with them.
        reference_drop_prob: probability that the reference, and the judgment made with it, is dropped.
        references: file of references, keyed by id; judgments made with a replaced reference are dropped.
        reason_prob: probability that a pair keeps its reasons.
        scale: lowest and highest valid score.
        out_of_scale: `drop` judgments outside the scale, or `clip` their scores.
        resample: winner before swapping (`1`, `2`, `tie`) -> average number of copies of a pair, such as 2.0 or 0.5.
        near_duplicates: minimum similarity, in [0.7, 1], at which the later of two rows is dropped. 1 drops only equal
            rows and uses a quarter of the memory (otherwise about 2 KB per row).
        validation: share of the questions (below 1), or number of questions, to hold out; near duplicates stay
            together.
        test: like `validation`, for a test set.
        balance: properties that must not predict the winner (`position`, `models`, `length`); see `balance.py`.
        length_strata: ascending bounds of length differences, in characters, for `balance`.
        longer_share: share of training pairs won by the longer answer, for `balance` by length but not by models. In
            validation and test sets, the share is 0.5.
        exclude: files of test questions; training pairs with an equal or similar question, or with a shared 13-word
            passage, are dropped.
        max_per_question: maximum number of pairs per question, drawn by hash before balancing.
        max_characters: maximum total length of the question and both answers.
        tokenizer: folder or Hub id of the tokenizer for `max_tokens`.
        template: prompt template used in training, for `max_tokens`.
        max_tokens: maximum total length of prompt and reply.
        subsets: sizes of nested training subsets to write in addition to the full set.
        max_reject_rate: maximum share of unusable rows; if it is exceeded, the command exits with code 2.
        workers: number of processes, or `auto` for one per core, up to 16.
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
    max_reject_rate: float = Field(default=0.05, ge=0, le=1)
    workers: int | str = 1

    @property
    def files_read(self) -> tuple[str, ...]:
        """The input files, which must not be overwritten."""
        references = (self.references,) if self.references else ()
        return (*(source.path for source in self.inputs), *self.exclude, *references)


_OPTIONS = TypeAdapter(BuildOptions)
_MAX_WORKERS = 16
"""The reader is a single process, which can keep about this many workers busy."""


def usable_workers(requested: int | str | None) -> int:
    """Return the requested number of processes; `auto` means one per available core, up to 16."""
    if isinstance(requested, int) and requested:
        return requested
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def build_options(values: Mapping[str, Any], location: str) -> BuildOptions:
    """Validate options from a YAML file or keywords; `location` is used in error messages.

    Raises:
        ConfigError: an option is unknown or invalid, or options conflict.
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
            raise ConfigError(
                f"{location}: {inputs_so_named} inputs have the name {source}; give each input a different name"
            )
    if options.max_tokens is not None and options.tokenizer is None:
        raise ConfigError(f"{location}: max_tokens requires tokenizer; set it, or remove max_tokens")
    if any(share < 0 for share in options.resample.values()):
        raise ConfigError(f"{location}: resample: expected values of at least 0, where 0 drops all such pairs")
    for name, amount in (("validation", options.validation), ("test", options.test)):
        if amount >= 1 and not float(amount).is_integer():
            raise ConfigError(f"{location}: {name} {amount:g}: expected a share below 1 or a whole number of questions")
    if options.workers != "auto" and not (isinstance(options.workers, int) and options.workers >= 1):
        raise ConfigError(f"{location}: workers={options.workers!r}: expected auto, or at least 1 process")
    if options.longer_share != 0.5 and ("length" not in options.balance or "models" in options.balance):
        raise ConfigError(f"{location}: longer_share requires balance to include length but not models")
    if list(options.length_strata) != sorted(set(options.length_strata)):
        raise ConfigError(f"{location}: length_strata: expected strictly ascending bounds")
    return options


def _finding(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = ", ".join(option.name for option in fields(BuildOptions))
        return f"unknown option {name}; available: {known}"
    if first["type"].startswith("missing"):
        return f"{name} is missing; set it in the file or as {name}=VALUE on the command line"
    return f"{name}={first['input']!r}: {first['msg'].replace('tuple', 'list')}"
