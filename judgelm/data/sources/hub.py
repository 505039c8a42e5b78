"""Import of a public data set from the hub: its revision, its files, and rows that `judgelm data build` reads.

    OUT/SPLIT.jsonl            rows, one file for each split
    OUT/SPLIT.rejects.jsonl    rows that could not be used: file, line, reason, raw text; only where there are any
    OUT/source.json            repository, revision, licence, files with their hashes, counts

All files of OUT are written together at the end, or none. `huggingface_hub` downloads, keeps whole files in its cache
and continues a broken transfer; `datasets` finds the files of a split in the repository's own metadata. Every error of
theirs becomes a sentence with the way out.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, get_token, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from judgelm.data.dataset_files import DatasetFiles, file_sha256, write_text
from judgelm.data.readers.rows import Reject, RejectCounts, no_usable_row, truncate_raw
from judgelm.data.sources.public_datasets import DatasetCard, LockedDataset, SplitCard, lock_dataset, read_lock
from judgelm.data.sources.registry import get_source
from judgelm.errors import InputError, JudgelmError, RunError, first_line
from judgelm.jsonl import parse_json
from judgelm.package import VERSION
from judgelm.records import winner_of

_TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]
"""The root of the HTTP client's errors: httpx's or httpx2's, whichever the hub client uses."""


class HubUnreachableError(InputError):
    """The hub does not answer, or the hub client is offline; what is in its cache can still be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubState:
    """The hub's present answer for a data set.

    Attributes:
        revision: commit sha.
        licence: as the hub states it; None where it states none.
        gated: whether conditions must be accepted.
    """

    revision: str
    licence: str | None
    gated: bool


def hub_state(card: DatasetCard) -> HubState:
    """Ask the hub for a data set's present revision, licence and access.

    Raises:
        HubUnreachableError: no answer.
        InputError: the data set does not exist, or this token has no access to it.
    """
    api = HfApi()
    with hub_errors(card):
        info = api.dataset_info(card.repo)
        if info.gated:
            api.auth_check(card.repo, repo_type="dataset")
    if info.sha is None:
        raise InputError(f"{card.repo}: the hub states no revision; try again later, or check HF_ENDPOINT")
    licence = info.card_data.get("license") if info.card_data is not None else None
    return HubState(revision=info.sha, licence=_joined(licence), gated=bool(info.gated))


def _joined(licence: object) -> str | None:
    names = licence if isinstance(licence, list) else [licence]
    return ", ".join(str(name) for name in names if name) or None


def split_files(card: DatasetCard, split: SplitCard, revision: str) -> list[str]:
    """Paths of a split's files in the repository: the card's, else those that the hub's metadata names.

    Raises:
        HubUnreachableError: no answer, and the metadata is not in the cache.
        InputError: the metadata has no such configuration or split, or the data set cannot be accessed.
    """
    if split.hub is None:
        return list(split.files)
    hub_splits = _hub_splits(card, revision)
    if split.hub not in hub_splits:
        finding = f'no split "{split.hub}", only {", ".join(hub_splits) or "none"}'
        raise InputError(f"{card.repo} at {revision[:12]}: {finding}; the layout has changed")
    prefix = f"hf://datasets/{card.repo}@{revision}/"
    return [str(file).removeprefix(prefix) for file in hub_splits[split.hub]]


def _hub_splits(card: DatasetCard, revision: str) -> dict[str, Sequence[str]]:
    """Split -> URLs of its files, as `datasets` reads them from the repository's metadata and layout."""
    from datasets import load_dataset_builder  # takes a second, and only these cards need it

    with hub_errors(card):
        try:
            builder: Any = load_dataset_builder(card.repo, card.config, revision=revision)
        except (ValueError, RuntimeError) as error:
            raise InputError(f"{card.repo} at {revision[:12]}: {first_line(error)}; the layout has changed") from error
    return {str(name): files for name, files in (builder.config.data_files or {}).items()}


def download_file(card: DatasetCard, path: str, revision: str, *, cached_only: bool = False) -> Path:
    """One file at a revision, in the hub client's cache; nothing is downloaded twice.

    Raises:
        HubUnreachableError: no answer, and the file is not in the cache.
        InputError: the file is not in the repository, or cannot be accessed.
        OSError: the cache cannot be written.
    """
    with hub_errors(card):
        local = hf_hub_download(card.repo, path, repo_type="dataset", revision=revision, local_files_only=cached_only)
    return Path(local)


@contextmanager
def hub_errors(card: DatasetCard) -> Iterator[None]:
    """Turn errors of the hub's clients into judgelm's, with the way out.

    Raises:
        HubUnreachableError: the hub does not answer.
        InputError: anything else that the hub or its clients refuse.
    """
    try:
        yield
    except JudgelmError:
        raise
    except (_TRANSPORT_ERROR, OSError) as error:
        hub_error = _cause(error)
        if hub_error is None and isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's, not the hub's
        raise _as_input_error(card, hub_error or error) from error


def _cause(error: BaseException) -> Exception | None:
    """The hub client's own error behind an error of `datasets`."""
    known = (HfHubHTTPError, OfflineModeIsEnabled, LocalEntryNotFoundError, _TRANSPORT_ERROR)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, known) and not isinstance(cause.__cause__, HfHubHTTPError):
            return cause
        cause = cause.__cause__
    return None


def _as_input_error(card: DatasetCard, error: Exception) -> InputError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    match error:
        case GatedRepoError():
            return InputError(f"{card.repo}: {_gated_finding(status)}; {token_advice(card)}")
        case RevisionNotFoundError():
            return InputError(f"{card.repo}: the hub has no such revision any more; take the present one by --update")
        case RepositoryNotFoundError():
            finding = "not on the hub, or private, and this token has no access to it"
            return InputError(f"{card.repo}: {finding}; {token_advice(card)}")
        case OfflineModeIsEnabled() | LocalEntryNotFoundError():
            return HubUnreachableError(f"{card.repo}: {_unreachable(error)}")
        case EntryNotFoundError():
            finding = "a file of the card is not in the repository, whose layout has changed"
            return InputError(f"{card.repo}: {finding}: {_url(error)}")
        case FileNotFoundError():  # of `datasets`
            return InputError(f"{card.repo}: {first_line(error)}; the layout has changed since the card was written")
        case HfHubHTTPError() if status == 401:
            return InputError(f"{card.repo}: the hub refuses this token; {token_advice(card)}")
        case HfHubHTTPError() if status is not None and status < 500 and status != 429:
            return InputError(f"{card.repo}: the hub answers with status {status}: {first_line(error)}")
        case _:
            return HubUnreachableError(f"{card.repo}: {_unreachable(error)}")


def _gated_finding(status: int | None) -> str:
    if status == 403:
        return "the account of this token has not been granted access to this gated data set"
    return "a gated data set, and no valid token came with the request"


def _unreachable(error: Exception) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return "the hub client is offline (HF_HUB_OFFLINE); unset it to download"
    return (
        f"no answer from the hub at {constants.ENDPOINT} ({first_line(error)}); check the network, or set HF_ENDPOINT "
        "to a mirror, and run the same command again: whole files stay in the cache"
    )


def _url(error: Exception) -> str:
    request = getattr(getattr(error, "response", None), "request", None)
    return str(getattr(request, "url", first_line(error)))


def token_advice(card: DatasetCard) -> str:
    """The steps to a token with access to a data set."""
    present = f"from {'HF_TOKEN' if os.environ.get('HF_TOKEN') else 'a login'}" if get_token() else "none"
    return (
        f"accept its conditions at {card.page} (logged in), create a token that may read gated repositories at "
        f"https://huggingface.co/settings/tokens, and set HF_TOKEN or run `hf auth login` (token now: {present})"
    )


SOURCE_FILE = "source.json"

_LABELS = ("winner", "scores", "score", "score_w_reference")
_Entry = Mapping[str, object]
Hashes = Mapping[str, Mapping[str, str]]
"""Split -> path of each of its files in the repository -> sha256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The revision to take.

    Attributes:
        sha: commit sha, of the lockfile or of the hub.
        locked: whether it is the lockfile's.
        hub: the hub's present answer; None where the hub could not be asked.
    """

    sha: str
    locked: bool
    hub: HubState | None

    @property
    def is_outdated(self) -> bool:
        """True if the hub has another revision now."""
        return self.hub is not None and self.hub.revision != self.sha


@dataclass(slots=True, kw_only=True)
class SplitResult:
    """The result of one split.

    Attributes:
        rows: written.
        winners: winner -> rows, that of the scores where a pair has no other; `scores` for other rows with scores.
        rejects: rows that could not be used, by reason.
    """

    rows: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    rejects: RejectCounts = field(default_factory=RejectCounts)

    @property
    def rejected(self) -> int:
        """The rows that could not be used."""
        return self.rejects.by_reason.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetResult:
    """The result of an import.

    Attributes:
        card: of the data set.
        revision: that was taken.
        splits: by name.
        files: split -> path of each of its files in the repository -> sha256.
        paths: files written.
    """

    card: DatasetCard
    revision: Revision
    splits: Mapping[str, SplitResult]
    files: Hashes
    paths: tuple[Path, ...]


def choose_revision(card: DatasetCard, locked: LockedDataset | None, *, update: bool) -> Revision:
    """The locked revision, or the hub's present one where nothing is locked yet or `update` is set.

    Raises:
        InputError: the lock is of another repository, or the data set cannot be accessed; without a lock also where
            the hub does not answer.
    """
    if locked is not None and locked.repo != card.repo and not update:
        finding = f"locked as {locked.repo}, and this judgelm takes it from {card.repo}"
        raise InputError(f"{card.name}: {finding}; use --update to lock it anew")
    try:
        state = hub_state(card)
    except HubUnreachableError:
        if locked is None or update:
            raise
        return Revision(sha=locked.revision, locked=True, hub=None)
    if locked is None or update:
        return Revision(sha=state.revision, locked=False, hub=state)
    return Revision(sha=locked.revision, locked=True, hub=state)


def import_dataset(
    card: DatasetCard,
    out: Path,
    *,
    splits: Sequence[str] = (),
    lockfile: Path,
    update: bool = False,
    overwrite: bool = False,
    on_revision: Callable[[Revision], None] = lambda revision: None,
) -> DatasetResult:
    """Download a data set and write its rows.

    Args:
        card: of the data set.
        out: the folder to write into; it is made.
        splits: to read; none for all.
        lockfile: where revisions are recorded and checked.
        update: take the hub's present revision, record it, and replace earlier files.
        overwrite: replace earlier files.
        on_revision: called before the download.

    Raises:
        ConfigError: no such split, or the lockfile is none.
        InputError: the data set cannot be accessed, its files differ from the locked ones, or none of its rows can be
            used.
        RunError: the output exists, or cannot be written.
    """
    names = card.selected(tuple(splits))
    _check_out(out, names, overwrite=overwrite or update)
    locked = read_lock(lockfile).get(card.name)
    revision = choose_revision(card, locked, update=update)
    on_revision(revision)
    try:
        local = {name: _download(card, name, revision, locked) for name in names}
        hashes = {name: {path: file_sha256(file) for path, file in files.items()} for name, files in local.items()}
        if locked is not None and revision.locked:
            _check_hashes(card, locked, hashes)
        lock_dataset(lockfile, card.name, LockedDataset(repo=card.repo, revision=revision.sha, splits=hashes))
        results = _write(card, out, local)
    except OSError as error:
        finding = f"{error.filename or out}: cannot write: {error.strerror or error}"
        raise RunError(f"{finding}; make room, or choose another place") from error
    write_text(out / SOURCE_FILE, json.dumps(_source(card, out, revision, hashes, results), indent=1) + "\n")
    paths = [out / f"{name}{part}" for name in names for part in (".jsonl", ".rejects.jsonl")]
    written = tuple(path for path in [*paths, out / SOURCE_FILE] if path.exists())
    return DatasetResult(card=card, revision=revision, splits=results, files=hashes, paths=written)


def _check_out(out: Path, names: Sequence[str], *, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise RunError(f"{out}: a file; name a folder, such as -o data")
    there = next((out / f"{name}.jsonl" for name in names if (out / f"{name}.jsonl").exists()), None)
    if there is not None and not overwrite:
        raise RunError(f"{there}: exists already; add --overwrite to replace it, or choose another -o")


def _download(card: DatasetCard, name: str, revision: Revision, locked: LockedDataset | None) -> dict[str, Path]:
    """A split's files, those of the lock where it has them: path in the repository -> local file."""
    paths = list(locked.splits.get(name, ())) if locked is not None and revision.locked else []
    paths = paths or split_files(card, card.splits[name], revision.sha)
    if not paths:
        raise InputError(f"{card.repo} at {revision.sha[:12]}: no file of split {name}; the layout has changed")
    return {path: download_file(card, path, revision.sha, cached_only=revision.hub is None) for path in paths}


def _check_hashes(card: DatasetCard, locked: LockedDataset, hashes: Hashes) -> None:
    for name, files in hashes.items():
        for path, sha in files.items():
            expected = locked.splits.get(name, {}).get(path, sha)
            if expected != sha:
                finding = f"{path} has sha256 {sha[:12]}, locked is {expected[:12]}, at one revision"
                way_out = "the hub client's cache is damaged: delete the data set there (hf cache rm), and run again"
                raise InputError(f"{card.repo}: {finding}; {way_out}")


def _write(card: DatasetCard, out: Path, local: Mapping[str, Mapping[str, Path]]) -> dict[str, SplitResult]:
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, SplitResult] = {}
    with DatasetFiles(out, "jsonl") as written:
        for name, files in local.items():
            results[name] = _read_split(card, name, files, written)
        for name in local:
            (out / f"{name}.rejects.jsonl").unlink(missing_ok=True)
    return results


def _read_split(card: DatasetCard, name: str, files: Mapping[str, Path], written: DatasetFiles) -> SplitResult:
    """Write a split's rows and rejects; rejects name files as the repository does.

    Raises:
        InputError: no row can be used.
    """
    result, seen = SplitResult(), set[object]()
    published = {str(file): path for path, file in files.items()}

    def on_reject(reject: Reject) -> None:
        named = replace(reject, file=published.get(reject.file, reject.file))
        result.rejects(named)
        written.write(f"{name}.rejects", asdict(named))

    for entry in get_source(card.reader).entries([str(file) for file in files.values()], on_reject):
        row = entry.row
        row_id = row.get("id", row.get("question_id"))
        if problem := _problem(card, row, row_id in seen):
            raw = truncate_raw(json.dumps(row, ensure_ascii=False, default=str))
            on_reject(Reject(", ".join(files), 0, problem, raw))
            continue
        seen.add(row_id)
        result.rows += 1
        if any(row.get(label) is not None for label in _LABELS):
            result.winners[_winner(row)] += 1
        written.write(name, row)
    if not result.rows:
        first = result.rejects.first or Reject(name, 0, "no rows", "")
        raise no_usable_row(f"{card.repo}, split {name}", f"the schema {card.reader}", result.rejected, first)
    return result


def _winner(row: _Entry) -> str:
    """The winner of a labelled row: its own, else that of a pair's scores, without a reference where there are such."""
    if row.get("winner") is not None:
        return str(row["winner"])
    scores = row.get("score") or row.get("score_w_reference")
    return str(winner_of((scores[0], scores[1]))) if isinstance(scores, list) and len(scores) == 2 else "scores"


def _problem(card: DatasetCard, row: _Entry, is_repeated: bool) -> str:
    if is_repeated:
        return "its id, or all that it says, stands in an earlier row of the split; ids must be unique"
    if card.purpose == "training" and all(row.get(label) is None for label in _LABELS):
        return "no label; nothing can be trained on it"
    return ""


def _source(
    card: DatasetCard, out: Path, revision: Revision, hashes: Hashes, results: Mapping[str, SplitResult]
) -> dict[str, object]:
    """The contents of `source.json`; splits that an earlier import wrote keep their entries."""
    splits = {
        name: {
            "revision": revision.sha,
            "files": dict(hashes[name]),
            "rows": result.rows,
            "labels": dict(sorted(result.winners.items())),
            "rejected": result.rejected,
            "rejected_by_reason": dict(result.rejects.by_reason.most_common()),
        }
        for name, result in results.items()
    }
    return {
        "name": card.name,
        "repo": card.repo,
        "licence": card.licence,
        "licence_on_the_hub": None if revision.hub is None else revision.hub.licence,
        "terms": card.terms,
        "purpose": card.purpose,
        "schema_verified": card.verified,
        "splits": {**_earlier_splits(card, out), **splits},
        "judgelm": VERSION,
    }


def _earlier_splits(card: DatasetCard, out: Path) -> dict[str, object]:
    try:
        earlier = parse_json((out / SOURCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    splits = earlier.get("splits") if isinstance(earlier, dict) and earlier.get("name") == card.name else None
    return splits if isinstance(splits, dict) else {}
