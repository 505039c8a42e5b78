"""`judgelm share`: uploads a judge to the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.console import PlainConsole
from judgelm.cli.output import JsonOut, Quiet, is_stdout, write_json

if TYPE_CHECKING:
    from judgelm.training.hub import Share

EPILOG = """
Examples:

  judgelm share runs/judgelm_7b --to my-name/my-judge

  judgelm share runs/judgelm_7b --to my-name/my-judge --license llama2 --yes

The first shows files, sizes, licence and card, and sends nothing. Exit codes: 0 done, 1 usage or input error, or the
hub refuses.
"""


def share_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Output of a training, or a merged judge.")],
    to: Annotated[str, typer.Option("--to", metavar="OWNER/NAME", help="The repository on the hub; made if missing.")],
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Upload; without it nothing is sent.")] = False,
    public: Annotated[
        bool, typer.Option("--public", metavar="", help="Let everybody see it; a new repository is private otherwise.")
    ] = False,
    licence: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="The hub's name of its licence, for a card that states none."),
    ] = None,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Upload a judge with its cards to the Hugging Face hub, or show what would be sent.

    It sends weights as safetensors, tokenizer, judge.json, README.md, licence and figures. It leaves out checkpoints,
    optimizer states and other files, and refuses a file that looks like it holds a secret.
    """
    from judgelm.training.hub import prepare_share, upload_share

    share = prepare_share(folder, name=to, licence=licence)
    out = PlainConsole(stderr=is_stdout(json_out), quiet=quiet)
    _show(share, to, public=public, out=out)
    uploaded = upload_share(share, to, public=public) if yes else None
    write_json(
        json_out,
        {
            "repository": to,
            "files": dict(share.files),
            "left_out": dict(share.left_out),
            "licence": share.licence,
            "notes": list(share.notes),
            "url": None if uploaded is None else uploaded.url,
            "private": None if uploaded is None else uploaded.private,
        },
    )
    if uploaded is None:
        _print(out, "nothing was sent; add --yes to upload")
    else:
        seen = "private: only you and its organisation see it" if uploaded.private else "public"
        _print(out, f"uploaded to {uploaded.url} ({seen})")


def _show(share: "Share", name: str, *, public: bool, out: PlainConsole) -> None:
    lines = [f"{share.folder} -> {name}, {'public' if public else 'private'}"]
    lines += [f"  {_size(size):>9}  {part}" for part, size in share.files.items()]
    lines += [f"  {_size(sum(share.files.values())):>9}  in all"]
    lines += [f"  left out: {part}, {reason}" for part, reason in share.left_out.items()]
    lines += [f"licence: {share.licence or 'none stated'}", *(f"note: {note}" for note in share.notes)]
    lines += ["README.md:", *(f"  {line}" for line in share.model_card.splitlines())]
    for line in lines:
        _print(out, line)


def _size(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def _print(out: PlainConsole, text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
