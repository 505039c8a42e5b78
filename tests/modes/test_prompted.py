"""Prompts from files: how verdict words become pairs, grades, rankings, and labels, directly or after a reason."""

import math
from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import ConfigError
from judgelm.modes import make_mode
from judgelm.modes.label import PromptLabel
from judgelm.modes.multi import Multi
from judgelm.modes.pairwise import Pairwise
from judgelm.modes.single import Single
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.prompts.prompt_file import read_prompt
from judgelm.prompts.prompt_template import prompt_template
from judgelm.records import LabelVerdict, RankingVerdict, Sample, Truncation
from judgelm.runs.runner import judge
from judgelm.runs.stats import RunStats
from tests.support.flows import SAMPLE, broken, drive, reply, text_of

ONE = Sample(id="1", question="q", answers=("a",))
PAIR = "A: {answer_1}\nB: {answer_2}\nWhich is better?\nreply: "
LABEL = "prompt: 'Is {answer} right?'\nreply: {label: {fulfilled: Yes, failed: No}, "
TIE = "prompt: '{answer_1} or {answer_2}?'\nreply: {pair: {first: A, second: B, tie: C}, "


@pytest.fixture
def prompt(tmp_path):
    def write(text, name=None):
        path = tmp_path / (name or ("prompt.yaml" if text.startswith("prompt:") else "prompt.txt"))
        path.write_text(text)
        return read_prompt(path)

    return write


def mode_of(kind, prompt, **options):
    return kind(prompt=prompt, scale=prompt.reply.scale, **options)


def words(*shares, **fields):
    """A reply with these probabilities of words without a blank before them."""
    return reply("A", shares=[each for share in shares for each in (share, 0)], **fields)


def test_both_orders_are_averaged_as_log_odds(prompt):
    mode = mode_of(Pairwise, prompt(PAIR + "A/B"))
    [requests, *_], judgment = drive(mode, [words(0.8, 0.2), words(0.5, 0.5)])
    assert [text_of(each.prompt) for each in requests] == [
        "A: a\nB: b\nWhich is better?", "A: b\nB: a\nWhich is better?"
    ]  # fmt: skip
    assert requests[0].candidates == ("A", " A", "B", " B")
    assert (requests[0].prompt.prefill, requests[0].sampling.max_tokens) == ("", 1)
    # (log 4 + log 1) / 2 = log 2: 2 / 3
    assert judgment.probability == pytest.approx(2 / 3)
    assert (judgment.winner, judgment.consistent) == (1, False)


def test_a_tie_word_takes_its_share_of_both_orders(prompt):
    mode = mode_of(Pairwise, prompt(PAIR + "A/B/tie"))
    # 0.8 of the mass are words. Given 0.4, 0.24, 0.16; swapped 0.24, 0.4, 0.16: 5/8 for the first, and ties 0.2
    _, judgment = drive(mode, [words(0.4, 0.24, 0.16), words(0.24, 0.4, 0.16)])
    assert judgment.probability == pytest.approx(0.8 * 5 / 8 + 0.2 / 2)
    assert (judgment.winner, judgment.consistent) == (1, True)
    assert judgment.shown[0].distribution.tie == pytest.approx(0.2)
    assert judgment.shown[0].distribution.unassigned == pytest.approx(0.2)
    # 0.5 for a tie is more than 0.5 * 0.6 for the first
    _, judgment = drive(mode, [words(0.3, 0.2, 0.5), words(0.2, 0.3, 0.5)])
    assert (judgment.winner, judgment.probability) == ("tie", pytest.approx(0.5 * 0.6 + 0.25))
    assert judgment.shown[0].scores == (5.5, 5.5)


@pytest.mark.parametrize(
    ("options", "rounds", "winner", "consistent"),
    [
        ({"order_rule": "given"}, [(0.8, 0.2)], 1, None),
        ({"order_rule": "given", "both_orders": True}, [(0.8, 0.2), (0.9, 0.1)], 1, False),
        ({"order_rule": "mean"}, [(0.8, 0.2), (0.9, 0.1)], 2, False),  # log 4 - log 9 is below 0
        ({"order_rule": "tie"}, [(0.8, 0.2), (0.9, 0.1)], "tie", False),
        ({"order_rule": "tie"}, [(0.8, 0.2), (0.1, 0.9)], 1, True),
    ],
)
def test_order_rules_decide_as_with_built_in_templates(prompt, options, rounds, winner, consistent):
    mode = mode_of(Pairwise, prompt(PAIR + "A/B"), **options)
    _, judgment = drive(mode, [words(*shares) for shares in rounds])
    assert (judgment.winner, judgment.consistent) == (winner, consistent)


@pytest.mark.parametrize(("accepted", "winner", "code"), [(False, None, "low_coverage"), (True, 1, None)])
def test_one_order_may_be_enough(prompt, accepted, winner, code):
    mode = mode_of(Pairwise, prompt(PAIR + "A/B"), accept_one_order=accepted)
    _, judgment = drive(mode, [words(0.8, 0.2), words(0.2, 0.2)])
    assert judgment.winner == winner
    assert (judgment.failure and judgment.failure.code) == code


@pytest.mark.parametrize(("minimum", "code"), [(0.5, "low_coverage"), (0.3, None)])
def test_little_probability_on_all_words_is_a_failure(prompt, minimum, code):
    mode = mode_of(PromptLabel, prompt(LABEL + f"min_coverage: {minimum}}}"))
    _, judgment = drive(mode, [words(0.3, 0.1)], sample=ONE)
    assert (judgment.failure and judgment.failure.code) == code
    assert (judgment.probability is None) == (code is not None)


def test_a_grade_is_the_mean_of_its_distribution(prompt):
    mode = mode_of(Single, prompt("{answer}?\nreply: 1-3"))
    _, judgment = drive(mode, [words(0.1, 0.3, 0.4)], sample=ONE)
    # (0.1 * 1 + 0.3 * 2 + 0.4 * 3) / 0.8
    assert judgment.verdict.score == pytest.approx(1.9 / 0.8)
    assert judgment.shown[0].grades.unassigned == pytest.approx(0.2)
    mode = mode_of(Single, prompt("prompt: '{answer}?'\nreply: {grade: {bad: -1, fair: 0, good: 3}}"))
    _, judgment = drive(mode, [words(0.25, 0.25, 0.5)], sample=ONE)
    assert (judgment.verdict.score, mode.scale) == (pytest.approx(1.25), (-1, 3))


def test_words_that_begin_alike_are_read_to_their_end(prompt):
    mode = mode_of(Single, prompt("prompt: '{answer}?'\nreply: {grade: {Grade 1: 1, Grade 10: 10}}"))
    shares = [0.3, 0.1, 0.4, 0] + [0.02] * 9 + [0] * 9
    [[request], *_], judgment = drive(mode, [reply("Grade 1", shares=shares)], sample=ONE)
    assert request.candidates[:4] == ("Grade 1", " Grade 1", "Grade 10", " Grade 10")
    # `Grade 11` to `Grade 19` are other replies, not grade 1
    assert {"Grade 11", "Grade 19", " Grade 12"} <= set(request.candidates[4:])
    assert judgment.verdict.score == pytest.approx((0.4 * 1 + 0.4 * 10) / 0.8)


@pytest.mark.parametrize(("threshold", "label"), [(0.5, "yes"), (0.75, "yes"), (0.8, "no")])
def test_a_label_depends_on_the_threshold(prompt, threshold, label):
    mode = mode_of(PromptLabel, prompt("{answer}?\nreply: Yes/No"), threshold=threshold)
    _, judgment = drive(mode, [words(0.6, 0.2)], sample=ONE)
    assert (judgment.verdict, judgment.probability) == (LabelVerdict(label=label), pytest.approx(0.75))


def test_every_spelling_counts_and_only_listed_ones(prompt):
    written = "prompt: '{answer}?'\nreply: {label: {fulfilled: [Yes, yes], failed: ' No '}}"
    mode = mode_of(PromptLabel, prompt(written))
    shares = (0.1, 0.2, 0.3, 0.1, 0.1, 0.2)
    [[request], *_], judgment = drive(mode, [reply("Yes", shares=shares)], sample=ONE)
    assert request.candidates == ("Yes", "yes", " Yes", " yes", "No", " No")
    assert judgment.probability == pytest.approx(0.7)


def test_prompts_for_one_answer_compare_and_rank_answers(prompt):
    label, grade = prompt("{answer}?\nreply: Yes/No"), prompt("{answer}?\nreply: 1-2", "grade.txt")
    [requests, *_], judgment = drive(mode_of(Pairwise, label), [words(0.8, 0.2), words(0.5, 0.5)])
    assert [text_of(each.prompt) for each in requests] == ["a?", "b?"]
    assert (judgment.probability, judgment.scores) == (pytest.approx(0.8), pytest.approx((0.8, 0.5)))
    _, judgment = drive(mode_of(Multi, grade), [words(0.5, 0.5), words(0, 1)])
    assert judgment.verdict == RankingVerdict(order=((1,), (0,)))


def test_a_choice_is_read_at_every_place(prompt):
    mode = mode_of(Multi, prompt("{answer_1}, {answer_2}, {answer_3}?\nreply: A/B/C"))
    sample = replace(SAMPLE, answers=("a", "b", "c"))
    # orders abc, bca, cab; b is preferred wherever it stands
    best = [words(0.2, 0.6, 0.2), words(0.6, 0.2, 0.2), words(0.2, 0.2, 0.6)]
    [requests, *_], judgment = drive(mode, best, sample=sample)
    assert [text_of(each.prompt) for each in requests] == ["a, b, c?", "b, c, a?", "c, a, b?"]
    assert judgment.verdict == RankingVerdict(order=((1,), (0, 2)))


def test_fixed_text_before_the_verdict_is_forced(prompt):
    mode = mode_of(PromptLabel, prompt(LABEL + 'text: "Verdict: [[{verdict}]]"}'))
    [[request], *_], _ = drive(mode, [words(0.6, 0.2)], sample=ONE)
    assert request.prompt.prefill == "Verdict: [["
    mode = mode_of(PromptLabel, prompt(LABEL + "json: {verdict: verdict, why: reason}}"))
    [[request], *_], _ = drive(mode, [words(0.6, 0.2)], sample=ONE)
    assert request.prompt.prefill == '{"verdict": "'


# Reason first

REASON = LABEL + "reason: 20, text: 'Because {reason}\n\n  Verdict: {verdict}'}"
JSON = LABEL + "reason: 20, json: {why: reason, ok: verdict}}"


def test_the_verdict_is_read_after_the_reason(prompt):
    mode = mode_of(PromptLabel, prompt(REASON))
    [first, second], judgment = drive(mode, [reply(" it is.\n")], [words(0.6, 0.2)], sample=ONE)
    [asked, verdict] = [*first, *second]
    assert (asked.prompt.prefill, asked.sampling.stop, asked.candidates) == ("Because", ("Verdict:",), ())
    assert (asked.sampling.max_tokens, asked.sampling.temperature) == (20, 0)
    assert verdict.prompt.prefill == "Because it is.\nVerdict:"
    assert (judgment.probability, judgment.reason) == (pytest.approx(0.75), "it is.")
    assert judgment.shown[0].text == "Because it is.\nVerdict: A"


def test_a_reason_at_its_limit_is_counted_and_the_verdict_is_read_there(prompt):
    mode = mode_of(PromptLabel, prompt(REASON))
    [_, [verdict]], judgment = drive(mode, [reply(" it is and", finish="length")], [words(0.6, 0.2)], sample=ONE)
    assert verdict.prompt.prefill == "Because it is and\nVerdict:"
    assert (judgment.verdict.label, judgment.shown[0].reason_failure.code) == ("yes", "reason_cut")
    stats = RunStats()
    stats.add(judgment)
    assert (stats.reasons, stats.reason_cut, stats.reasons_incomplete, stats.reasons_failed) == (1, 1, 0, 0)


@pytest.mark.parametrize("reason", ["it is", 'it is",', 'it is", '])
def test_a_reason_in_json_ends_at_the_next_field(prompt, reason):
    mode = mode_of(PromptLabel, prompt(JSON))
    [[asked], [verdict]], judgment = drive(mode, [reply(reason)], [words(0.6, 0.2)], sample=ONE)
    assert (asked.prompt.prefill, asked.sampling.stop) == ('{"why": "', ('"ok"',))
    assert verdict.prompt.prefill == '{"why": "it is", "ok": "'
    assert judgment.reason == "it is"


def test_each_order_has_its_own_reason(prompt):
    mode = mode_of(Pairwise, prompt(TIE + "reason: 20, text: '{reason} So: [[{verdict}]]'}"))
    reasons = [reply("First. "), reply("Second.", finish="length")]
    [_, second], judgment = drive(mode, reasons, [words(0.6, 0.2, 0.2), words(0.2, 0.6, 0.2)])
    assert [each.prompt.prefill for each in second] == ["First. So: [[", "Second. So: [["]
    assert (judgment.winner, judgment.consistent) == (1, True)
    assert [shown.reason for shown in judgment.shown] == ["First.", "Second."]
    assert [shown.reason_failure is not None for shown in judgment.shown] == [False, True]


def test_a_reason_that_fails_has_no_verdict_and_the_others_do(prompt):
    mode = mode_of(Pairwise, prompt(TIE + "reason: 20, text: '{reason} So: [[{verdict}]]'}"), accept_one_order=True)
    [_, second], judgment = drive(mode, [broken(), reply("Second.")], [words(0.2, 0.6, 0.2)])
    assert [each.prompt.prefill for each in second] == ["Second. So: [["]
    assert (judgment.winner, judgment.shown[0].failure.code) == (1, "engine")
    _, judgment = drive(replace(mode, accept_one_order=False), [broken(), reply("Second.")], [words(0.2, 0.6, 0.2)])
    assert (judgment.verdict, judgment.failure.code) == (None, "engine")


def test_truncated_answers_are_reported(prompt):
    cut = (Truncation(answer=0, tokens_before=900, tokens_after=500),)
    mode = mode_of(PromptLabel, prompt(REASON))
    rounds = [reply(" it is.", truncations=cut)], [words(0.6, 0.2, truncations=cut)]
    assert drive(mode, *rounds, sample=ONE)[1].shown[0].truncations == cut


class DrawingEngine(ScriptedEngine):
    """Draws reasons in turn; P(Yes) depends on the reason."""

    def __init__(self, chances):
        super().__init__({"*": "Yes"})
        self.chances = chances
        self.reasons = iter(chances)
        self.requests = []

    def answer(self, request):
        self.requests.append(request)
        n = request.sampling.n
        if not request.candidates:
            texts = tuple(next(self.reasons) for _ in range(n))
            return replace(super().answer(request), texts=texts, finish_reasons=("stop",) * n, completion_tokens=n)
        share = next(share for reason, share in self.chances.items() if reason in request.prompt.prefill)
        known = {"Yes": share, "No": 1 - share}
        logprobs = tuple(math.log(known.get(word) or 1e-12) for word in request.candidates)
        return replace(super().answer(request), candidate_logprobs=logprobs)


def voted(prompt, engine, **options):
    own = {"prompt": prompt, "template": prompt_template(prompt).id, "scale": prompt.reply.scale}
    [judgment] = judge([ONE], make_mode("label", options, own), engine)
    return judgment


def test_votes_draw_several_reasons_and_read_each(prompt):
    engine = DrawingEngine({"bad": 0.4, "good": 0.9, "fair": 0.6})
    judgment = voted(prompt(REASON), engine, votes=3)
    assert judgment.votes == {"1": "no", "2": "yes", "3": "yes"}
    assert judgment.verdict == LabelVerdict(label="yes")
    assert [request.sampling.n for request in engine.requests if not request.candidates] == [2, 1]
    assert {request.sampling.temperature for request in engine.requests if not request.candidates} == {0.7}
    assert [shown.reason for shown in judgment.shown] == ["bad", "good", "fair"]


@pytest.mark.parametrize(("threshold", "label"), [(0.5, "yes"), (0.7, "no")])
def test_the_mean_of_votes_is_compared_with_the_threshold(prompt, threshold, label):
    # (0.4 + 0.9 + 0.6) / 3 is 0.633
    engine = DrawingEngine({"bad": 0.4, "good": 0.9, "fair": 0.6})
    judgment = voted(prompt(REASON), engine, votes=3, vote_rule="mean", threshold=threshold)
    assert (judgment.probability, judgment.verdict.label) == (pytest.approx(1.9 / 3), label)


@pytest.mark.parametrize(
    ("reply_form", "kind", "options", "message"),
    [
        ("Yes/No", "label", {"votes": 3}, "reasons first; add reason"),
        ("Yes/No", "label", {"temperature": 0.5}, "temperature requires"),
        ("Yes/No", "label", {"threshold": 1.5}, "threshold is 1.5"),
        ("Yes/No", "label", {"criterion": "It rhymes."}, r"prompt prompt has no slot \{criterion\}"),
        ("Yes/No", "pair", {"retry_unparseable": True}, "retry_unparseable"),
        ("Yes/No", "pair", {"order_rule": "tie"}, "order_rule"),
    ],
)
def test_options_that_do_not_fit_are_refused(prompt, reply_form, kind, options, message):
    own = {"prompt": prompt(f"{{answer}}?\nreply: {reply_form}"), "template": "prompt:prompt", "scale": (0, 1)}
    with pytest.raises(ConfigError, match=message):
        make_mode(kind, options, own)


def test_reasons_are_not_asked_for_twice_and_labels_need_a_prompt(prompt):
    with pytest.raises(ConfigError, match="already asks for a reason"):
        mode_of(PromptLabel, prompt(REASON), reasons="all")
    with pytest.raises(ConfigError, match="requires a prompt file"):
        make_mode("label", {})


def test_a_direct_verdict_can_be_explained_afterwards(prompt):
    mode = mode_of(PromptLabel, prompt(LABEL + "text: '[[{verdict}]]'}"), reasons="all")
    [_, [why]], judgment = drive(mode, [words(0.6, 0.2)], [reply("It is.")], sample=ONE)
    assert [span.text for span in why.prompt.spans if span.role == "assistant"] == ["[[A"]
    assert judgment.reason == "It is."


def test_samples_keep_the_fields_that_the_prompt_shows(prompt):
    mode = mode_of(PromptLabel, prompt("{context} {answer}?\nreply: Yes/No"))
    sample = replace(ONE, metadata={FIELDS: {"context": "c"}})
    [[request], *_], _ = drive(mode, [words(0.6, 0.2)], sample=sample)
    assert text_of(request.prompt) == "c a?"


def test_a_reason_that_cannot_be_written_fails_the_judgment(prompt):
    mode = mode_of(PromptLabel, prompt(REASON))
    sample = replace(SAMPLE, answers=("one answer",))
    [judgment] = judge([sample], mode, ScriptedEngine({"another prompt": "Yes"}))
    assert (judgment.verdict, judgment.failure.code, judgment.shown[0].text) == (None, "engine", "")
