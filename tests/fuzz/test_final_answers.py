"""The reader of final answers: whatever comes around a verdict, it is read as what it says or not at all."""

import re

from hypothesis import strategies as st

from judgelm.modes.released import MarkedReply
from judgelm.parsing.thinking import reply_so_far, separate
from judgelm.parsing.verdicts import StatedVerdict, parse_level, read_label, read_verdict, settled, unmarked_verdicts
from judgelm.records import Unparsed
from tests.support import fuzzing

WORDS = {"correct": "Correct", "incorrect": "Incorrect"}
LETTERS = MarkedReply(before="[[", after="]]", labels={"Correct": "1", "Incorrect": "2"})
READERS = {
    "brackets": lambda text: read_verdict(text, WORDS),
    "brackets only": lambda text: read_verdict(text, WORDS, brackets_only=True),
    "tags": read_label,
    "levels": lambda text: parse_level(text, ("correct", "incorrect")),
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
    label = result.label if isinstance(result, StatedVerdict) else result
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
            elif isinstance(found, StatedVerdict):
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
        found = unmarked_verdicts(text, {"correct": "correct", "incorrect": "incorrect"})
        result = settled(text, found, "none")
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
