"""A built data set in sentences: each number with its n and its interval."""

from collections import Counter

from judgelm.data.builder.options import BuildOptions
from judgelm.data.builder.pipeline import BuildResult
from judgelm.reports.data_set_tables import Stage, share, source_rows
from judgelm.reports.wording import bounds, percent

DROPPED: dict[str, str] = {
    "no judgment": "neither scores nor a winner were given",
    "winner without scores": "only a winner was given; winner_scores can say which scores stand for it",
    "scores outside the scale": "a score that this build's scale does not have, such as 0 of 1 to 10",
    "score line and scores differ": "the text's own score line contradicts the scores beside it",
    "empty question": "nothing was asked",
    "equal answers judged unequal": "both answers are the same text, and one was called better",
    "too long": "prompt and reply need more tokens than max_tokens, or the texts more characters than max_characters",
    "exact duplicate": "question and answers came before, in one order or the other",
    "near duplicate": "question and answers came before but for small differences",
    "question of an excluded file": "a file in exclude asks it too, nearly, or with the same passage",
    "over max_per_question": "enough other pairs have the same question",
    "left out for balance": "its outcome is the more frequent in its group of models and lengths",
}

AMBIGUOUS: dict[str, str] = {
    "bare_name": "a number or letter that may stand for an answer, with no noun beside it",
    "former_latter": "“former” or “latter” with no telling what was said before",
    "no_such_answer": "an answer is named that the pair does not have",
    "position_word": "an answer is named by where it stands, such as “the answer above”",
    "quoted_name": "a quotation holds a name and is no quotation of an answer",
    "said_in_answer": "the name may be the answer's own words",
    "unnamed_ordinal": "“first” or “second” with no telling of what",
    "unnamed_scores": "two scores in a sentence that does not name both answers",
    "unsure_noun": "a noun that may or may not mean an answer, such as “option 1”",
    "value_or_name": "“answer 1” may be the value that was answered",
}


def facts(options: BuildOptions) -> list[tuple[str, str]]:
    """The build in a few labels."""
    return [
        ("inputs", str(len(options.inputs))),
        ("seed", str(options.seed)),
        ("epochs", str(options.epochs)),
        ("swap", f"draw, p = {options.swap_prob:g}" if options.swap == "draw" else options.swap),
        (
            "references",
            f"draw, p = {options.reference_drop_prob:g}" if options.reference == "draw" else options.reference,
        ),
        ("format", options.format),
    ]


def sums_note(built: BuildResult) -> str | None:
    """A warning about counts that do not add up, which would be a bug of judgelm; None where all do."""
    counts = built.counts
    wrong = [f"the rows of {row.name}" for row in source_rows(counts) if not row.adds_up]
    if sum(counts.accepted.values()) != counts.before.pairs:
        wrong.append("the pairs kept")
    sizes = {name.partition(".")[0]: rows for name, rows in built.files.items()}
    for name, stage in (("train", counts.train), ("validation", counts.validation), ("test", counts.test)):
        if sizes.get(name, 0) != stage.pairs:
            wrong.append(f"the rows of the {name} file")
    return f"The numbers of {', '.join(wrong)} do not add up: do not trust this set, and report it." if wrong else None


def headline(built: BuildResult, before: Stage, after: Stage) -> list[str]:
    """The data set in a few sentences, the most important first."""
    sentences = [_rows(built), _sets(built, before, after), _balance(before, after), _scores(after)]
    sentences += [_swaps(built.counts.swapped, before), _references(built.counts.references)]
    return [sentence for sentence in sentences if sentence]


def _rows(built: BuildResult) -> str:
    *_, total = source_rows(built.counts)
    accepted = share(total.accepted, total.read)
    part = "" if accepted is None else f" ({percent(accepted.value)}, 95 % interval {bounds(accepted)})"
    return (
        f"Of {total.read:,} rows read, {total.accepted:,} were kept{part}, {total.dropped:,} dropped and "
        f"{total.rejected:,} rejected as unreadable."
    )


def _sets(built: BuildResult, before: Stage, after: Stage) -> str:
    held_out_pairs = built.counts.validation.pairs + built.counts.test.pairs
    held_out = f"{held_out_pairs:,} pairs on other questions are held out" if held_out_pairs else "no pair is held out"
    rows = f"The training set has {after.counts.pairs:,} rows made of {before.counts.pairs:,} pairs"
    return f"{rows}; {held_out}."


def _balance(before: Stage, after: Stage) -> str:
    first, was = after.decided, before.decided
    if first is None:
        return "No training row has a better answer, so a judge could only learn to write ties."
    earlier = "" if was is None else f", against {percent(was.value)} of {was.n:,} before augmentation"
    sentence = (
        f"Of the training rows that are no tie, the first answer wins {percent(first.value)} "
        f"(95 % interval {bounds(first)}, n = {first.n:,}){earlier}"
    )
    if first.low <= 0.5 <= first.high:
        return f"{sentence}: no preference for a position is visible."
    side = "first" if first.value > 0.5 else "second"
    return f"{sentence}: a judge could learn to prefer the {side} position. Swapping balances it."


def _scores(after: Stage) -> str:
    first, second = after.mean_score(1), after.mean_score(2)
    if first is None or second is None:
        return ""
    first_mean, second_mean = (f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})" for mean in (first, second))
    means = f"{first_mean} points on average at position 1 and {second_mean} at position 2"
    return f"Its answers score {means}, n = {first.n:,} each."


def _swaps(swapped: Counter[str], before: Stage) -> str:
    to_swap = swapped.total() - swapped["left as it was"]
    if not to_swap:
        return "No row was to be swapped."
    unclear = swapped["kept, its reason is ambiguous"] + swapped["swapped without an ambiguous reason"]
    unclear_share = share(unclear, to_swap, before.units * to_swap / swapped.total())
    assert unclear_share is not None
    return (
        f"{to_swap:,} of {swapped.total():,} rows drawn were to be swapped; in {percent(unclear_share.value)} of them "
        f"(95 % interval {bounds(unclear_share)}) a reason does not say clearly which answer it means."
    )


def _references(references: Counter[str]) -> str:
    both = references["both judgments"]
    winner, score = (share(references[f"{change} changed"], both) for change in ("winner", "score"))
    if winner is None or score is None:
        return ""
    return (
        f"With the reference, {percent(score.value)} of {both:,} pairs judged both ways get another score "
        f"({bounds(score)}) and {percent(winner.value)} another winner ({bounds(winner)})."
    )
