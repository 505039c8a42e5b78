"""The rows of `train/grpo.py`: both orders of a pair as its mode shows them, side by side."""

import json

import pytest
from transformers import AutoTokenizer

from judgelm.errors import InputError
from judgelm.modes import Reasoned
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training.grpo import in_both_orders
from judgelm.training.rows.builder import FastTokenizer
from judgelm.training.rows.dataset import Schedule, build_epochs
from judgelm.training.rows.preferences import JudgingPromptBuilder, JudgingPromptOptions

TEMPLATE = "reasoned-compact"
OPTIONS = JudgingPromptOptions(template=TEMPLATE, window=200, reply_tokens=64)


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


def write(path, *rows):
    path.write_text("".join(json.dumps({"id": str(i), "question": "q"} | row) + "\n" for i, row in enumerate(rows)))
    return str(path)


def pair(first, second, **label):
    return {"answer_1": first, "answer_2": second} | label


def test_the_prompts_are_those_of_the_mode(tokenizer, tmp_path):
    path = write(tmp_path / "rows.jsonl", pair("a", "b", winner="2"))
    builder = JudgingPromptBuilder(tokenizer, OPTIONS)
    [row] = builder.read([path])
    requests = next(Reasoned(template=TEMPLATE, both_orders=True)(Sample(id="0", question="q", answers=("a", "b"))))
    truncator = Truncator(FastTokenizer(tokenizer), OPTIONS.window)
    texts = [truncator.truncate(request.prompt, OPTIONS.reply_tokens).text for request in requests]
    assert [row.prompt, row.swapped, row.winner] == [*texts, 2]


def test_ties_and_what_does_not_fit_are_left_out_and_counted(tokenizer, tmp_path):
    long = "word " * 300
    path = write(
        tmp_path / "rows.jsonl",
        pair("a", "b", winner="tie"),
        pair("a", "b", preference=0.5),
        {"question": long} | pair("a", "b", winner="1"),
        pair("a", long, preference=0.9),  # is cut
        pair("a", "b", scores=[3, 7]),
    )
    builder = JudgingPromptBuilder(tokenizer, OPTIONS)
    assert [row.winner for row in builder.read([path])] == [1, 2]
    assert dict(builder.counts.left_out) == {"a tie": 2, "too long": 1}
    assert (builder.counts.made, builder.counts.cut) == (2, 1)


def test_a_file_of_ties_is_refused(tokenizer, tmp_path):
    path = write(tmp_path / "rows.jsonl", pair("a", "b", winner="tie"))
    with pytest.raises(InputError, match="no row can be trained on \\(1 a tie\\)"):
        list(JudgingPromptBuilder(tokenizer, OPTIONS).read([path]))


def test_both_orders_stand_side_by_side_and_whole_steps_alone(tokenizer, tmp_path):
    rows = [pair(f"a{index}", "b", winner=str(1 + index % 2)) for index in range(5)]
    schedule = Schedule(epochs=1, steps=None, batch=4, group_by_length=False, seed=0)
    built = build_epochs(
        tokenizer, OPTIONS, [write(tmp_path / "rows.jsonl", *rows)], schedule, tmp_path / "rows", JudgingPromptBuilder
    )
    paired = in_both_orders(built, step=4)
    shown = [paired.dataset[index] for index in range(len(paired.dataset))]
    assert [(row["pair"], row["order"]) for row in shown] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
    ]
    for given, swapped in zip(shown[::2], shown[1::2], strict=True):
        number = int(given["sample_id"])
        assert given["best"] == 1 + number % 2 == 3 - swapped["best"]
        assert f"[1] a{number}\n[2] b" in given["prompt"]
        assert f"[1] b\n[2] a{number}" in swapped["prompt"]
    assert paired.per_epoch == 10
