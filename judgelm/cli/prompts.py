"""`judgelm prompts`: write, check, and suggest prompt files."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgelm.cli.console import JsonOut, PlainConsole, Quiet, Results, console, write_text
from judgelm.cli.options import ColumnOptions
from judgelm.errors import ConfigError, InputError
from judgelm.records import Unparsed
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.prompts.judge_prompt import JudgePrompt
    from judgelm.prompts.truncation import Truncator
    from judgelm.records import Prompt, Sample


def new_command(
    path: Annotated[Path, typer.Argument(metavar="FILE")],
    kind: Literal["label", "grade", "pair", "choice"] = "label",
    overwrite: bool = False,
) -> None:
    """Write a prompt file with comments, to edit.

    Options:
        path: Prompt file to write, ending in .yaml.
        kind: What the judge replies: a label or a grade for one answer, the better of two answers (pair), or the best
            of several answers (choice).
        overwrite: Replace an existing file.

    Example: judgelm prompts new my_prompt.yaml --kind grade
    """
    from judgelm.prompts.prompt_file import name_of

    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ConfigError(f"{path}: the name must end in .yaml")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path}: the file already exists; choose a different name or add --overwrite")
    texts = read_yaml(Path(__file__).with_name("new_prompts.yaml"))
    new, quoted = texts["kinds"][kind], shlex.quote(str(path))
    prompt = "\n".join(f"  {line}".rstrip() for line in new["prompt"].split("\n"))
    write_text(path, texts["form"].format_map(new | {"path": quoted, "name": name_of(path), "prompt": prompt}))
    console.message(f"wrote {path}; edit it, then run: judgelm prompts check {quoted} --samples rows.jsonl")


def check_command(
    path: Annotated[Path, typer.Argument(metavar="FILE")],
    samples: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1)] = None,
    *,
    columns: ColumnOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
) -> None:
    """Check a prompt file, and show the prompt of the first row as the judge gets it.

    Options:
        path: Prompt file.
        samples: Rows to judge; the first row is shown.
        model: The judge whose tokenizer counts the tokens. Default: the default judge.
        max_model_len: Maximum context length in tokens.

    Example: judgelm prompts check my_prompt.yaml --samples rows.jsonl

    Prints the number of tokens, what would be cut, and the words whose probabilities will be read. Exit codes: 0 the
    prompt can be used, 1 it cannot.
    """
    from judgelm.prompts.prompt_file import read_prompts

    results = Results(json_out=json_out)
    prompts = read_prompts(path)
    reports = [_described(prompt) for prompt in prompts]
    if samples is not None:
        truncator = _truncator(model, max_model_len)
        for prompt, report in zip(prompts, reports, strict=True):
            report |= _rendered(prompt, _first_sample(prompt, samples, columns), truncator)
    if results.write(reports):
        PlainConsole().messages(line for report in reports for line in _lines(report))


def _described(prompt: "JudgePrompt") -> dict[str, Any]:
    reply = prompt.reply
    return {
        "name": prompt.name,
        "reply": reply.kind,
        "modes": list(prompt.modes),
        "slots": list(prompt.slots),
        "words": {word: list(spellings) for word, spellings in reply.words.items()},
        "reason_tokens": reply.reason,
    }


def _first_sample(prompt: "JudgePrompt", path: Path, columns: ColumnOptions) -> "Sample":
    from judgelm.data.samples import SampleStream
    from judgelm.prompts.prompt_template import check_fields

    sample = next(iter(SampleStream([str(path)], prompt=prompt, reading=columns.reading, limit=1)))
    try:
        check_fields(sample, prompt)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if len(sample.answers) < len(prompt.answers):
        finding = (
            f"prompt {prompt.name} shows {len(prompt.answers)} answers, but the first row has {len(sample.answers)}"
        )
        raise InputError(f"{path}: {finding}")
    return sample


def _truncator(model: str | None, max_model_len: int | None) -> "Truncator":
    from judgelm.engines.base import EngineOptions
    from judgelm.engines.model_files import load_config, load_tokenizer, split_adapter, window_of
    from judgelm.judges.resolve import resolve
    from judgelm.prompts.truncation import Truncator

    options = EngineOptions(model=resolve(model).weights, max_model_len=max_model_len)
    base, adapter = split_adapter(options)
    tokenizer = load_tokenizer(base, adapter, options)
    return Truncator(tokenizer, window_of(load_config(base, options), tokenizer, options), thinking="off")


def _rendered(prompt: "JudgePrompt", sample: "Sample", truncator: "Truncator") -> dict[str, Any]:
    from judgelm.prompts.prompt_template import prompt_template

    form = prompt_template(prompt).verdict
    assert form is not None, "prompt files have one"
    order = tuple(range(len(prompt.answers)))
    shown = prompt_template(prompt).render(sample, order, sample.reference)
    room = 1 if form.reason_tokens is None else form.reason_tokens + 64
    fitted = truncator.truncate(shown, room)
    if isinstance(fitted, Unparsed):
        raise InputError(f"prompt {prompt.name}, sample {sample.id}: {fitted.why}")
    return {
        "sample": sample.id,
        "prompt": fitted.text,
        "tokens": len(fitted.ids),
        "window": truncator.window,
        "cut": [f"answer {cut.answer + 1}: {cut.tokens_before} to {cut.tokens_after}" for cut in fitted.truncations],
        "sanitized": shown.sanitized + fitted.sanitized,
        "before_verdict": form.before.rstrip(" "),
        "tokens_of_words": _tokens_of_words(shown, truncator, prompt),
    }


def _tokens_of_words(shown: "Prompt", truncator: "Truncator", prompt: "JudgePrompt") -> dict[str, list[str]]:
    from judgelm.engines.candidates import CandidateTokenizer
    from judgelm.prompts.prompt_template import prompt_template

    form = prompt_template(prompt).verdict
    assert form is not None, "prompt files have one"
    words = [spelling for spellings in form.words.values() for spelling in spellings]
    opened = truncator.truncate(replace(shown, prefill=form.before.strip(" ")), 1)
    text = "" if isinstance(opened, Unparsed) else opened.text
    tree = CandidateTokenizer(truncator.tokenizer).tree(text, tuple(words))
    decode = truncator.tokenizer.decode
    return {
        word: [decode([token], skip_special_tokens=False) for _, token in path]
        for word, path in zip(words, tree.paths, strict=True)
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    reason = "" if report["reason_tokens"] is None else f", after a reason of at most {report['reason_tokens']} tokens"
    yield f"{report['name']}: {report['reply']}{reason}; modes: {', '.join(report['modes'])}"
    yield f"slots: {', '.join(report['slots'])}"
    if "prompt" not in report:
        yield f"words: {', '.join(spelling for spellings in report['words'].values() for spelling in spellings)}"
        return
    yield f"prompt of sample {report['sample']} ({report['tokens']:,} of {report['window']:,} tokens):"
    yield ""
    yield from report["prompt"].split("\n")
    yield ""
    yield f"cut: {'; '.join(report['cut']) or 'nothing'}"
    if report["sanitized"]:
        yield f"sanitized: {report['sanitized']} imitations of the prompt's own text"
    if report["before_verdict"].strip():
        yield f"the verdict follows this text: {report['before_verdict'].strip()}"
    yield "words whose probabilities are read, with their tokens:"
    yield from (f"  {word}: {' | '.join(map(repr, tokens))}" for word, tokens in report["tokens_of_words"].items())


def suggest_command(
    learned: Annotated[Path, typer.Argument(metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE")],
    overwrite: bool = False,
) -> None:
    """Write a prompt file from the prompts that `judgelm serve --learn` recorded.

    Options:
        learned: File with recorded prompts, with at least two of each kind.
        out: Prompt file to write, for judgelm serve --prompt.
        overwrite: Replace an existing file.

    Example: judgelm prompts suggest learned.jsonl -o prompts.yaml

    Text that differs between prompts of the same kind becomes a slot, named after the words before it. Check the file
    before you use it, because names and reply formats are guesses.
    """
    from judgelm.dialects.learned_prompts import read_learned, suggested_prompts, written

    if out.exists() and not overwrite:
        raise ConfigError(f"-o {out}: the file already exists; choose a different -o or add --overwrite")
    prompts = read_learned(learned)
    suggested = suggested_prompts(prompts)
    if not suggested:
        raise ConfigError(f"{learned}: no two of the {len(prompts)} prompts are similar; record more")
    write_text(out, written(suggested))
    done = f"wrote {len(suggested)} prompts to {out}"
    console.message(f"{done}; check the slots and replies, then run: judgelm serve --prompt {out}")
