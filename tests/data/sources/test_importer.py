"""What every import writes, and what it refuses."""

import json

import pytest

from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.registry import benchmarks
from judgelm.data.sources.source import protocol_of
from judgelm.errors import ConfigError, InputError, RunError

ROW = {"scenario": "chitchat", "label": 0, "prompt": "Hi.", "response 1": "Hello.", "response 2": "Yes?"}


@pytest.fixture
def auto_j(tmp_path):
    path = tmp_path / "testdata_pairwise.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return str(path)


def test_the_protocol_stands_beside_the_rows(auto_j, tmp_path):
    done = import_benchmark("auto-j", [auto_j], tmp_path / "out.jsonl")
    assert [path.name for path in done.paths] == ["out.jsonl", "out.protocol.json"]
    protocol = json.loads((tmp_path / "out.protocol.json").read_text())
    assert protocol["protocol"] == protocol_of(benchmarks()["auto-j"]).metric
    assert (protocol["rows"], protocol["labels"], protocol["rejected"]) == (1, {"1": 1}, 0)
    assert protocol["files"][0]["name"] == "testdata_pairwise.jsonl"
    assert len(protocol["files"][0]["sha256"]) == 64
    assert str(tmp_path) not in json.dumps(protocol)


def test_an_earlier_import_is_replaced_only_on_request_and_by_a_whole_one(auto_j, tmp_path):
    out = tmp_path / "out.jsonl"
    import_benchmark("auto-j", [auto_j], out)
    before = out.read_bytes()
    with pytest.raises(RunError, match="already exists; use --overwrite"):
        import_benchmark("auto-j", [auto_j], out)
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InputError):
        import_benchmark("auto-j", [str(tmp_path / "other.jsonl")], out, overwrite=True)
    assert out.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    assert import_benchmark("auto-j", [auto_j], out, overwrite=True).rows == 1


def test_a_file_given_twice_is_refused(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = {"pair_id": "p", "source": "livecodebench", "question": "q", "response_A": "a", "response_B": "b"}
    path.write_text(json.dumps(row | {"label": "A>B"}) + "\n")
    with pytest.raises(InputError, match="repeated id 'p'"):
        import_benchmark("judgebench", [str(path), str(path)], tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("name", "out", "error", "finding"),
    [
        ("pandaml", "out.jsonl", ConfigError, "did you mean pandalm"),
        ("auto-j", "out.json", ConfigError, "expected the extension .jsonl"),
        ("auto-j", "testdata_pairwise.jsonl", ConfigError, "would overwrite the input"),
        ("auto-j", "nowhere/out.jsonl", RunError, "no such folder"),
    ],
)
def test_what_cannot_be_is_refused(auto_j, tmp_path, name, out, error, finding):
    with pytest.raises(error, match=finding):
        import_benchmark(name, [auto_j], tmp_path / out)


@pytest.mark.parametrize(
    ("files", "finding"), [([], r"expected testdata_pairwise\.jsonl"), (["-"], "save it as a file first")]
)
def test_no_file_and_standard_input_are_refused(tmp_path, files, finding):
    with pytest.raises(ConfigError, match=finding):
        import_benchmark("auto-j", files, tmp_path / "out.jsonl")
