"""Judging by the probabilities of a reply's first word, or by rewards.

`letters` shows all answers and compares the probabilities of their letters. Each answer is shown at each position to
cancel position bias. `yes-no` asks whether each answer is right, as in P(True) (Kadavath et al. 2022) and GenRM (Zhang
et al. 2024). `grade` asks for a grade for each answer.

Each answer gets a strength: the mean log-probability of its letter, the log-odds of yes versus no, the expected grade,
or the reward. P(first better) is the logistic function of the difference between two strengths, divided by the card's
calibration temperature (Bradley-Terry). A reply fails if unexpected words have more than half of the total probability.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, ClassVar, NamedTuple

from judgelm.errors import ConfigError
from judgelm.modes.completions import agree, failure_of, first_failure, in_sample_order, judged, thinking_of
from judgelm.modes.flow import Flow, RequestFlow, requests_of
from judgelm.modes.mode import BatchMode, sampling_for
from judgelm.modes.reasons import Reasons, explain, to_explain
from judgelm.parsing.scores import (
    MIN_ASSIGNED,
    ScoreLines,
    grade_distribution,
    likeliest_winner,
    pair_distribution,
    score_lines,
    winner_by,
)
from judgelm.prompts.catalog import Template, VerdictForm, criterion_template, get_template, letters
from judgelm.prompts.conversation import follow_up_prompt, reward_prompt
from judgelm.prompts.judge_prompt import FIELDS, JudgePrompt
from judgelm.prompts.prompt_template import check_fields, prompt_template
from judgelm.records import (
    AbstainVerdict,
    Completion,
    HeadTerms,
    Judgment,
    PairVerdict,
    Prompt,
    Request,
    Sample,
    Sampling,
    Shown,
    Unparsed,
    Winner,
    winner_of,
)

_FLOOR = math.log(1e-9)
"""Log-probability assumed for words that an endpoint omits because it lists only the most likely tokens."""
_YES_NO = {word: tuple(form(word) for form in (str.title, str.lower, str.upper)) for word in ("yes", "no")}
_WHY = "Why? Explain your reply in two or three sentences."
_NOT_READ: Mapping[str, tuple[object, ...]] = {"retry_unparseable": (False,), "temperature": (0,)}
"""Options that are not supported in word readings, with the only values allowed."""


class ReadingMode(BatchMode):
    """Base class for modes that support word readings and prompt files. See `Pairwise` for the options."""

    __slots__ = ()
    shown_fields: ClassVar[tuple[str, ...]] = (FIELDS,)
    prompt: JudgePrompt | None = None
    head: HeadTerms | None = None
    scale: tuple[float, float]
    step: float
    criterion: str | None = None
    calibration_temperature: float
    tie_threshold: float
    reasons: Reasons = "none"
    reason_tokens: int
    temperature: float
    seed: int

    @property
    def template_sha(self) -> str:
        """Hash of the template."""
        return reading_of(self).sha

    def check(self, sample: Sample) -> None:
        """Check the number of answers, and that the sample has all fields that the prompt shows."""
        BatchMode.check(self, sample)
        if self.prompt is not None:
            check_fields(sample, self.prompt, self.criterion)

    @classmethod
    def can_vote(cls, fixed: Mapping[str, Any]) -> bool:
        """Return whether the prompt asks for a reason before the verdict."""
        prompt: JudgePrompt | None = fixed.get("prompt")
        return prompt is not None and prompt.reply.reason is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WordMode(ReadingMode):
    """Base class for the modes that show a written prompt, unlike reward models."""

    scale: tuple[float, float] = (1, 10)
    step: float = 1
    criterion: str | None = None
    calibration_temperature: float = 1.0
    reason_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedMode(WordMode):
    """Base class for the modes that support prompt files and linear heads."""

    prompt: JudgePrompt | None = None
    head: HeadTerms | None = None


class Words(NamedTuple):
    """The words whose probabilities are compared.

    Attributes:
        scores: score for each word on the judge's scale; empty for letters.
        longer: replies that begin with a shorter word but continue it, such as `11` for `1`; they are not counted.
        min_coverage: minimum total probability of the words.
    """

    reading: str
    spellings: Mapping[str, tuple[str, ...]]
    scores: tuple[float, ...]
    longer: tuple[str, ...] = ()
    min_coverage: float = MIN_ASSIGNED


class WordLogprobs(NamedTuple):
    """Natural logarithms of word probabilities, each summed over the spellings of a word.

    Attributes:
        values: shape (n,) for n words; at least log(1e-9), except for grades.
        approximation: the reason why the values are not exact; empty if they are.
    """

    values: tuple[float, ...]
    approximation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """All prompts for one sample, with their results.

    Attributes:
        shown: one entry per order (`letters`) or answer.
        strengths: strength of each answer, in sample order; None if any prompt failed.
    """

    shown: tuple[Shown, ...]
    prompts: tuple[Prompt, ...]
    strengths: tuple[float, ...] | None

    @property
    def failure(self) -> Unparsed | None:
        """The reason why there are no strengths."""
        return first_failure(self.shown) if self.strengths is None else None


def reading_of(mode: BatchMode) -> Template:
    """Return the mode's template, from a prompt file or built-in."""
    prompt = prompt_of(mode)
    return get_template(mode.template) if prompt is None else prompt_template(prompt)


def prompt_of(mode: BatchMode) -> JudgePrompt | None:
    """Return the mode's prompt file, if any."""
    prompt = getattr(mode, "prompt", None)
    return prompt if isinstance(prompt, JudgePrompt) else None


def check_reading(mode: ReadingMode) -> str:
    """Check the options and return the ID of the template to use."""
    template = reading_of(mode)
    if template.of_trajectories:
        raise ConfigError(f"template {template.id} is for agent trajectories; use --mode trajectory without --template")
    if mode.criterion is not None:
        if not mode.criterion.strip():
            raise ConfigError("criterion is empty; describe it in words or remove it")
        template = template if mode.prompt is not None else criterion_template(template)
        if not template.takes_criterion:
            name = template.id.removeprefix("prompt:")
            raise ConfigError(f"prompt {name} has no slot {{criterion}}; add it, or remove --criterion")
    elif template.takes_criterion and mode.prompt is None:
        raise ConfigError(f"template {template.id} requires a criterion; set one with --criterion")
    if not mode.calibration_temperature > 0:
        raise ConfigError(f"calibration_temperature is {mode.calibration_temperature}; it must be above 0")
    if template.reads_alone and getattr(mode, "order_rule", "mean") not in ("mean", "probability"):
        shown = (
            f"{template.id} shows each answer by itself" if mode.prompt is None else f"{template.id} shows one answer"
        )
        raise ConfigError(f"order_rule is not supported because {shown}; remove it")
    if template.verdict is not None:
        _check_prompt(mode, template)
    elif template.reads_words:
        for name, allowed in _NOT_READ.items():
            if getattr(mode, name, allowed[0]) not in allowed:
                raise ConfigError(
                    f"{name} is not supported with --reading {template.reading}, only with score-line; remove it"
                )
    if mode.head is not None:
        _check_head(mode, template)
    if template.reading == "grade" and template.verdict is None:
        score_lines(mode.scale, mode.step)  # raises an error if the scale has too many scores
    if template.reading == "reward" and not mode.takes_rewards:
        raise ConfigError(f"mode {mode.name}: reward models generate no text; use mode reward, pair, single, or multi")
    if template.reading == "reward" and mode.reasons != "none":
        raise ConfigError(f"reasons is {mode.reasons}, but reward models cannot give reasons; remove it")
    return template.id


def _check_head(mode: ReadingMode, template: Template) -> None:
    if not template.reads_alone or (template.verdict is not None and template.verdict.reason_tokens is not None):
        raise ConfigError(
            f"a head requires a prompt that shows one answer and reads its verdict; {template.id} does not"
        )
    if mode.reasons != "none":
        raise ConfigError(f"reasons is {mode.reasons}, but judges with a head give no reasons; remove it")


def _check_prompt(mode: ReadingMode, template: Template) -> None:
    verdict = template.verdict
    assert verdict is not None
    if mode.reference == "use" and not template.shows_reference:
        raise ConfigError("reference is use, but the prompt has no slot {reference}; add it, or remove reference")
    if mode.reference == "ignore" and template.shows_reference:
        raise ConfigError("reference is ignore, but the prompt shows {reference}; remove one of them")
    if getattr(mode, "retry_unparseable", False):
        raise ConfigError("retry_unparseable is not needed with --prompt, which reads probabilities; remove it")
    if verdict.reason_tokens is None and mode.temperature != 0:
        raise ConfigError("temperature requires a prompt that reasons first; add reason to the prompt's reply")
    if verdict.reason_tokens is not None and mode.reasons != "none":
        raise ConfigError(f"reasons is {mode.reasons}, but this prompt already asks for a reason; remove it")


def read_words(mode: ReadingMode, sample: Sample, orders: Sequence[tuple[int, ...]]) -> RequestFlow[Readout]:
    """Ask for one word per prompt. `letters` uses `orders`; other readings show each answer by itself."""
    template = reading_of(mode)
    if template.reading == "reward":
        return (yield from read_rewards(sample))
    if mode.head is not None:
        return (yield from _read_head(mode, mode.head, template, sample))
    orders = [(index,) for index in range(len(sample.answers))] if template.reads_alone else orders
    words = words_of(template, len(orders[0]), scale=mode.scale, step=mode.step)
    reference = None if mode.reference == "ignore" else sample.reference
    prompts = [
        template.render(sample, order, reference, scale=mode.scale, criterion=mode.criterion) for order in orders
    ]
    referenced = reference is not None and template.shows_reference
    replies = yield from _ask(mode, sample.id, template.verdict, prompts, words)
    shown, strengths = [], []
    for order, (completion, reason) in zip(orders, replies, strict=True):
        logprobs = _word_logprobs(completion, words, template)
        reply = _shown(order, completion, logprobs, words, mode, referenced=referenced)
        if reason is not None and template.verdict is not None:
            reply = _with_reason(reply, reason, template.verdict)
        shown.append(reply)
        strengths.append(() if isinstance(logprobs, Unparsed) else _strengths(logprobs.values, words, len(order)))
    deciding = _deciding(mode, list(zip(orders, strengths, strict=True)))
    by_answer = _by_answer(deciding) if deciding else None
    return Readout(shown=tuple(shown), prompts=tuple(prompts), strengths=by_answer)


class Reason(NamedTuple):
    """A reason that the judge wrote before its verdict.

    Attributes:
        reply: the reply up to the verdict.
        is_cut: whether the reason reached its token limit.
    """

    text: str
    reply: str
    thinking: str | None
    is_cut: bool


_ROOM = 64
"""Tokens kept free for the fixed text around the verdict."""


def _ask(
    mode: ReadingMode, sample_id: str, verdict: VerdictForm | None, prompts: Sequence[Prompt], words: Words
) -> RequestFlow[list[tuple[Completion, Reason | None]]]:
    candidates = (*chain.from_iterable(words.spellings.values()), *words.longer)
    if verdict is None or verdict.reason_tokens is None:
        before = "" if verdict is None else verdict.before.rstrip(" ")
        asked = [replace(prompt, prefill=before) if before else prompt for prompt in prompts]
        requests = requests_of(asked, Sampling(max_tokens=1), candidates)
        completions = yield [replace(request, after=before.strip()) for request in requests]
        return [(completion, None) for completion in completions]
    sampling = sampling_for(
        mode, sample_id, verdict.reason_tokens, stop=(verdict.stop,), reserve=verdict.reason_tokens + _ROOM
    )
    asked = [replace(prompt, prefill=verdict.head.rstrip(" ")) for prompt in prompts]
    written = yield requests_of(asked, sampling)
    reasons = [_reason(completion, verdict) for completion in written]
    read = [index for index, completion in enumerate(written) if failure_of(completion) is None]
    reading = Sampling(max_tokens=1, reserve=verdict.reason_tokens + _ROOM)
    requests = [
        Request(
            key=f"verdict {index}",
            prompt=replace(prompts[index], prefill=reasons[index].reply.rstrip(" ")),
            sampling=reading,
            candidates=candidates,
            after=f"{verdict.stop}{verdict.before.partition(verdict.stop)[2]}".rstrip(" "),
        )
        for index in read
    ]
    continued = (yield requests) if requests else []  # the runner waits for completions of each round
    by_index = dict(zip(read, continued, strict=True))
    return [
        (by_index[index], reasons[index]) if index in by_index else (completion, None)
        for index, completion in enumerate(written)
    ]


def _reason(completion: Completion, verdict: VerdictForm) -> Reason:
    text = (completion.texts[0] if completion.texts else "").rstrip()
    opening = verdict.before.partition(verdict.stop)[0].strip()
    text = text.removesuffix(opening).rstrip() if opening else text
    is_cut = failure_of(completion) is None and completion.finish_reasons[0] == "length"
    reply = f"{verdict.head.rstrip(' ')}{text}{verdict.before}"
    return Reason(text.strip(), reply, thinking_of(completion), is_cut=is_cut)


def _with_reason(shown: Shown, reason: Reason, verdict: VerdictForm) -> Shown:
    why = f"the reason did not end within {verdict.reason_tokens} tokens, so the verdict was read there"
    return replace(
        shown,
        text=f"{reason.reply}{shown.text}",
        thinking=reason.thinking,
        reason=reason.text or None,
        reason_failure=Unparsed("reason_cut", "", why) if reason.is_cut else None,
    )


def read_rewards(sample: Sample) -> RequestFlow[Readout]:
    """Request the reward for each answer.

    If different answers are identical after truncation, the result is a failure.
    """
    prompts = tuple(reward_prompt(sample, index) for index in range(len(sample.answers)))
    completions = yield [replace(each, reward=True) for each in requests_of(prompts, Sampling(max_tokens=1))]
    return _scored([_rewarded(index, completion) for index, completion in enumerate(completions)], prompts)


def _read_head(mode: ReadingMode, head: HeadTerms, template: Template, sample: Sample) -> RequestFlow[Readout]:
    words = words_of(template, 1, scale=mode.scale, step=mode.step)
    candidates = tuple(chain.from_iterable(words.spellings.values())) if head.log_odds else ()
    prompts = prompts_alone(mode, sample)
    completions = yield [
        replace(each, reward=True, reward_row=head.row)
        for each in requests_of(prompts, Sampling(max_tokens=1), candidates)
    ]
    shown = []
    for index, completion in enumerate(completions):
        reply = _rewarded(index, completion)
        logprobs = _word_logprobs(completion, words, template) if head.log_odds else None
        if isinstance(logprobs, Unparsed):
            reply = replace(reply, scores=None, failure=reply.failure or logprobs)
        elif reply.scores is not None:
            values = (0.0, 0.0) if logprobs is None else logprobs.values
            reply = _with_terms(reply, head, values[0] - values[1], mode.scale)
        shown.append(reply)
    return _scored(shown, prompts)


def prompts_alone(mode: ReadingMode, sample: Sample) -> tuple[Prompt, ...]:
    """Return the prompt for each answer, up to the verdict, for templates that show one answer."""
    template = reading_of(mode)
    reference = None if mode.reference == "ignore" else sample.reference
    shown = [
        template.render(sample, (index,), reference, scale=mode.scale, criterion=mode.criterion)
        for index in range(len(sample.answers))
    ]
    return tuple(replace(prompt, prefill=template.prefill) for prompt in shown)


def _with_terms(shown: Shown, head: HeadTerms, log_odds: float, scale: tuple[float, float]) -> Shown:
    assert shown.scores is not None, "the reply has a reward"
    value = shown.scores[0] + head.intercept + head.log_odds * log_odds
    if head.kind == "grade":
        return replace(shown, scores=(min(max(value, scale[0]), scale[1]),))
    return replace(shown, scores=(_logistic(value) if head.kind == "label" else value,), log_odds=value)


def calibrated_yes(shown: Shown, temperature: float) -> float | None:
    """Return P(yes) after dividing the log-odds by a temperature; None for failures."""
    if shown.scores is None or shown.log_odds is None or temperature == 1:
        return None if shown.scores is None else shown.scores[0]
    return _logistic(shown.log_odds / temperature)


def _logistic(value: float) -> float:
    return math.exp(min(value, 0)) / (1 + math.exp(-abs(value)))


def _scored(shown: list[Shown], prompts: tuple[Prompt, ...]) -> Readout:
    for first, second in combinations(range(len(shown)), 2):
        cut = shown[first].truncations and shown[second].truncations and shown[first].scores is not None
        if cut and shown[first].scores == shown[second].scores and prompts[first] != prompts[second]:
            why = f"answers {first + 1} and {second + 1} have the same reward after truncation"
            shown[second] = replace(shown[second], scores=None, failure=Unparsed("equal_after_cut", "", why))
    strengths = tuple(reply.scores[0] for reply in shown if reply.scores is not None)
    return Readout(shown=tuple(shown), prompts=prompts, strengths=strengths if len(strengths) == len(shown) else None)


def _rewarded(index: int, completion: Completion) -> Shown:
    failure, reward = failure_of(completion), completion.reward
    if failure is None and reward is None:
        failure = Unparsed("engine", "", "the engine returned no reward; use a reward model with --engine transformers")
    elif reward is not None and not math.isfinite(reward):
        failure = Unparsed("engine", "", f"the reward is {reward}; check the model's weights and dtype")
    scores = None if failure is not None or reward is None else (reward,)
    return Shown(order=(index,), text="", scores=scores, failure=failure, truncations=completion.truncations)


def words_of(template: Template, answers: int, *, scale: tuple[float, float], step: float = 1) -> Words:
    """Return each word with and without a leading space."""
    low, high = scale
    if (verdict := template.verdict) is not None:
        spelled = {word: _spaced(same) for word, same in verdict.words.items()}
        return Words(template.reading, spelled, verdict.scores, _longer(spelled), verdict.min_coverage)
    if template.reading == "letters":
        forms: Mapping[str, tuple[str, ...]] = {letter: (letter,) for letter in letters(answers)}
        scores: tuple[float, ...] = ()
    elif template.reading == "yes-no":
        forms, scores = _YES_NO, (high, low)
    else:
        scores = score_lines(scale, step).values
        forms = {f"{score:g}": (f"{score:g}",) for score in scores}
    return Words(template.reading, {word: _spaced(same) for word, same in forms.items()}, scores)


def _spaced(same: Sequence[str]) -> tuple[str, ...]:
    return (*same, *(f" {text}" for text in same))


def _longer(spellings: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the numbers that continue a word which other words continue too, such as `11` for `1` and `10`."""
    known = {text for same in spellings.values() for text in same}
    begun = [
        text
        for text in known
        if text[-1].isdigit() and any(other != text and other.startswith(text) for other in known)
    ]
    return tuple(sorted({f"{text}{digit}" for text in begun for digit in "0123456789"} - known))


def _word_logprobs(completion: Completion, words: Words, template: Template) -> WordLogprobs | Unparsed:
    if (failure := failure_of(completion)) is not None:
        return failure
    if completion.candidate_logprobs is None:
        return Unparsed("engine", "", f"the engine returns no probabilities, which reading {template.reading} requires")
    logprobs = iter(completion.candidate_logprobs)
    masses = [math.fsum(math.exp(next(logprobs)) for _ in spellings) for spellings in words.spellings.values()]
    if (mass := math.fsum(masses)) < words.min_coverage:
        text = completion.texts[0] if completion.texts else ""
        listed = ", ".join(words.spellings)
        finding = f"the probability of {listed} is only {mass:.2g}; the minimum is {words.min_coverage:g}"
        return Unparsed("low_coverage", text, finding)
    floor = -math.inf if template.reading == "grade" else _FLOOR
    values = tuple(max(floor, math.log(mass)) if mass > 0 else floor for mass in masses)
    return WordLogprobs(values, completion.approximation)


def _shown(
    order: tuple[int, ...],
    completion: Completion,
    logprobs: WordLogprobs | Unparsed,
    words: Words,
    mode: ReadingMode,
    *,
    referenced: bool,
) -> Shown:
    shown = Shown(
        order=order,
        text=completion.texts[0] if completion.texts else "",
        referenced=referenced,
        failure=logprobs if isinstance(logprobs, Unparsed) else None,
        truncations=completion.truncations,
    )
    if isinstance(logprobs, Unparsed):
        return shown
    values, approximation = logprobs
    low, high = mode.scale
    if words.scores:
        grades = grade_distribution(words.scores, values, approximation)
        log_odds = values[0] - values[1] if words.reading == "yes-no" else None
        return replace(shown, scores=(grades.expected,), grades=grades, log_odds=log_odds)
    if len(order) > 2:
        return replace(shown, scores=tuple(low + (high - low) * share for share in _shares(values)))
    middle = (low + high) / 2
    pairs = ((high, low), (low, high), (middle, middle))[: len(values)]
    lines = ScoreLines(values=(low, high), pairs=pairs, texts=tuple(words.spellings))
    distribution = pair_distribution(lines, values, approximation)
    is_tie = len(values) > 2 and likeliest_winner(distribution.first_better, distribution.tie) == "tie"
    scores = (middle, middle) if is_tie else distribution.expected
    return replace(shown, scores=scores, distribution=distribution, log_odds=values[0] - values[1])


def _strengths(values: tuple[float, ...], words: Words, answers: int) -> tuple[float, ...]:
    if words.reading == "letters":
        whole = math.log(math.fsum(map(math.exp, values)))
        return tuple(value - whole for value in values[:answers])
    if words.reading == "yes-no":
        return (values[0] - values[1],)
    return (grade_distribution(words.scores, values, "").expected,)


_Strengths = Sequence[tuple[tuple[int, ...], tuple[float, ...]]]
"""Orders, and the strengths of the answers in the order shown; empty if the prompt failed."""


def _deciding(mode: ReadingMode, read: _Strengths) -> _Strengths:
    """Return the orders that decide the verdict, or nothing if one of them failed."""
    if getattr(mode, "order_rule", "mean") == "given":
        read = read[:1]
    known = [(order, values) for order, values in read if values]
    several = len(read[0][0]) > 1
    return known if len(known) == len(read) or (several and getattr(mode, "accept_one_order", False)) else ()


def _by_answer(read: _Strengths) -> tuple[float, ...]:
    sums: dict[int, list[float]] = {}
    for order, values in read:
        for index, value in zip(order, values, strict=True):
            sums.setdefault(index, []).append(value)
    return tuple(math.fsum(values) / len(values) for _, values in sorted(sums.items()))


def _shares(values: Sequence[float]) -> tuple[float, ...]:
    weights = [math.exp(value - max(values)) for value in values]
    return tuple(weight / math.fsum(weights) for weight in weights)


def answer_scores(mode: ReadingMode, readout: Readout) -> tuple[float, ...] | None:
    """Return the score of each answer. For letters, the scores are preference shares mapped to the judge's scale."""
    if readout.strengths is None:
        return None
    if reading_of(mode).reads_alone:
        return tuple(shown.scores[0] for shown in readout.shown if shown.scores is not None)
    low, high = mode.scale
    shares = _shares([strength / mode.calibration_temperature for strength in readout.strengths])
    return tuple(low + (high - low) * share for share in shares)


def first_better(mode: ReadingMode, strengths: tuple[float, ...]) -> float:
    """Return P(first better) in (0, 1), computed from two strengths with the Bradley-Terry model."""
    odds = (strengths[0] - strengths[1]) / mode.calibration_temperature
    smaller = math.exp(-abs(odds))  # exp(odds) could overflow at low temperatures
    return (1 if odds >= 0 else smaller) / (1 + smaller)


def explain_word(mode: ReadingMode, judgment: Judgment, prompts: Sequence[Prompt], close_threshold: float = 0) -> Flow:
    """Request reasons for the given order, for both orders (`flips`), or for each answer that was judged by itself."""
    template = reading_of(mode)
    indices = to_explain(judgment, mode.reasons, close_threshold)
    if indices and template.reads_alone:
        indices = list(range(len(judgment.shown)))
    sampling = sampling_for(mode, judgment.sample_id, mode.reason_tokens, reserve=1)

    before = "" if template.verdict is None else template.verdict.before.lstrip()

    def ask(prompt: Prompt, reply: str) -> Prompt:
        return follow_up_prompt(template, prompt, [f"{before}{reply}", _WHY])

    return explain(judgment, indices, prompts, sampling, ask)


def _confident(probability: float, least: float) -> PairVerdict | AbstainVerdict:
    """Return the likelier answer, or abstain if its probability is below `least`, or if it is 0.5."""
    winner = winner_by(probability, 0)
    return (
        AbstainVerdict() if winner == "tie" or max(probability, 1 - probability) < least else PairVerdict(winner=winner)
    )


def conclude_pair(mode: ReadingMode, sample: Sample, readout: Readout) -> Judgment:
    """Build the judgment of a pair, `consistent` if the letters from both orders refer to the same answer."""
    strengths = readout.strengths
    orders = [shown for shown in readout.shown if len(shown.order) == 2]
    winners = [winner_of(scores) for shown in orders if (scores := in_sample_order(shown)) is not None]
    probability: float | None = None
    verdict: PairVerdict | AbstainVerdict | None = None
    if strengths is not None:
        decisive, tie = first_better(mode, strengths), _tie(mode, orders)
        probability = (1 - tie) * decisive + tie / 2
        conflict = getattr(mode, "order_rule", "mean") == "tie" and len(set(winners)) > 1
        winner: Winner = "tie" if conflict else winner_by(probability, mode.tie_threshold)
        if tie > (1 - tie) * max(decisive, 1 - decisive):
            winner = "tie"
        verdict = PairVerdict(winner=winner)
        if (least := getattr(mode, "abstain_below", None)) is not None:
            verdict = _confident(probability, least)
    judgment = judged(mode, sample, readout.shown, verdict, probability=probability, failure=readout.failure)
    return replace(judgment, scores=answer_scores(mode, readout), consistent=agree(winners))


def _tie(mode: ReadingMode, orders: Sequence[Shown]) -> float:
    """Return the mean probability of the tie word in the orders that decide the verdict."""
    deciding = orders[:1] if getattr(mode, "order_rule", "mean") == "given" else orders
    ties = [shown.distribution.tie for shown in deciding if shown.distribution is not None]
    return math.fsum(ties) / len(ties) if ties else 0.0
