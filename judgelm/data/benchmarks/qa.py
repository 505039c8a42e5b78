"""Extractive question answering: HotpotQA, 2WikiMultiHopQA, DROP, Quoref, and samples of about a thousand questions.

Source of the sampling: QA-Judge, section 3: all of the types with fewer than 100 questions, the others drawn in
proportion to their share of the whole; no yes/no questions, and of Quoref no dates and years, which the rules mistake
there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from judgelm.data.benchmarks.base import Benchmark, Entry
from judgelm.data.formats.qa import QaDataSet, qa_row, read_qa
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rejects import OnReject
from judgelm.errors import ConfigError, InputError
from judgelm.records import Sample

_QA_NAMES: Mapping[QaDataSet, str] = {
    "hotpotqa": "HotpotQA (Yang et al. 2018)",
    "2wiki": "2WikiMultiHopQA (Ho et al. 2020)",
    "drop": "DROP (Dua et al. 2019)",
    "quoref": "Quoref (Dasigi et al. 2019)",
}


def _qa(data_set: QaDataSet, files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        _check_shape(path, data_set)
        for sample in read_qa(path, data_set, on_reject=on_reject):
            yield Entry({name: value for name, value in qa_row(sample).items() if value is not None})


def _check_shape(path: str, data_set: QaDataSet) -> None:
    """Refuse a file in the shape of another set; flat rows fit any set."""
    first = next(read_qa(path, on_reject=lambda reject: None))  # without a usable question, that is an error
    data_set_found = first.metadata["data_set"]
    if data_set_found not in (data_set, "hotpotqa") or (data_set_found != data_set and _has_titles(path)):
        raise InputError(f"{path}: has the shape of {data_set_found}, not of {data_set}; import it as {data_set_found}")


def _has_titles(path: str) -> bool:
    """True if the contexts are titles with sentences, as in HotpotQA's own files."""
    row = first_row(path)
    return row is not None and isinstance(row.data.get("context"), list | dict)


QA_BENCHMARKS = tuple(
    Benchmark(
        name=name,
        files="the published file, or flat rows with a context and, where they are to be judged, predictions",
        protocol="An answer is right where it matches a gold answer exactly or, where it does not, the judge calls it "
        "correct; agreement with people by point-biserial and Pearson correlation, exact match and F1 beside it.",
        judge_with="--mode qa",
        source=f"{title}; protocol of QA-Judge, sections 4 and 5",
        load=partial(_qa, name),
    )
    for name, title in _QA_NAMES.items()
)


TARGET = 1000
WHOLE_BELOW = 100


def excluded_types(data_set: str) -> frozenset[str]:
    """Answer types that are left out of a data set."""
    return frozenset({"bool", "date", "year"}) if data_set == "quoref" else frozenset({"bool"})


def sample_by_type(
    samples: Sequence[Sample], *, target: int = TARGET, whole_below: int = WHOLE_BELOW, seed: int = 0
) -> list[Sample]:
    """A subset of one data set's questions, in their own order.

    A type with fewer than `whole_below` questions is kept whole. Of another `target` times its share of all questions
    used are drawn, at most all of them; so the subset can exceed `target` by what the small types have above their
    share (the paper's have 1,000 to 1,124 questions). Ids and the seed decide what is drawn, not the order of the file.

    Args:
        samples: of one data set, with `answer_type` and `data_set` in their metadata.
        target: about how many to keep, at least 1.
        whole_below: types with fewer questions are kept whole.
        seed: another seed draws others.

    Raises:
        ConfigError: `target` is below 1.
    """
    if target < 1:
        raise ConfigError(f"target is {target}; it must be at least 1")
    used = [
        sample for sample in samples if _type(sample) not in excluded_types(str(sample.metadata.get("data_set", "")))
    ]
    by_type: dict[str, list[str]] = defaultdict(list)
    for sample in used:
        by_type[_type(sample)].append(sample.id)
    chosen_ids: set[str] = set()
    for name, ids in by_type.items():
        share = len(ids) if len(ids) < whole_below else min(len(ids), round(target * len(ids) / len(used)))
        drawing = np.random.default_rng([seed, *name.encode()])
        chosen_ids.update(drawing.choice(sorted(ids), size=share, replace=False).tolist())
    return [sample for sample in used if sample.id in chosen_ids]


def type_counts(samples: Sequence[Sample]) -> Counter[str]:
    """Number of questions of each answer type, as in the paper's Table 1."""
    return Counter(_type(sample) for sample in samples)


def _type(sample: Sample) -> str:
    return str(sample.metadata.get("answer_type", sample.category or "string"))
