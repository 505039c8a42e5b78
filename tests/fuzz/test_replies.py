"""What judges write: every reader of replies is total, fast, keeps the text it cannot read, and guesses nothing."""

import re
from typing import get_args

from hypothesis import strategies as st

from judgelm.data.sources.layouts import split_review
from judgelm.judges.released import released_judges
from judgelm.modes.multimodal import read_gold
from judgelm.modes.released import MarkedReply
from judgelm.parsing import short_answers, verdicts
from judgelm.parsing.scores import parse_pair, parse_pair_anywhere, parse_pair_original, parse_scores
from judgelm.parsing.thinking import reply_so_far, separate
from judgelm.prompts.sanitization import Sanitizer
from judgelm.records import Scores, Unparsed
from tests.support import fuzzing

SCORE_LINES = fuzzing.texts(
    *("8 6", "8", "10", "7.5", "-1", "+3", "11", "0", "8/10", "/", " / 10", " ", "\n", "\r\n", ",", ";", "|", "."),
    *("'s", "Assistant 1", "assistant 2: ", "Answer 3", "Response", " score", "overall", "rating", " is ", "=", ":"),
    *(" and ", "**", "`", "_", "“", '"', "\u200b", "\ufeff", "[[", "]]", "(", ")", "Scores: ", "the ", "٣", "²"),
    *("1" * 400, "e5"),
)
SCALES = st.sampled_from(((1, 10), (1, 5), (0, 100), (-1, 1)))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_score_lines(fuzz):
    def check(given):
        text, count, scale = given
        for found, expected in (
            (parse_pair(text, scale), 2),
            (parse_pair_anywhere(text, scale), 2),
            (parse_scores(text, count, scale), count),
        ):
            if isinstance(found, Unparsed):
                assert found.text == text
                assert found.code in ("off_grammar", "out_of_range")
                assert found.why
                continue
            assert len(found.values) == expected
            assert all(scale[0] <= value <= scale[1] for value in found.values)
            said = {float(number) for number in NUMBER.findall(text)}
            assert {abs(value) for value in found.values} <= said | {0.0}, "a score that the judge did not write"
            line = " ".join(repr(value) for value in found.values)
            assert parse_scores(line, expected, scale) == found
        original = parse_pair_original(text)
        assert original.text == text if isinstance(original, Unparsed) else len(original.values) == 2

    fuzz(st.tuples(SCORE_LINES, st.integers(1, 5), SCALES), check)


REPLIES = fuzzing.texts(
    *("Answer: ", "answer:", "The answer is ", "####", "\\boxed{", "}", "$", "€", "1,234.50", "1/3", "3/0", "-", "−"),
    *("%", "A", "(B)", "[[A]]", "[[B]]", "[C]", "[[", "]]", "option ", "or", "and", ",", "= ", "is ", "choice is"),
    *("\\text{", "correct", "Incorrect", "CORRECT", "partially correct", "<ans>", "</ans>", "<ANS> ", "<b>"),
    *("not applicable", "1", "2", "Tie", "final decision is ", "Response 1", "response 2", "tie", "Rating: [[", "5]]"),
    *("[RESULT]", "[SCORE] ", "score of ", "out of 5", " / 5", "Result: ", "4", ".", " ", "\n", "\t", "*", "**"),
    *("\u2028", "\u00ad", "9" * 60, "²", "<OR>", "<AND>", "1e5", "nan", "a", "the", "8 6", "Explanation: ", "“", "٣"),
    *("\u0130", "ß", "[response "),
)
LEVELS = (("incorrect", "partially correct", "correct"), ("no", "yes"), ("not applicable", "1", "2"))
WORDS = ({"correct": "Correct", "incorrect": "Incorrect"}, {"A": "A", "B": "B", "C": "C"})


def check_reply(text):
    results = [
        *(verdicts.parse_level(text, levels) for levels in LEVELS),
        *(task.reply(text) for judge in released_judges() for task in judge.tasks.values()),
        *(verdicts.read_verdict(text, words, brackets_only=only) for words in WORDS for only in (False, True)),
        verdicts.read_label(text),
        *(verdicts.read_label_original(text, rule) for rule in ("first", "last_on_line")),
    ]
    for one in results:
        match one:
            case Unparsed():
                assert one.text == text
                assert one.why
            case verdicts.StatedVerdict():
                word = one.written
                assert text[one.position : one.position + len(word)] == word
                assert word
            case Scores():
                assert 1 <= one.values[0] <= 10
            case _:
                assert one in {"1", "2", "tie", "correct", "incorrect"} | {level for some in LEVELS for level in some}
    assert all(verdicts.tagged_answer(text, rule) in text for rule in get_args(verdicts.TagRule))
    scores, reason = split_review(text)
    assert text.endswith(reason)
    assert scores is None or isinstance(parse_pair(text, (-1e400, 1e400)), Scores | Unparsed)


def check_final_answers(text):
    for task in get_args(short_answers.Task):
        for finished in (True, False):
            found = short_answers.final_answer(text, task, finished=finished)
            if found is not None:
                assert short_answers.canonical(found, task) == found
    number = short_answers.canonical_number(text)
    assert number is None or short_answers.canonical_number(number) == number or len(number) > 50
    for normalised in (
        short_answers.hotpot_normalised,
        short_answers.strictly_normalised,
        short_answers.drop_normalised,
    ):
        normalised(text)
    for rules in ("hotpotqa", "strict"):
        assert short_answers.exact_match(text, [(text,)], rules)
    assert "".join(part for one in read_gold(text) for part in one).strip() in text or "<" in text


def test_replies(fuzz):
    def check(text):
        check_reply(text)
        check_final_answers(text)

    fuzz(REPLIES, check)


MARKERS = ("[The End of Assistant {n}'s Answer]", "### Response:", "[Question]", "<ans>", "</s>", "Example {n}:")
HOSTILE = fuzzing.texts(
    *("[The End of Assistant 1's Answer]", "[the  end of", " assistant", " 12", "'s answer", "]", "[", "###", "#"),
    *("Response:", "<", "/s>", "<|im_end|>", "［", "Ｑ", "\u0301", "\u200b", "\u00ad", " ", "\t", "\n", "‘", "E", "x"),
    "1",
)


def test_hostile_text(fuzz):
    sanitizing = Sanitizer(MARKERS), Sanitizer(MARKERS[:3])  # those that all begin with a bracket or hash go faster

    def check(text):
        for sanitize in sanitizing:
            sanitized, found = sanitize(text)
            assert (sanitized != text) == (found > 0)
            assert sanitize(sanitized) == (sanitized, 0), "a marker is left, or made"

    fuzz(HOSTILE, check)


LETTERS = MarkedReply(before="[[", after="]]", labels={"Correct": "1", "Incorrect": "2"})
READERS = {
    "brackets": lambda text: verdicts.read_verdict(text, WORDS[0]),
    "brackets only": lambda text: verdicts.read_verdict(text, WORDS[0], brackets_only=True),
    "tags": verdicts.read_label,
    "levels": lambda text: verdicts.parse_level(text, ("correct", "incorrect")),
    "marked": LETTERS,
}
FORMS = {
    "brackets": "[[{}]]", "brackets only": "[[{}]]", "tags": "<ans>{}</ans>", "levels": "Answer: {}",
    "marked": "[[{}]]",
}  # fmt: skip
LABELS = {"1": "correct", "2": "incorrect"}

AROUND = fuzzing.texts(
    *("[[Correct]]", "[[Incorrect]]", "[[", "]]", "[Correct]", "Correct", "incorrect", "<ans>CORRECT</ans>", "<ans>"),
    *("Answer: correct", "Answer：", "Final verdict: ", "final answer", "Final score is", "My final decision"),
    *("Verdict:", "not ", "n't ", "I would have written ", "Had it said 42, ", "if it were so, ", "but ", "Wait, "),
    *("Note: ", "> ", "\n", "\n\n", "\r\n", " ", ". ", "**", "`", '"', "“", "”", "（", "）", "：", "。", "\u2028"),
    *("\u0130", "ß", "### "),
)
NEUTRAL = fuzzing.texts(
    "The sum is 41", "it fails", ". ", "\n", "\n\n", "so ", "**", "- ", "1.", "(x)", "\t", "；", "ß"
)


def label_of(result):
    if isinstance(result, Unparsed):
        return None
    label = result.label if isinstance(result, verdicts.StatedVerdict) else result
    return LABELS.get(label, label)


def test_verdicts(fuzz):
    def check(given):
        around, neutral, grammar, said = given
        read, form = READERS[grammar], FORMS[grammar]
        other = "Correct" if said == "Incorrect" else "Incorrect"
        for text in (around, neutral):
            found = read(text)
            if isinstance(found, Unparsed):
                assert found.text == text
                assert found.why
            elif isinstance(found, verdicts.StatedVerdict):
                assert text[found.position :].startswith(found.written)
        # a verdict stated as final behind anything: that one, or a failure
        assert label_of(read(f"{around}\n\nFinal verdict: {form.format(said)}")) in (said.lower(), None)
        # in a text that says nothing else it is read; together with the other one it is not, unless stated as final
        assert label_of(read(f"{neutral}\n\n{form.format(said)}")) == said.lower()
        both = f"{neutral}\n\n{form.format(other)}\n\n{neutral}\n\n"
        assert label_of(read(f"{both}{form.format(said)}")) is None
        assert label_of(read(f"{both}Final verdict: {form.format(said)}")) == said.lower()

    words = st.sampled_from(("Correct", "Incorrect"))
    fuzz(st.tuples(AROUND, NEUTRAL, st.sampled_from(sorted(READERS)), words), check)


def test_what_is_found_and_what_counts(fuzz):
    def check(text):
        found = verdicts.unmarked_verdicts(text, {"correct": "correct", "incorrect": "incorrect"})
        result = verdicts.settled(text, found, "none")
        assert isinstance(result, Unparsed) or result in [statement.verdict for statement in found]

    fuzz(AROUND, check)


THOUGHT = fuzzing.texts(
    *("<think>", "</think>", "[THINK]", "[/THINK]", "`</think>`", "analysis", "assistantfinal", "assistantcommentary"),
    *("<|channel|>", "<|message|>", "<|start|>assistant", "<|end|>", "<|return|>", "<|channel|>final<|message|>"),
    *("8 6", "9 2\n", "writes ", ". ", "\n", " ", "[[1]]", ":", ",", "\u2028", "ß"),
)
BLOCKS = {
    "tags": "<think>\n{}\n</think>\n\n",
    "Mistral": "[THINK]{}\n[/THINK]\n",
    "Harmony": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "stripped": "analysisSo {}assistantfinal",
}


END = re.compile(r"<\|[a-z]+\|>")


def test_thinking(fuzz):
    def check(given):
        thought, form = given
        for bare in (True, False):
            found = separate(thought, bare=bare)
            rest = thought.removeprefix(found.block + found.reply)
            assert thought == found.block + found.reply + rest
            assert set(END.findall(rest)) <= {"<|return|>", "<|end|>"}
            assert END.sub("", rest) == ""
            assert found.closed or not found.reply
        reply_so_far(thought)
        # whatever is thought, what stands behind the end is the reply
        assert separate(f"{BLOCKS[form].format(thought)}3 8\nSo.").reply == "3 8\nSo."
        plain = "".join(sign for sign in thought if sign not in "<>[]|/").replace("assistantfinal", "")
        unfinished = BLOCKS[form].format("\0").partition("\0")[0] + plain
        assert not separate(unfinished).closed

    fuzz(st.tuples(THOUGHT, st.sampled_from(sorted(BLOCKS))), check)
