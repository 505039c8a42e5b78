"""Benchmarks of reward models as pairs: RMB (pairs, and best of n as pairs with each loser), and RM-Bench's styles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from judgelm.data.benchmarks.base import Benchmark, Entry, Shape, convert_file, plain_row
from judgelm.data.formats.preferences import preference_label, preference_sample
from judgelm.data.readers.fields import describe, field_error, required_id, row_error, text_field, texts_field
from judgelm.data.readers.rejects import OnReject, reject_row
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError

RMB_SECTIONS = tuple(f"{goal} {task}" for goal in ("Helpfulness", "Harmlessness") for task in ("BoN", "Pairwise"))
_USE = "pairs are named by it"
_TASKS = {"Pairwise_set": "Pairwise", "BoN_set": "BoN"}
_RMB_PAIRS = Shape(name="RMB's pairs", needs=("pair_uid", "conversation_input", "chosen", "reject", "category_path"))
_RMB_BEST = Shape(
    name="RMB's best of n", needs=("bon_uid", "conversation_input", "bon_best", "loser_list", "category_path")
)


def _rmb(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        best = "BoN_set" in Path(path).resolve().parts
        for entries in convert_file(path, _RMB_BEST if best else _RMB_PAIRS, _rmb_entries, on_reject):
            yield from entries


def _rmb_entries(row: Row, row_number: int) -> list[Entry]:
    """The row's pair, or a pair of the best answer with each loser."""
    folders = text_field(row, "category_path", "category_path").split("/")
    if len(folders) < 3 or folders[0] not in _TASKS or f"{folders[1]} {_TASKS[folders[0]]}" not in RMB_SECTIONS:
        raise field_error(row, "category_path", f"expected SET/GOAL/SCENARIO, such as BoN_set/Helpfulness/..., got "
                          f"{'/'.join(folders)}; give the published file")  # fmt: skip
    task = _TASKS[folders[0]]
    names = ("pair_uid", "chosen") if task == "Pairwise" else ("bon_uid", "bon_best")
    stem = f"{task}-{folders[1]}-{required_id(row, names[0], _USE)}".lower()
    section, scenario = f"{folders[1]} {task}", "/".join(folders[2:])
    if task == "Pairwise":
        return [_rmb_pair(row, row.data["chosen"], row.data["reject"], stem, section, scenario)]
    losers = row.data["loser_list"]
    if not isinstance(losers, list) or not losers:
        raise field_error(row, "loser_list", f"expected a list of answers, got {describe(losers)}; correct the row")
    return [
        _rmb_pair(row, row.data["bon_best"], loser, f"{stem}-{index}", section, scenario)
        for index, loser in enumerate(losers, 1)
    ]


def _rmb_pair(row: Row, better: object, worse: object, name: str, section: str, scenario: str) -> Entry:
    answers = [side.get("answer") if isinstance(side, Mapping) else None for side in (better, worse)]
    models = [side.get("llm_name") if isinstance(side, Mapping) else None for side in (better, worse)]
    if not all(isinstance(answer, str) for answer in answers):
        raise row_error(row, "an answer has no text; each needs llm_name and answer, leave the row out")
    fields = {"prompt": row.data["conversation_input"], "chosen": answers[0], "rejected": answers[1]}
    if all(isinstance(model, str) for model in models):
        fields |= {"chosen_model": models[0], "rejected_model": models[1]}
    return _pair(Row(row.file, row.line, fields), name, section, {"scenario": scenario})


def _pair(row: Row, name: str, category: str, metadata: Mapping[str, object]) -> Entry:
    """A row with prompt, chosen and rejected, placed by a hash of the texts."""
    sample = replace(preference_sample(row), id=name, category=category, metadata=metadata)
    return Entry(plain_row(sample, preference_label(row, False)))


def best_of_n_key(row_id: str) -> str:
    """A key that all pairs of one best of n share; of other RMB pairs their own id."""
    return row_id.rpartition("-")[0] if row_id.startswith("bon-") else row_id


_DOMAINS = {"chat": "Chat", "math": "Math", "code": "Code", "safety": "Safety"}
DIFFICULTIES = ("easy", "normal", "hard")
RM_BENCH_SECTIONS = {
    domain: {f"{domain}, {difficulty}": 1.0 for difficulty in DIFFICULTIES} for domain in _DOMAINS.values()
}
_STYLES = ("concise", "detailed", "markdown")
_RM_BENCH = Shape(name="RM-Bench", needs=("id", "prompt", "chosen", "rejected"))


def _rm_bench(files: Sequence[str], on_reject: OnReject) -> Iterator[Entry]:
    for path in files:
        make = partial(_style_entries, on_reject, Path(path).name.partition("_")[0])
        for entries in convert_file(path, _RM_BENCH, make, on_reject):
            yield from entries


def _style_entries(on_reject: OnReject, file_domain: str, row: Row, row_number: int) -> list[Entry]:
    """Nine pairs: each style of the chosen answer with each of the rejected; equal texts are rejects."""
    part = str(row.data.get("domain") or file_domain)
    domain = _DOMAINS.get(part.partition("-")[0])
    if domain is None:
        known = ", ".join(_DOMAINS)
        raise row_error(row, f'domain "{part}" (field "domain", else the file\'s name) begins with none of {known}')
    chosen, rejected = texts_field(row, "chosen"), texts_field(row, "rejected")
    if len(chosen) != len(_STYLES) or len(rejected) != len(_STYLES):
        raise row_error(row, f"expected 3 chosen and 3 rejected answers, got {len(chosen)} and {len(rejected)}")
    entries = []
    for better, worse in product(range(3), repeat=2):
        fields = {"prompt": row.data["prompt"], "chosen": chosen[better], "rejected": rejected[worse]}
        difficulty = DIFFICULTIES[1 + (worse > better) - (worse < better)]
        name = f"{part}-{required_id(row, 'id', _USE)}-{_STYLES[better]}-{_STYLES[worse]}"
        metadata = {"chosen_style": _STYLES[better], "rejected_style": _STYLES[worse]}
        try:
            entries.append(_pair(Row(row.file, row.line, fields), name, f"{domain}, {difficulty}", metadata))
        except InputError as error:
            on_reject(reject_row(row, error))
    return entries


RMB = Benchmark(
    name="rmb",
    files="files below RMB_dataset/Pairwise_set and RMB_dataset/BoN_set (these folders name the two tasks)",
    protocol="A pair counts where the chosen answer wins, a best of n where the best answer wins against each loser; a "
    "tie or a failure does not count; accuracy over all prompts of Helpfulness and Harmlessness, BoN and Pairwise; "
    "overall the mean of the four.",
    judge_with="--both-orders",
    source="RMB (Zhou et al. 2025), Zhou-Zoey/RMB-Reward-Model-Benchmark, RMB_dataset/ and eval/scripts/my_run_rm.py; "
    "the mean of the four as in RM-R1-UIUC/RM-R1, process_final_result.py",
    load=_rmb,
    details={"sections": list(RMB_SECTIONS)},
)
RM_BENCH = Benchmark(
    name="rm-bench",
    files="chat_filtered.json and the like, whose names begin with the domain, or total_dataset.json",
    protocol="Each of three styles of the chosen answer (concise, detailed, markdown) is compared with each of the "
    "rejected one: easy where the chosen has more style, normal with the same, hard with less; a tie or a failure does "
    "not count; a domain is the mean of its three difficulties, overall the mean of the four domains.",
    judge_with="--both-orders",
    source="RM-Bench (Liu et al. 2025), THU-KEG/RM-Bench, data/, README.md and scripts/utils.py",
    load=_rm_bench,
    details={"sections": {domain: list(subsets) for domain, subsets in RM_BENCH_SECTIONS.items()}},
    unverified="math_filtered.json and total_dataset.json were not read: their schema is the README's",
)
