"""Extractive question answering (HotpotQA, 2WikiMultiHopQA, DROP, Quoref) and MM-Vet's questions about images."""

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from judgelm.data.benchmarks.base import Benchmark, Entry, model_of_file, plain_row
from judgelm.data.fields import described, row_error, text_field
from judgelm.data.qa_files import QaDataSet, qa_row, read_qa
from judgelm.data.readers import read_rows
from judgelm.data.rows import Row
from judgelm.data.samples import OnReject, rejected
from judgelm.errors import InputError
from judgelm.records import Sample

_QA_NAMES: Mapping[QaDataSet, str] = {
    "hotpotqa": "HotpotQA (Yang et al. 2018)",
    "2wiki": "2WikiMultiHopQA (Ho et al. 2020)",
    "drop": "DROP (Dua et al. 2019)",
    "quoref": "Quoref (Dasigi et al. 2019)",
}
_IMAGE = re.compile(r"[^\s/]+\.(?:jpe?g|png|webp|gif|bmp)", re.IGNORECASE)


def _qa(data_set: QaDataSet, files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        _check_shape(path, data_set)
        for sample in read_qa(path, data_set, on_reject=on_reject):
            yield Entry({name: value for name, value in qa_row(sample).items() if value is not None})


def _check_shape(path: str, data_set: QaDataSet) -> None:
    """Refuse a file in the shape of another set; flat rows could be of any."""
    first = next(read_qa(path, on_reject=lambda reject: None), None)
    if first is None:
        raise InputError(f"{path}: no question in it can be used; give the published file of {data_set}")
    found = first.metadata["data_set"]
    if found not in (data_set, "hotpotqa") or (found != data_set and _has_titles(path)):
        raise InputError(f"{path}: has the shape of {found}, not of {data_set}; import it as {found}")


def _has_titles(path: str) -> bool:
    """Whether the contexts are titles with sentences, as HotpotQA's own files have them."""
    row = next((row for row in read_rows(path) if isinstance(row, Row)), None)
    return row is not None and isinstance(row.data.get("context"), list | dict)


def _mm_vet(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    objects = {path: _object(path) for path in files}
    questions = [path for path, value in objects.items() if all(isinstance(one, dict) for one in value.values())]
    answers = [path for path, value in objects.items() if all(isinstance(one, str) for one in value.values())]
    if len(questions) != 1 or len(questions) + len(answers) != len(files):
        raise InputError(
            f"mm-vet: expected mm-vet.json (id -> question, answer, imagename, capability) and files of answers "
            f"(id -> text), got {len(questions)} and {len(answers)} of {len(files)} files; give the published files"
        )
    for number, (name, data) in enumerate(objects[questions[0]].items(), 1):
        row = Row(questions[0], number, {"id": name, **data})
        try:
            sample = _mm_vet_question(row, name)
            if not answers:
                yield _with_images(sample)
            for path in answers:
                yield _with_images(_answered(sample, row, objects[path], path))
        except InputError as error:
            on_reject(rejected(row, error))


def _with_images(sample: Sample) -> Entry:
    """The images' file names, as published, stand in a field of the row."""
    metadata = dict(sample.metadata)
    images = metadata.pop("images")
    return Entry(plain_row(replace(sample, metadata=metadata)) | {"images": images})


def _object(path: str) -> dict[str, Any]:
    try:
        raw = Path(path).read_bytes()
        value = json.loads((gzip.decompress(raw) if path.lower().endswith(".gz") else raw).decode("utf-8-sig"))
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise InputError(f"{path}: cannot read: {error}; give MM-Vet's JSON files") from error
    if not isinstance(value, dict) or not value:
        raise InputError(f"{path}: expected an object by question id, got {described(value)[:80]}; give MM-Vet's files")
    return value


def _mm_vet_question(row: Row, name: str) -> Sample:
    """The gold answer as the original evaluator shows it; what it asks for is taken apart in the metadata."""
    needs = "question, answer, imagename, capability"
    question, answer = (text_field(row, field, needs) for field in ("question", "answer"))
    capabilities = row.data.get("capability")
    if not isinstance(capabilities, list) or not all(isinstance(one, str) for one in capabilities):
        raise row_error(row, f'field "capability": expected a list of texts, got {described(capabilities)}')
    image = row.data.get("imagename")
    parts = question.split("<IMG>")
    images = [image] if isinstance(image, str) else [part.strip() for part in parts if _IMAGE.fullmatch(part.strip())]
    if not images:
        raise row_error(row, "no image: neither imagename nor a file name between <IMG> in the question")
    metadata: dict[str, object] = {
        "images": images,
        "capabilities": sorted(capabilities),
        "accepted": [[one.strip() for one in part.split("<AND>")] for part in answer.split("<OR>")],
    }
    return Sample(
        id=name,
        question=question,
        answers=(),
        reference=answer.replace("<AND>", " <AND> ").replace("<OR>", " <OR> "),
        category="+".join(sorted(capabilities)),
        metadata=metadata,
    )


def _answered(sample: Sample, row: Row, answers: Mapping[str, str], path: str) -> Sample:
    if sample.id not in answers:
        raise row_error(row, f"{path} has no answer to {sample.id}; give a whole file of answers")
    model = model_of_file(path)
    return replace(sample, id=f"{sample.id}/{model}", answers=(answers[sample.id],), answer_models=(model,))


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
MM_VET = Benchmark(
    name="mm-vet",
    files="mm-vet.json and a file of answers (id -> text) for each model",
    protocol="Each answer gets a score from 0 to 1 in steps of 0.1 against the gold answer, where <AND> asks for "
    "all elements and <OR> for any; the mean in percent, overall and per capability (a question counts for each of its "
    "capabilities) and per combination of them; the images are not read here.",
    judge_with="--mode multimodal",
    source="MM-Vet (Yu et al. 2023), yuweihao/MM-Vet, mm-vet_evaluator.py",
    load=_mm_vet,
)
