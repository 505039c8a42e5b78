"""What fuzzing found, one plain case each."""

import gzip
import json
import subprocess
import sys

import pytest

from judgelm.data.labelled_pair import judgelm_row
from judgelm.data.labelled_set import read_labelled
from judgelm.data.readers.files import read_rows
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import read_qa
from judgelm.data.swap_names import find_quotes, swap_names
from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import split_adapter
from judgelm.engines.openai.rate_limits import stated_pause_s
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError, ModelError
from judgelm.parsing.scores import parse_pair, parse_scores
from judgelm.parsing.short_answers import final_answer
from judgelm.parsing.verdicts import parse_level, tagged_answer
from judgelm.records import Judgment, PairVerdict, Unparsed
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support import fuzzing


def test_an_answers_number_of_thousands_of_digits_is_no_name():
    assert isinstance(parse_scores(f"Assistant {'1' * 5_000}: 8, Assistant 2: 6, Assistant 3: 5", 3), Unparsed)


@pytest.mark.parametrize("line", ["7.5\u200b8 6", "8**8 6", "8.**8 6", "1_\ufeff_0 8", "8\u200b\u200b8 6", "7*.5 6"])
def test_what_stands_within_a_number_makes_no_other_number_of_it(line):
    assert parse_pair(line) == Unparsed("off_grammar", line, "the first line has 3 numbers, not 2")


def test_a_solution_that_announces_its_answer_for_ever_is_read_in_no_time():
    with fuzzing.limited_cpu():
        assert final_answer("the answer is " * 20_000, "number") is None
    assert final_answer("the answer is 7. " + "the answer is " * 50, "number") == "7"


def test_blanks_and_tags_that_never_close_cost_no_time():
    with fuzzing.limited_cpu():
        assert isinstance(parse_scores(f"({' ' * 30_000}x", 3), Unparsed)
        assert tagged_answer("<ans>" * 20_000, "last") == ""
        assert swap_names(f"Assistant 1{' ' * 30_000}2", (1, 0)).mentions == 1
        assert [quote.span() for quote in find_quotes("“" * 100_000 + '"“a"')] == [(100_000, 100_004)]
        assert parse_level("Answer: " * 40_000 + "good", ("good", "bad")) == "good"
        assert swap_names("“a” Assistant 1 is better. " * 8_000, (1, 0)).mentions == 8_000
        assert swap_names("8 6 8:\n" * 8_000, (1, 0)).mentions == 0
        assert swap_names("Assistant 1 and " + "the first one " * 8_000, (1, 0)).code == "unnamed_ordinal"


def test_a_pause_of_many_digits_that_is_none_is_seen_in_no_time():
    with fuzzing.limited_cpu():
        assert stated_pause_s({"retry-after": "1" * 200 + "x"}) is None
    assert stated_pause_s({"retry-after": "1h6m0.5s"}) == 3960.5


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "5"])
def test_json_nested_beyond_measure_or_of_another_kind_is_refused(tmp_path, content):
    script, adapter = tmp_path / "script.json", tmp_path / "adapter"
    adapter.mkdir()
    for path in (script, adapter / "adapter_config.json"):
        path.write_text(content)
    with pytest.raises(ModelError, match=r"script\.json: "):
        ScriptedEngine.load(EngineOptions(model=str(script)))
    with pytest.raises(ModelError, match=r"adapter_config\.json: invalid adapter config: "):
        split_adapter(EngineOptions(model=str(adapter)))


@pytest.mark.parametrize("votes", [5, ["ab", "c"], [1], "x"])
def test_a_panels_votes_of_another_kind_are_no_judgment(votes):
    row = judgment_row(Judgment(sample_id="a", mode="pair", verdict=PairVerdict(winner="1"), shown=()))
    with pytest.raises(ValueError, match=r"TypeError|ValueError"):
        judgment_from_row(row | {"votes": votes})


def test_half_a_surrogate_in_a_category_is_written_as_json_writes_it(tmp_path):
    row = {"v1_0": {"question": "q", "answer": "a", "imagename": "i.png", "capability": ["ocr\ud800"]}}
    (tmp_path / "mm-vet.json").write_text(json.dumps(row))
    import_benchmark("mm-vet", [str(tmp_path / "mm-vet.json")], tmp_path / "out.jsonl")
    protocol = (tmp_path / "out.protocol.json").read_text(encoding="utf-8")
    assert "ocr\\ud800" in protocol
    assert json.loads(protocol)["categories"] == {"ocr\ud800": 1}


def test_whatever_yaml_stumbles_over_is_one_error():
    """In a process of its own: schemathesis takes dates for texts, in every loader of the process that imports it."""
    texts = ["!!int ''", "2024-13-45", "[" * 5_000, "!!timestamp x", "!!bool x", "a: [", "\0"]
    parse = "import json, sys\nfrom judgelm.errors import ConfigError\nfrom judgelm.yaml_files import parse_yaml\n"
    parse += "for text in json.load(sys.stdin):\n    try:\n        print(repr(parse_yaml(text)))\n"
    parse += "    except ConfigError:\n        print('refused')\n"
    done = subprocess.run([sys.executable, "-c", parse], input=json.dumps(texts), capture_output=True, text=True)
    assert done.stdout.split("\n") == ["refused"] * len(texts) + [""], done.stderr


def test_a_winners_reason_that_begins_like_scores_stays_a_reason(tmp_path):
    path = tmp_path / "pandalm.jsonl"
    inputs = {"instruction": "q", "response1": "a", "response2": "b"}
    outputs = {"evaluation_result": "1", "evaluation_reason": "8 6\nbecause"}
    path.write_text(json.dumps({"inputs": inputs, "outputs": outputs}) + "\n")
    [pair] = read_labelled(str(path), source="s")
    path.write_text(json.dumps(judgelm_row(pair)) + "\n")
    [again] = read_labelled(str(path), source="s")
    assert (again.plain.winner, again.plain.scores, again.plain.reason) == (1, None, "8 6\nbecause")


def test_a_header_of_thousands_of_columns_is_checked_in_no_time(tmp_path):
    path = tmp_path / "wide.tsv"
    path.write_text("\t".join([*(f"c{number}" for number in range(60_000)), "c7"]) + "\n1\n")
    with fuzzing.limited_cpu(), pytest.raises(InputError, match=r'wide\.tsv:1: column "c7" appears twice'):
        list(read_rows(str(path)))


def test_damage_inside_a_gzip_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "q.json.gz"
    content = bytearray(gzip.compress(json.dumps({"q": "x" * 50}).encode()))
    content[12] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"q\.json\.gz"):
        list(read_qa(str(path)))
