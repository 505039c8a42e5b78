"""Rows as a terminal shows them: every token, and nothing but what training sees."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from benchmarks.row_preview import preview_row, preview_swap, render_row
from judgelm.data.labelled_pair import LabelledPair
from judgelm.errors import ConfigError
from judgelm.records import Label, Sample
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support.processes import run_command


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def sentencepiece():
    """A tokenizer like Llama 2's: blanks are part of words, odd characters fall apart into bytes, `<s>` comes first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence(list(words))
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(["what is a fox [Q] [1] [2] [S] 8 6 the first can jump"] * 9, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def pair(answers=("a fox", "a dog"), scores=(8, 6), reason="Assistant 1 can jump", **more):
    sample = Sample(id="1", question="what is it", answers=answers)
    label = Label(sample_id="1", winner=1, scores=scores, reason=reason)
    return LabelledPair(sample=sample, plain=label, referenced=None, **more)


def options(**more):
    return RowOptions(**({"template": "judgelm-compact", "window": 300, "reference_drop_prob": 0.0} | more))


HARD = pair(
    ("naïve 日本語 👩‍👩‍👧 \ufffd end", "tabs\tand\r\nlines  and   blanks"), reason="Assistant 1 — “ja” 👍🏽\n\nend "
)


@pytest.mark.parametrize("name", ["tokenizer", "sentencepiece"])
@pytest.mark.parametrize("one", [pair(), HARD], ids=["plain", "hard"])
def test_shown_tokens_joined_are_the_rows_text(request, name, one):
    tokenizer = request.getfixturevalue(name)
    made = SFTRowBuilder(tokenizer, options()).build(replace(one, referenced=None))
    row = preview_row(one, tokenizer, options())
    assert "".join(token.text for token in row.tokens) == tokenizer.decode(made.input_ids)
    assert row.target == tokenizer.decode(made.input_ids[made.labels >= 0])
    assert row.prompt_tokens + row.loss_tokens == len(made.input_ids)


def test_a_row_cannot_steer_the_terminal(tokenizer):
    row = preview_row(pair(("a \x1b[31m\u202efox\x07", "b")), tokenizer, options())
    text = render_row(row, plain=True).plain
    assert r"\x1b[31m\u202efox\x07" in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)


def test_a_cut_answer_is_marked_where_it_ends(tokenizer):
    row = preview_row(pair((" fox" * 300, "a dog")), tokenizer, options(window=200))
    [what] = row.cuts.values()
    text = render_row(row, plain=True).plain
    # 300 words of 4 characters without the first blank, less what is still there
    assert what == f"answer 1 is cut by {1199 - (4 * text.count('fox') - 1):,} characters"
    assert f"fox[✂ {what}]⏎\n[2] a dog" in text
    both = preview_row(pair((" fox" * 300, "big dog" * 90)), tokenizer, options(window=200))
    assert [what.split(" is cut")[0] for what in both.cuts.values()] == ["answer 1", "answer 2"]


def test_a_swapped_row_is_shown_after_its_own(tokenizer):
    preview = preview_swap(pair(), tokenizer, options())
    before, after = (render_row(row, plain=True).plain for row in (preview.before, preview.after))
    assert before.endswith("[1] a fox⏎\n[2] a dog⏎\n[S]⟦8 6⏎\nAssistant 1 can jump⟨</s>⟩⟧")
    assert after.endswith("[1] a dog⏎\n[2] a fox⏎\n[S]⟦6 8⏎\nAssistant 2 can jump⟨</s>⟩⟧")
    assert preview.ambiguous == ()
    preview = preview_swap(pair(reason="The former is better than the latter."), tokenizer, options())
    assert [problem.code for problem in preview.ambiguous] == ["former_latter"]
    assert preview.after.target == "6 8\n"
    with pytest.raises(ConfigError, match="only a pair can be swapped"):
        preview_swap(pair(("a", "b", "c")), tokenizer, options())


ROW = {
    "question_body": "what", "answer1_body": "a fox", "answer2_body": "a dog", "score": [8, 6],
    "text": "8 6\nAssistant 1 can jump", "reference": {"text": "a big fox"}, "score_w_reference": [3, 9],
    "text_w_reference": "3 9\nThe former is better than the latter.",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_recipe_shows_a_row_and_its_swap_with_colours_or_without(tmp_path, tiny_model, no_color):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("not json\n" + "".join(json.dumps(ROW | {"question_id": str(n)}) + "\n" for n in range(1, 31)))
    command = (sys.executable, Path(__file__).parents[2] / "data_tools/show.py", rows, "--model", tiny_model)
    options = ("--id", 7, "--swap", "--template", "judgelm-compact", "--window", 300)
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": no_color}
    done = run_command(*command, *options, env=os.environ | colours)
    text = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)  # bold and dim are no colours
    assert "reference shown; nothing is cut" in text
    assert "[R] a big fox⏎" in text
    assert "The reason is ambiguous (former_latter)" in text
    assert ("⟦3 9" in text, "\x1b[32m" in done.stdout) == (bool(no_color), not no_color)
