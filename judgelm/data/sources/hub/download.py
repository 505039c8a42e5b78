"""Downloads of data sets by the hub's own clients: revision, files of a split, bytes in the hub client's cache.

`huggingface_hub` downloads, keeps whole files in its cache and continues a broken transfer; `datasets` finds the files
of a split in the repository's own metadata. Every error of theirs becomes a sentence with the way out.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from judgelm.data.sources.hub.cards import DatasetCard, SplitCard
from judgelm.errors import InputError, JudgelmError, first_line

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
        raise InputError(
            f"{card.repo} at {revision[:12]}: {finding}; the layout has changed since the card was written"
        )
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


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
