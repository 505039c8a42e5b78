"""Training rows: the same tokens that a judge reads at test time, and a loss in the right places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from judgelm.data.labelled_pair import LabelledPair
from judgelm.prompts.catalog import get_template
from judgelm.prompts.truncation import Truncator
from judgelm.records import Label, Sample
from judgelm.training.rows.builder import IGNORED, RowCounts, RowOptions
from judgelm.training.rows.pairs import JudgingPromptBuilder, JudgingPromptOptions, PairRowBuilder, PairRowOptions
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support.recipe_runs import write_rows

SAME = "a big fox jumps " * 100
SINGLE = Sample(id="s", question="what is it", answers=("a fox",), reference="a big fox")
GRADE = Label(sample_id="s", winner=None, scores=(7,))
THREE = Sample(id="m", question="what is it", answers=("a fox", "a dog", "a cat"))
RANKED = Label(sample_id="m", winner=None, scores=(8, 6, 1.5), reason="the fox can jump")
SAMPLE = Sample(id="1", question="what is it", answers=("a fox", "a dog"), reference="a big fox")
PLAIN = Label(sample_id="1", winner=1, scores=(8, 6), reason="the first can jump")
REFERENCED = Label(sample_id="1", winner=2, scores=(2, 9.5), reason="the dog is lazy")


def builder(tokenizer, **options):
    return SFTRowBuilder(tokenizer, RowOptions(**({"template": "judgelm-compact", "window": 200} | options)))


def build(rows, sample, plain, referenced):
    return rows.build(LabelledPair(sample=sample, plain=plain, referenced=referenced))


def halves(row, tokenizer):
    """Prompt and target of a row as text, by where the loss is."""
    prompt = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label == IGNORED]
    target = [token for token, label in zip(row.input_ids, row.labels, strict=True) if label != IGNORED]
    assert list(row.input_ids) == prompt + target
    return tokenizer.decode(prompt), tokenizer.decode(target)


GIVEN, WITH_REFERENCE = "[Q] what is it\n[1] a fox\n[2] a dog\n[S]", "[R] a big fox\n"


@pytest.mark.parametrize(
    ("options", "referenced", "shown", "target"),
    [
        ({"reference_drop_prob": 1.0}, REFERENCED, False, "8 6\nthe first can jump</s>"),
        ({"reference_drop_prob": 0.0}, REFERENCED, True, "2 9.5\nthe dog is lazy</s>"),
        ({"reference_drop_prob": 0.0}, None, False, "8 6\nthe first can jump</s>"),  # nobody judged with it
        ({"reason_prob": 0.0}, None, False, "8 6\n"),  # a bare score line has no end
    ],
)
def test_prompt_and_target_change_together_with_the_reference(tokenizer, options, referenced, shown, target):
    prompt, found = halves(build(builder(tokenizer, **options), SAMPLE, PLAIN, referenced), tokenizer)
    assert ((WITH_REFERENCE in prompt), prompt.replace(WITH_REFERENCE, "")) == (shown, GIVEN)
    assert found == target


def test_prompt_tokens_are_those_of_a_batch_run(tokenizer):
    row = build(builder(tokenizer), SAMPLE, PLAIN, None)
    tokenized = Truncator(tokenizer, 200).truncate(get_template("judgelm-compact").render(SAMPLE, (0, 1), None), 16)
    assert list(row.input_ids[: len(tokenized.ids)]) == tokenized.ids


def test_a_special_token_in_a_reason_is_text(tokenizer):
    label = Label(sample_id="1", winner=1, scores=(8, 6), reason="it ends with </s> here")
    row = build(builder(tokenizer), SAMPLE, label, None)
    assert list(row.input_ids).count(tokenizer.eos_token_id) == 1


def test_a_long_answer_is_cut_and_the_target_kept_whole(tokenizer):
    rows = builder(tokenizer, window=120, reference_drop_prob=1.0)
    long = Sample(id="1", question="what", answers=(" big" * 300, "a dog"))
    row = build(rows, long, PLAIN, None)
    assert len(row.input_ids) <= 120
    assert halves(row, tokenizer)[1] == "8 6\nthe first can jump</s>"
    assert rows.counts.cut == 1


@pytest.mark.parametrize(
    ("sample", "scores", "line"),
    [
        (SAMPLE, (8, 6), "8 6\n"),
        (Sample(id="s", question="what", answers=(" big" * 300,), reference="a fox"), (7,), " 7\n"),
    ],
)
def test_a_reason_over_half_the_window_is_cut_without_an_end(tokenizer, sample, scores, line):
    label = Label(sample_id="1", winner=None, scores=scores, reason="fox " * 200)
    row = build(builder(tokenizer, window=120), sample, label, None)
    target = halves(row, tokenizer)[1]
    assert target.startswith(f"{line}fox fox")
    assert not target.endswith("</s>")
    assert len(row.input_ids) <= 120


@pytest.mark.parametrize(
    ("sample", "label", "reason"),
    [
        (SAMPLE, None, "no teacher scores"),
        (SAMPLE, Label(sample_id="1", winner=1), "no teacher scores"),
        (SAMPLE, Label(sample_id="1", winner=2, scores=(0, 9)), "scores outside the scale"),
        (Sample(id="1", question=" big" * 300, answers=("a", "b")), PLAIN, "too long"),
        (Sample(id="1", question="q", answers=(f"{SAME}over", f"{SAME}lazy")), PLAIN, "equal after cut"),
        (Sample(id="s", question="q", answers=("a",)), GRADE, "single answer without a reference"),
        (SINGLE, None, "no teacher scores"),
        (SINGLE, Label(sample_id="s", winner=None, scores=(11,)), "scores outside the scale"),
        (THREE, Label(sample_id="m", winner=1, scores=(8, 6)), "not one score for each answer"),
    ],
)
def test_what_cannot_be_learned_is_left_out_and_counted(tokenizer, sample, label, reason):
    rows = builder(tokenizer)
    assert build(rows, sample, label, None) is None
    assert rows.counts.left_out == {reason: 1}


@pytest.mark.parametrize("kind", [PairRowBuilder, JudgingPromptBuilder])
def test_other_rows_leave_out_pairs_that_are_equal_after_the_cut_too(tokenizer, kind):
    options = {PairRowBuilder: PairRowOptions, JudgingPromptBuilder: JudgingPromptOptions}[kind]
    room = {"reply_tokens": 32} if kind is JudgingPromptBuilder else {}
    rows = kind(tokenizer, options(template="judgelm-compact", window=200, **room))
    label = Label(sample_id="1", winner=1, scores=(8, 6), preference=0.9)
    answers = (f"{SAME}over", f"{SAME}lazy")
    assert build(rows, Sample(id="1", question="q", answers=answers), label, None) is None
    assert rows.counts.left_out == {"equal after cut": 1}
    assert build(rows, Sample(id="2", question="q", answers=(f"over {SAME}", f"lazy {SAME}")), label, None) is not None


def test_draws_depend_on_seed_and_id_alone(tokenizer):
    def dropped(seed, ids):
        rows = builder(tokenizer, reference_drop_prob=0.5, seed=seed)
        samples = [Sample(id=name, question="q", answers=("a", "b"), reference="r") for name in ids]
        return {s.id: "[R]" not in tokenizer.decode(build(rows, s, PLAIN, REFERENCED).input_ids) for s in samples}

    ids = [str(i) for i in range(200)]
    assert dropped(0, ids) == dropped(0, ids[::-1])
    assert dropped(0, ids) != dropped(1, ids)
    assert 70 < sum(dropped(0, ids).values()) < 130  # 100 expected, standard deviation 7


def test_a_single_answer_stands_beside_its_reference_and_only_its_score_is_learned(tokenizer):
    rows = builder(tokenizer, reference_drop_prob=1.0)  # which is of no concern here
    prompt, target = halves(build(rows, SINGLE, GRADE, GRADE), tokenizer)
    assert (prompt, target) == ("[Q] what is it\n[1] a big fox\n[2] a fox\n[S]10", " 7\n")
    assert rows.counts.kinds == {"single": 1}
    assert rows.counts.with_reference == 0  # no block of its own


def test_the_forced_score_is_the_highest_of_the_judges_scale(tokenizer):
    row = build(builder(tokenizer, scale=(0, 5)), SINGLE, Label(sample_id="s", winner=None, scores=(4,)), None)
    assert halves(row, tokenizer)[0].endswith("\n[S]5")


@pytest.mark.parametrize("template", ["judgelm-v1", "judgelm-paper", "judgelm-chat", "judgelm-compact"])
@given(score=st.integers(4, 40).map(lambda quarters: quarters / 4))
def test_a_single_answers_row_begins_with_the_tokens_that_are_continued_at_test_time(tokenizer, template, score):
    chat = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    chat.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    row = build(
        builder(chat, template=template, window=2000), SINGLE, Label(sample_id="s", winner=None, scores=(score,)), None
    )
    prompt = get_template(template).render(SINGLE, (0,), SINGLE.reference)
    tokenized = Truncator(chat, 2000).truncate(prompt, 16)
    assert tokenized.text.endswith("10")
    assert list(row.input_ids[: len(tokenized.ids)]) == tokenized.ids
    assert (row.labels[: len(tokenized.ids)] == IGNORED).all()
    assert chat.decode(row.input_ids[len(tokenized.ids) :]) == f" {score:g}\n"


def test_of_three_answers_a_score_each_and_the_reason_are_learned(tokenizer):
    rows = builder(tokenizer)
    prompt, target = halves(build(rows, THREE, RANKED, None), tokenizer)
    assert prompt == "[Q] what is it\n[1] a fox\n[2] a dog\n[3] a cat\n[S]"
    assert target == "8 6 1.5\nthe fox can jump</s>"
    assert (rows.counts.kinds, rows.counts.step) == ({"multi": 1}, 0.5)


def test_rows_of_every_kind_are_read_from_any_file_with_both_judgments(tokenizer, tmp_path):
    judgelm = {
        "question_id": "1", "question_body": "what", "answer1_body": "a fox", "answer2_body": "a dog",
        "score": [8, 6], "text": "8 6\nbecause", "reference": {"text": "a fox"},
        "score_w_reference": [9, 2], "text_w_reference": "9 2\nit can",
    }  # fmt: skip
    files = {
        "single": [{"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"}] * 2,
        "judgelm": [judgelm],
        "mixed": [
            {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5], "reason": "it can"},
            {"question": "q", "answers": ["a", "b"], "scores": [8, 6]},
            {"question": "q", "answers": ["a"], "scores": [8], "reference": "r"},
            {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6]},
        ],
    }
    paths = [write_rows(tmp_path / f"{name}.jsonl", found) for name, found in files.items()]
    (tmp_path / "judgelm.jsonl").open("a").write("torn\n")
    rows = builder(tokenizer, reference_drop_prob=0.0)
    targets = [halves(row, tokenizer)[1] for row in rows.read(paths)]
    assert targets == [" 7\n", " 7\n", "9 2\nit can</s>", "8 6 5\nit can</s>", "8 6\n", " 8\n"]
    assert (rows.counts.kinds, rows.counts.made) == ({"single": 3, "pair": 2, "multi": 1}, 6)
    assert rows.counts.left_out == {"unusable line": 1, "unreadable label": 1}


@pytest.mark.parametrize(("swap_prob", "line"), [(0.0, "4 7"), (1.0, "7 4")])
def test_a_preference_is_learned_as_its_scores_in_either_order(tokenizer, tmp_path, swap_prob, line):
    path = write_rows(tmp_path / "rows.jsonl", [{"question": "q", "answers": ["a", "b"], "preference": 0.25}])
    [row] = builder(tokenizer, swap_prob=swap_prob).read([path])
    assert halves(row, tokenizer)[1].strip() == line


@pytest.mark.parametrize(
    ("scores", "step"),
    [((), 1), ((8, 6, 1, 10), 1), ((8, 6, 8.5), 0.5), ((8.25, 6), 0.25), ((8.1, 6), 0.1), ((8.33, 6), 0.1)],
)
def test_the_step_is_the_widest_that_all_scores_share(scores, step):
    assert RowCounts(scores=set(scores)).step == step


def test_the_loss_can_count_the_prompt_too(tokenizer):
    row = build(builder(tokenizer, loss_on_prompt=True), SAMPLE, PLAIN, None)
    assert (row.labels == row.input_ids).all()
