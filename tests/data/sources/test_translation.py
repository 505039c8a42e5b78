"""WMT side by side: tables in the published shape."""

import pytest

from judgelm.data.sources.importer import import_benchmark
from judgelm.errors import InputError
from tests.support import benchmark_files
from tests.support.benchmark_files import published

HEADER = "system\tdoc\tdocSegId\tglobalSegId\trater\tsource\ttarget\tcategory\tseverity\tmetadata\t# a remark"


def mark(system, rater, category="No-error", severity="No-error", target="Ein <v>Satz</v>."):
    return f'{system}\td1\t1\t1\t{rater}\tA "sentence".\t{target}\t{category}\t{severity}\t{{"a": 1}}'


def imported(tmp_path, lines, file="sxs_ende.tsv"):
    (tmp_path / file).write_text("\n".join([HEADER, *lines]) + "\n")
    return benchmark_files.imported("wmt-side-by-side", tmp_path, tmp_path / file)


def test_each_translator_prefers_the_smaller_sum_of_weights(tmp_path):
    lines = [
        mark("ONLINE-A", "r1", "Accuracy/Mistranslation", "Minor"),  # 1 + 0.1
        mark("ONLINE-A", "r1", "Fluency/Punctuation", "Minor"),
        mark("ONLINE-Y", "r1", "Style/Unnatural or awkward", "Major"),  # 5: the first is better
        mark("ONLINE-A", "r2"),
        mark("ONLINE-Y", "r2", "Source issue", "Major"),  # no error of the translation: a tie
        mark("ONLINE-A", "r3", "Accuracy/Creative Reinterpretation", "Minor"),  # weighs nothing
        mark("ONLINE-Y", "r3", "Non-translation!", "Major"),
    ]
    _, [row] = imported(tmp_path, lines)
    assert (row["votes"], row["winner"]) == ([1, "tie", 1], 1)
    assert row["answer_1"] == "Ein Satz."
    assert row["question"] == 'Translate this text from English to German:\n\nA "sentence".'
    assert row["answer_models"] == ["ONLINE-A", "ONLINE-Y"]


def test_without_a_majority_the_label_is_a_tie(tmp_path):
    lines = [mark("ONLINE-A", "r1"), mark("ONLINE-Y", "r1", severity="Major", category="Other")]
    lines += [mark("ONLINE-A", "r2", severity="Major", category="Other"), mark("ONLINE-Y", "r2")]
    _, [row] = imported(tmp_path, lines)
    assert (row["votes"], row["winner"]) == ([1, 2], "tie")


def test_attention_checks_are_neither_counted_nor_shown(tmp_path):
    lines = [mark("ONLINE-A", "r1", "Found", "HOTW-test", "Spoilt."), mark("ONLINE-A", "r1"), mark("ONLINE-Y", "r1")]
    _, [row] = imported(tmp_path, lines)
    assert (row["answer_1"], row["winner"]) == ("Ein Satz.", "tie")


def test_systems_that_were_not_shown_together_are_no_pair(tmp_path):
    lines = [mark("ONLINE-A", "r1"), mark("ONLINE-M", "r1")]
    with pytest.raises(InputError, match="no row can be used"):
        imported(tmp_path, lines)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="neither ende nor zhen"):
        imported(tmp_path, [mark("ONLINE-A", "r1")], "other.tsv")
    (tmp_path / "zhen.tsv").write_text("system\tdoc\n")
    with pytest.raises(InputError, match="it lacks docSegId"):
        import_benchmark("wmt-side-by-side", [str(tmp_path / "zhen.tsv")], tmp_path / "o.jsonl")


def test_the_published_files(tmp_path):
    names = [f"sxs_mqm_generalMT2023_{pair}.3ratingsPerSegment.tsv" for pair in ("ende", "zhen")]
    done = import_benchmark("wmt-side-by-side", published("wmt", *names), tmp_path / "out.jsonl")
    # five pairs of systems for each of 104 and 377 texts
    assert done.categories == {"English to German": 520, "Chinese to English": 1885}
