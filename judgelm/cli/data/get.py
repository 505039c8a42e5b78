"""`judgelm data get`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgelm.cli import completion
from judgelm.cli.console import console, echo
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.sources.hub import DatasetResult, Revision
    from judgelm.data.sources.public_datasets import DatasetCard


_UNVERIFIED = "unverified: read as its publisher describes it, never yet seen in files from the hub"


def get_command(
    name: Annotated[str | None, typer.Argument(autocompletion=completion.datasets)] = None,
    out: Annotated[Path | None, typer.Option(show_default=False)] = None,
    split: list[str] | None = None,
    lock: Annotated[Path, typer.Option(metavar="FILE")] = Path("judgelm-data.lock.yaml"),
    update: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Download a public data set by name into rows that judgelm data build reads.

    Licence and terms are printed first. The revision that the hub answers with is recorded in a lockfile at the first
    download, and taken again afterwards. HF_TOKEN, HF_HOME and HF_ENDPOINT count as in every client of the hub.

    Options:
        name: Data set; without it, all are listed.
        out: Folder for the rows; default: data/NAME.
        split: Split to read; may be given again. Default: all.
        lock: Where the revision is recorded, and checked afterwards.
        update: Take and record the hub's present revision.
        overwrite: Replace earlier rows.
        dry_run: Print licence, terms and sources; download nothing.

    Examples:
        judgelm data get
        judgelm data get judgelm-100k --dry-run
        judgelm data get judgelm-100k --split train -o data/judgelm-100k

    The first lists all data sets. Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.sources.public_datasets import dataset_card

    if name is None:
        if out is not None or split or update or dry_run:
            raise ConfigError("no data set named; judgelm data get without options lists them")
        _list(json_out)
        return
    card = dataset_card(name)
    names = card.selected(tuple(split or ()))
    if not quiet or dry_run:
        _announce(card)
    if dry_run:
        for fact, source in card.sources.items():
            _print(f"  source of {fact}: {source}")
        write_json(json_out, _card_row(card))
        return
    from judgelm.data.sources.hub import import_dataset  # loads huggingface_hub, for which no list waits

    if quiet:
        _disable_progress_bars()
    result = import_dataset(
        card,
        Path("data", name) if out is None else out,
        splits=names,
        lockfile=lock,
        update=update,
        overwrite=overwrite,
        on_revision=lambda revision: None if quiet else _show_revision(card, revision, lock),
    )
    write_json(json_out, _result_row(result))
    if not quiet:
        _show(result, lock)


def _disable_progress_bars() -> None:
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()


def _list(json_out: Path | None) -> None:
    from judgelm.data.sources.public_datasets import dataset_card, dataset_names

    cards = [dataset_card(known) for known in dataset_names()]
    write_json(json_out, [_card_row(card) for card in cards])
    if is_stdout(json_out):
        return
    for card in cards:
        rows = "rows not stated" if card.rows is None else f"{card.rows:,} rows"
        facts = [card.licence, rows, ", ".join(card.splits), "verified" if card.verified else "unverified"]
        facts += ["gated"] if card.gated else []
        facts += ["for evaluation only"] if card.purpose == "evaluation" else []
        echo(f"{card.name:28} {'; '.join(facts)}")
        echo(f"{'':28} {card.summary}")
    if not all(card.verified for card in cards):
        echo(f"\n{_UNVERIFIED}. What cannot be read is counted and named.")


def _announce(card: "DatasetCard") -> None:
    splits = (
        f"{name} ({'rows not stated' if split.rows is None else f'{split.rows:,} rows'})"
        for name, split in card.splits.items()
    )
    lines = [
        f"{card.name}: {card.summary}",
        f"  from: {card.page}",
        f"  licence: {card.licence}; {card.terms}",
        f"  splits: {', '.join(splits)}",
        f"  schema: {'verified' if card.verified else _UNVERIFIED}",
        *(f"  note: {note}" for note in card.notes),
    ]
    if card.purpose == "evaluation":
        lines.append("  purpose: evaluation of judges; do not train a judge on it that is to be measured by it")
    if card.gated:
        from judgelm.data.sources.hub import token_advice

        lines.append(f"  access: gated; {token_advice(card)}")
    for line in lines:
        _print(line)


def _show_revision(card: "DatasetCard", revision: "Revision", lock: Path) -> None:
    if revision.hub is None:
        _print(f"revision: {revision.sha}, of {lock}; the hub does not answer, so it was not compared")
    elif revision.is_outdated:
        _print(
            f"revision: {revision.sha}, of {lock}; the hub has another now, {revision.hub.revision}: --update takes it"
        )
    else:
        _print(f"revision: {revision.sha}, {'as locked' if revision.locked else 'now on the hub'}")
    stated = None if revision.hub is None else revision.hub.licence
    if stated is not None and stated.lower() != card.licence.lower():
        _print(f"licence on the hub now: {stated}; the card says {card.licence}. Read the data set's page: {card.page}")


def _show(result: "DatasetResult", lock: Path) -> None:
    for name, split in result.splits.items():
        labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(split.winners.items()))
        _print(f"{name}: {split.rows:,} rows, labels {labels or 'none'}")
        if split.rejected:
            _print(f"  {split.rejected:,} rows rejected; they are in {name}.rejects.jsonl:")
        for line in split.rejects.lines():
            _print(f"    {line}")
        if split.rejected > split.rows:
            _print("  most rows were rejected: the published schema may have changed since the card was written")
    _print(f"recorded: revision {result.revision.sha} in {lock}")
    _print(f"written: {', '.join(str(path) for path in result.paths)}")


def _card_row(card: "DatasetCard") -> dict[str, Any]:
    """A data set, as `--json` lists it."""
    return {
        "name": card.name,
        "summary": card.summary,
        "repo": card.repo,
        "licence": card.licence,
        "terms": card.terms,
        "gated": card.gated,
        "purpose": card.purpose,
        "splits": {name: split.rows for name, split in card.splits.items()},
        "verified": card.verified,
        "sources": dict(card.sources),
    }


def _result_row(result: "DatasetResult") -> dict[str, Any]:
    return {
        "name": result.card.name,
        "repo": result.card.repo,
        "revision": result.revision.sha,
        "outdated": result.revision.is_outdated,
        "files": {name: dict(files) for name, files in result.files.items()},
        "splits": {
            name: {
                "rows": split.rows,
                "labels": dict(split.winners),
                "rejected": split.rejected,
                "rejected_by_reason": dict(split.rejects.by_reason.most_common()),
            }
            for name, split in result.splits.items()
        },
        "written": result.paths,
    }


def _print(text: str) -> None:
    """Plain text: file names and rows may hold what Rich would read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
