"""Import published judgments as a run file, which all commands accept like your own judgments."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from judgelm.data.judged_texts import text_hashes
from judgelm.data.readers.rows import Reject, no_usable_row
from judgelm.data.readers.values import content_id
from judgelm.data.samples import SampleStream
from judgelm.data.sources.importer import published_files
from judgelm.data.sources.registry import get_published, recognise_published
from judgelm.data.sources.source import PublishedJudgment, PublishedRuns, Source, publications
from judgelm.errors import ConfigError, InputError
from judgelm.package import VERSION
from judgelm.records import Judgment, Sample
from judgelm.runs.run_files import RunFiles, check_output_is_no_input, input_identities
from judgelm.runs.session import write_joined
from judgelm.runs.stats import RunStats

_FIELD = re.compile(r"\{(\w+)\}")
_UNKNOWN_JUDGE = "not named in the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentImport:
    """Options for importing published judgments.

    Attributes:
        files: published files; for a folder, its Parquet files.
        judge: the judge to import if the files contain several judges, otherwise the judge's name.
        id_template: template for IDs from fields of the published rows, such as `faireval-{question_id}`. By default,
            use the IDs assigned by `judgelm data import`.
        rows: a file of pairs. Judgments get the IDs of rows with the same texts.
    """

    files: Sequence[str]
    out: Path
    format: str | None = None
    judge: str | None = None
    id_template: str | None = None
    rows: str | None = None
    overwrite: bool = False


@dataclass(slots=True, kw_only=True)
class JudgmentImportResult:
    """The result of an import. `rejects` contains unusable rows and repeated judgments for an ID."""

    source: Source
    judge: str
    stats: RunStats
    rejects: list[Reject] = field(default_factory=list)


def import_judgments(options: JudgmentImport) -> JudgmentImportResult:
    """Write published judgments to a run file. A rerun adds new judgments."""
    if options.id_template is not None and options.rows is not None:
        raise ConfigError("--id and --rows cannot be combined, because both set the ids; use only one")
    files = [name for file in options.files for name in published_files(file)]
    check_output_is_no_input(options.out, [*files, *([options.rows] if options.rows else [])])
    source = recognise_published(files) if options.format is None else get_published(options.format)
    published, expected = runs_of(source), publications().judgments[source.name].files
    result = JudgmentImportResult(source=source, judge="", stats=RunStats())
    rejects = result.rejects
    judgments = list(published.read(files, rejects.append))
    chosen, result.judge = _of_one_judge(judgments, options.judge)
    named = list(_unique(_named(chosen, options, rejects), rejects, source))
    if not named:
        if not rejects:
            raise InputError(f"{', '.join(files)}: no judgments found; expected {expected}")
        raise no_usable_row(", ".join(files), expected, len(rejects), rejects[0])
    with RunFiles(
        options.out,
        fingerprint=_fingerprint(source, result.judge, options, files),
        provenance=_provenance(source, result.judge),
        inputs=files,
        overwrite=options.overwrite,
    ) as run:
        write_joined(run, map(_with_hashes, named), result.stats, lambda: {})
        for reject in rejects:
            run.reject(asdict(reject))
    return result


def _with_hashes(published: PublishedJudgment) -> Judgment:
    if published.texts is None:
        return published.judgment
    question, *answers = published.texts
    sample = Sample(id="", question=question, answers=tuple(answers))
    return replace(published.judgment, hashes=text_hashes(sample))


def _of_one_judge(judgments: Sequence[PublishedJudgment], judge: str | None) -> tuple[list[PublishedJudgment], str]:
    counts = Counter(each.judge for each in judgments)
    named = {name: count for name, count in counts.items() if name is not None}
    if not named:
        return list(judgments), judge or _UNKNOWN_JUDGE
    listed = ", ".join(f"{name} ({count:,})" for name, count in named.items())
    if judge is None and len(named) > 1:
        raise ConfigError(f"the files contain judgments from {len(named)} judges: {listed}; choose one with --judge")
    name = judge or next(iter(named))
    if name not in named:
        raise ConfigError(f"--judge {name} is not in the files; available: {listed}")
    return [each for each in judgments if each.judge == name], name


def _named(
    judgments: Iterable[PublishedJudgment], options: JudgmentImport, rejects: list[Reject]
) -> Iterator[PublishedJudgment]:
    if options.rows is not None:
        ids = _ids_by_text(options.rows)
        for each in judgments:
            if each.texts is None:
                raise ConfigError("--rows: these files do not contain texts to match; use --id instead")
            if each.texts in ids:
                names = ids[each.texts]
                yield _renamed(each, names.pop(0) if len(names) > 1 else names[0])
            else:
                rejects.append(_reject(each, f"no row in {options.rows} has these texts"))
        return
    for each in judgments:
        yield each if options.id_template is None else _renamed(each, _filled(options.id_template, each.fields))


def _ids_by_text(path: str) -> dict[tuple[str, ...], list[str]]:
    ids: dict[tuple[str, ...], list[str]] = {}
    for sample in SampleStream([path]):
        ids.setdefault((sample.question, *sample.answers), []).append(sample.id)
    return ids


def _filled(template: str, fields: Mapping[str, object]) -> str:
    names = _FIELD.findall(template)
    if not names:
        raise ConfigError(f"--id {template}: expected a field in braces, such as faireval-{{question_id}}")
    for name in names:
        if not isinstance(fields.get(name), str | int):
            raise ConfigError(f"--id {template}: the rows have no field {name!r}; available: {', '.join(fields)}")
    return _FIELD.sub(lambda match: str(fields[match[1]]), template)


def _renamed(published: PublishedJudgment, sample_id: str) -> PublishedJudgment:
    return replace(published, judgment=replace(published.judgment, sample_id=sample_id))


def _unique(
    judgments: Iterable[PublishedJudgment], rejects: list[Reject], source: Source
) -> Iterator[PublishedJudgment]:
    """Repeated content IDs get a suffix such as `-2`, as in imported rows."""
    seen: dict[str, str] = {}
    copies: Counter[str] = Counter()
    for each in judgments:
        name = each.judgment.sample_id
        by_content = each.texts is not None and name == content_id(each.texts[0], each.texts[1:], None)
        if by_content and not source.single_votes:
            copies[name] += 1
            name = name if copies[name] == 1 else f"{name}-{copies[name]}"
            each = _renamed(each, name)
        if name in seen:
            rejects.append(_reject(each, f'id "{name}" was already judged in {seen[name]}; the first judgment is used'))
            continue
        seen[name] = each.location
        yield each


def _reject(published: PublishedJudgment, reason: str) -> Reject:
    file, _, line = published.location.rpartition(":")
    return Reject(file, int(line), reason, published.judgment.sample_id)


def runs_of(source: Source) -> PublishedRuns:
    """Return the format of the source's published judgments."""
    assert source.runs is not None
    return source.runs


def _fingerprint(source: Source, judge: str, options: JudgmentImport, files: list[str]) -> dict[str, Any]:
    return {
        "model": {"name": judge},
        "mode": dict(runs_of(source).mode),
        "published": {"format": source.name, "id": options.id_template, "rows": options.rows},
        "input": input_identities(files),
    }


def _provenance(source: Source, judge: str) -> dict[str, Any]:
    published = publications().judgments[source.name]
    return {
        "judgelm": VERSION,
        "model": {"name": judge},
        "mode": dict(runs_of(source).mode),
        "published": {"format": source.name, "source": published.paper, "unverified": published.unverified},
    }
