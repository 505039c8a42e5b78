"""Import published benchmarks into judgelm's format.

    OUT.jsonl            rows in the plain format
    OUT.protocol.json    metric definition, input hashes, and counts
    OUT.truth.jsonl      rows for correctness studies, if the benchmark has them
    OUT.rejects.jsonl    unusable rows, if any

If the import fails, no files are written.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from judgelm.data.dataset_files import DatasetFiles, file_sha256
from judgelm.data.plain_rows import plain_row
from judgelm.data.readers.rows import FileUse, OnReject, Reject, RejectCounts, no_usable_row
from judgelm.data.samples import AS_WRITTEN, Reading, SampleStream
from judgelm.data.sources.registry import get_benchmark
from judgelm.data.sources.source import Entry, Source, protocol_of, single_file
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import check_no_input
from judgelm.package import VERSION

_PARTS = (".jsonl", ".protocol.json", ".truth.jsonl", ".rejects.jsonl")
_LABELS = ("winner", "scores", "score")


@dataclass(slots=True, kw_only=True)
class ImportResult:
    """The result of an import; `winners` maps each pair label, or `scores`, to its number of rows."""

    benchmark: Source
    rows: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    unlabelled: int = 0
    truths: int = 0
    categories: Counter[str] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)

    def count(self, entry: Entry) -> None:
        """Count a row."""
        self.rows += 1
        self.truths += entry.truth is not None
        label = next((name for name in _LABELS if name in entry.row), None)
        if label is None:
            self.unlabelled += 1
        else:
            self.winners[str(entry.row["winner"]) if label == "winner" else "scores"] += 1
        if "category" in entry.row:
            self.categories[str(entry.row["category"])] += 1


def import_benchmark(
    name: str, files: Sequence[str], out: str | Path, *, overwrite: bool = False, reading: Reading = AS_WRITTEN
) -> ImportResult:
    """Convert a benchmark's published files to judgelm's format.

    Pass the `files` listed in the protocol, or a folder of Parquet files. Rows are written to `out`, a `.jsonl` file;
    the other output files are named after it. `reading` applies only to preference sets.

    Raises:
        ConfigError: the benchmark is unknown, or the files or `out` are invalid.
        InputError: a file has the wrong format or contains no usable rows.
        RunError: the output exists or cannot be written.
    """
    benchmark, protocol = get_benchmark(name), protocol_of(get_benchmark(name))
    if not files:
        raise ConfigError(f"{name}: no files given; expected {protocol.files}")
    if "-" in files:
        raise ConfigError(f"{name}: cannot import from standard input; save it as a file first")
    files = [name for file in files for name in published_files(file)]
    folder, stem = _checked(files, Path(out), overwrite=overwrite)
    result = ImportResult(benchmark=benchmark)
    seen: set[object] = set()
    try:
        with DatasetFiles(folder, "jsonl") as written:
            for entry in _entries(benchmark, files, reading, result.rejects.append):
                if entry.row["id"] in seen:
                    raise InputError(f"{name}: repeated id {entry.row['id']!r}; pass each published file only once")
                seen.add(entry.row["id"])
                result.count(entry)
                written.write(stem, entry.row)
                if entry.truth is not None:
                    written.write(f"{stem}.truth", entry.truth)
            if not result.rows:
                if result.rejects:
                    raise no_usable_row(", ".join(files), protocol.files, len(result.rejects), result.rejects[0])
                raise InputError(f"{', '.join(files)}: contains no usable {name} rows; expected {protocol.files}")
            for reject in result.rejects:
                written.write(f"{stem}.rejects", asdict(reject))
            for part in _PARTS:
                (folder / f"{stem}{part}").unlink(missing_ok=True)
        text = json.dumps(_protocol(result, files), ensure_ascii=False, indent=1) + "\n"
        path = folder / f"{stem}.protocol.json"
        path.write_text(text, encoding="utf-8", errors="backslashreplace")  # lone surrogates as JSON escapes
    except OSError as error:
        raise RunError(f"{out}: cannot write: {error.strerror or error}; choose a different location") from error
    result.paths = [path for part in _PARTS if (path := folder / f"{stem}{part}").exists()]
    return result


PREFERENCES = "preferences"
_PREFERENCE_SETS = (
    *("preference", "arena", "responses", "helpsteer3", "ppe-human", "safe-rlhf", "ultrafeedback"),
    *("nectar", "offsetbias", "preference_collection"),
)


def _entries(source: Source, files: Sequence[str], reading: Reading, on_reject: OnReject) -> Iterator[Entry]:
    if source.name != PREFERENCES:
        if reading != AS_WRITTEN:
            raise ConfigError(
                f"{source.name}: columns and label codes cannot be changed for this benchmark; remove these options"
            )
        yield from source.entries(files, on_reject)
        return
    path = single_file(files, PREFERENCES)
    use = FileUse(path=path, expected="a prompt, two answers and a preference", on_reject=on_reject)
    stream = SampleStream([path], on_reject=use.reject, reading=reading)
    if stream.source.name not in _PREFERENCE_SETS:
        known = ", ".join(_PREFERENCE_SETS)
        raise InputError(f"{path}: recognised as {stream.source.name}; expected one of these preference sets: {known}")
    for _, sample, (label,) in stream.labelled(use, False):
        yield Entry(plain_row(sample, label))


def published_files(path: str) -> list[str]:
    """Return the path, or the Parquet files in a folder."""
    if not Path(path).is_dir():
        return [path]
    if files := sorted(str(file) for file in Path(path).glob("*.parquet")):
        return files
    raise InputError(f"{path}: no Parquet files in this folder; pass the files to import")


def _checked(files: Sequence[str], out: Path, *, overwrite: bool) -> tuple[Path, str]:
    if out.suffix != ".jsonl":
        raise ConfigError(f"-o {out}: expected the extension .jsonl")
    if not out.resolve().parent.is_dir():
        raise RunError(f"{out}: no such folder; create {out.parent} first")
    stem = out.name.removesuffix(".jsonl")
    own = [out.parent / f"{stem}{part}" for part in _PARTS]
    check_no_input(own, files)
    if not overwrite and (there := [path for path in own if path.exists()]):
        raise RunError(f"{there[0]}: already exists; use --overwrite to replace it, or choose a different -o")
    return out.parent, stem


def _protocol(result: ImportResult, files: Sequence[str]) -> dict[str, object]:
    protocol = protocol_of(result.benchmark)
    return {
        "benchmark": result.benchmark.name,
        "protocol": protocol.metric,
        "judge_with": protocol.judge_with,
        "source": protocol.paper,
        **({"unverified": protocol.unverified} if protocol.unverified else {}),
        **({"details": dict(result.benchmark.details)} if result.benchmark.details else {}),
        "files": [{"name": Path(file).name, "sha256": file_sha256(file)} for file in files],
        "rows": result.rows,
        "labels": dict(sorted(result.winners.items())),
        "unlabelled": result.unlabelled,
        "truths": result.truths,
        "categories": dict(sorted(result.categories.items())),
        "rejected": len(result.rejects),
        "rejected_by_reason": dict(RejectCounts(result.rejects).by_reason.most_common()),
        "judgelm": VERSION,
    }
