"""Show rows of a labelled file as the model sees them in training: the prompt, the tokens with loss, and the cuts.

    python data_tools/show.py rows.jsonl --model BASE --row 3
    python data_tools/show.py built/train.parquet --model BASE --random 2 --seed 1 --no-reference
    python data_tools/show.py rows.jsonl --model BASE --id 17 --swap

`--model` is a model or tokenizer folder, or a hub ID; only the tokenizer is loaded. The prompt is dim, and tokens with
loss are coloured. Without colours (in a pipe, or with NO_COLOR) brackets mark them: ⟦loss⟧.
"""

import argparse
import sys

from benchmarks.row_preview import (
    LeftOut,
    RowPreview,
    pair_by_id,
    preview_row,
    preview_swap,
    random_pairs,
    render_row,
    row_by_number,
    visible,
)
from judgelm.cli.console import PlainConsole, echo
from judgelm.data.labelled_pair import LabelledPair
from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import load_tokenizer
from judgelm.errors import JudgelmError, ModelError
from judgelm.prompts.judge_card import find_card
from judgelm.training.rows.builder import RowOptions


def main() -> int:
    """Read the options, and show the rows."""
    options = parse_options()
    console = PlainConsole()
    console.soft_wrap = True
    try:
        card = find_card(options.model)
        rows = RowOptions(
            template=options.template or (card.template if card else "judgelm-v1"),
            window=options.window or (card.window if card and card.window else 2048),
            scale=card.scale if card else (1, 10),
            reference_drop_prob=1.0 if options.no_reference else 0.0,
        )
        tokenizer = load_tokenizer(options.model, None, EngineOptions(model=options.model))
        if tokenizer.eos_token_id is None:
            raise ModelError(f"{options.model}: its tokenizer has no end-of-sequence token, which training needs")
        for pair in chosen(options):
            show_one(console, pair, tokenizer, rows, options)
    except JudgelmError as error:
        echo(f"error: {error}", err=True)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has stopped reading
    return 0


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="any labelled file that judgelm reads, such as a built set")
    parser.add_argument("--model", required=True, metavar="FOLDER", help="folder or hub id with the tokenizer")
    parser.add_argument("--template", help="default: the one of the model's card, else judgelm-v1")
    parser.add_argument("--window", type=int, help="tokens of a row; default: the card's, else 2048")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--row", type=int, default=1, metavar="N", help="the row number (default 1)")
    which.add_argument("--id", help="the row with this id")
    which.add_argument("--random", type=int, metavar="K", help="K random rows")
    parser.add_argument("--seed", type=int, default=0, help="seed of --random")
    parser.add_argument(
        "--swap", action="store_true", help="show the row and, below it, the row with its answers swapped"
    )
    parser.add_argument("--no-reference", action="store_true", help="without the reference, where possible")
    parser.add_argument("--boundaries", action="store_true", help="show where tokens end")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[LabelledPair]:
    """The requested rows."""
    if options.random is not None:
        return random_pairs(options.file, options.random, options.seed)
    return [
        pair_by_id(options.file, options.id) if options.id is not None else row_by_number(options.file, options.row)
    ]


def show_one(
    console: PlainConsole, pair: LabelledPair, tokenizer: object, rows: RowOptions, options: argparse.Namespace
) -> None:
    """Show one row, or with --swap two rows, one below the other."""
    if not options.swap:
        show_row(console, f"row {pair.sample.id}", preview_row(pair, tokenizer, rows), options)
        return
    swapped = preview_swap(pair, tokenizer, rows)
    show_row(console, f"row {pair.sample.id}", swapped.before, options)
    show_row(console, f"row {pair.sample.id}, swapped", swapped.after, options)
    for problem in swapped.ambiguous:
        console.print(
            f"The reason is ambiguous ({problem.code}): “…{visible(problem.excerpt)}…”. A build leaves this pair "
            "unswapped (ambiguous: keep), or swaps it without the reason, as above (ambiguous: drop_reason).",
            style="yellow",
            markup=False,
        )


def show_row(console: PlainConsole, title: str, row: RowPreview | LeftOut, options: argparse.Namespace) -> None:
    """Show one row below its counts."""
    console.rule(visible(title).replace("\n", ""), characters="=", align="left", style="bright_black")
    if isinstance(row, LeftOut):
        console.print(f"training leaves this row out: {row.reason}", style="yellow", markup=False)
        return
    reference = "shown" if row.with_reference else "not shown"
    console.print(
        f"{row.prompt_tokens:,} prompt tokens + {row.loss_tokens:,} with loss = "
        f"{row.prompt_tokens + row.loss_tokens:,}; reference {reference}; "
        f"{'; '.join(row.cuts.values()) or 'nothing is cut'}",
        markup=False,
    )
    plain = console.no_color or not console.is_terminal
    console.print(render_row(row, plain=plain, boundaries=options.boundaries))


if __name__ == "__main__":
    sys.exit(main())
