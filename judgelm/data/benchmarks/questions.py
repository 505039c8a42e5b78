"""Extractive question answering: HotpotQA, 2WikiMultiHopQA, DROP, Quoref."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from judgelm.data.benchmarks.base import Benchmark, Entry
from judgelm.data.formats.qa import QaDataSet, qa_row, read_qa
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rejects import OnReject
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError

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
    """Refuse a file in the shape of another set; flat rows could be of any."""
    first = next(read_qa(path, on_reject=lambda reject: None))  # without a usable question, that is an error
    data_set_found = first.metadata["data_set"]
    if data_set_found not in (data_set, "hotpotqa") or (data_set_found != data_set and _has_titles(path)):
        raise InputError(f"{path}: has the shape of {data_set_found}, not of {data_set}; import it as {data_set_found}")


def _has_titles(path: str) -> bool:
    """Whether the contexts are titles with sentences, as HotpotQA's own files have them."""
    row = next((row for row in read_rows(path) if isinstance(row, Row)), None)
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
