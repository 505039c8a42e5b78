"""`judgelm data build`: a folder with sets, card, manifest and rows left out."""

import json

import pytest
import yaml

from benchmarks.synthetic.pairs import generate


@pytest.fixture
def config(tmp_path):
    rows = list(generate(120, seed=4, split="train"))
    rows[7] = rows[7] | {"text": "error", "text_w_reference": "error"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{torn\n")
    values = {
        "inputs": [str(tmp_path / "rows.jsonl")],
        "out": str(tmp_path / "out"),
        "validation": 0.2,
        "subsets": [30],
    }
    (tmp_path / "build.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "build.yaml"


def test_a_build_writes_sets_card_and_manifest(cli, config, tmp_path):
    code, _, err = cli("judgelm", "data", "build", "--config", config)
    assert code == 0, err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "train.jsonl", "train-30.jsonl", "validation.jsonl", "left_out.jsonl", "README.md", "build.json",
    }  # fmt: skip
    assert "rows read" in err
    assert "121" in err
    manifest = json.loads((tmp_path / "out" / "build.json").read_text())
    counts = manifest["counts"]
    left_out = sum(row["rows"] for what in ("rejected", "dropped") for row in counts[what])
    assert counts["read"]["rows"] == 121 == counts["before"]["pairs"] + left_out
    assert manifest["options"]["swap_prob"] == 0.5
    assert manifest["inputs"][0]["sha"]
    card = (tmp_path / "out" / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert {"split": "validation", "path": "validation.jsonl"} in header["configs"][0]["data_files"]


def test_a_build_deletes_the_sets_of_an_earlier_build(cli, config, tmp_path):
    cli("judgelm", "data", "build", "--config", config)
    code, _, err = cli("judgelm", "data", "build", "--config", config, "subsets=[]", "-q")
    assert (code, err) == (0, "")
    assert not (tmp_path / "out" / "train-30.jsonl").exists()
    assert (tmp_path / "out" / "train.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("swap_prob", "expected KEY=VALUE"),
        ("swapp=1", "unknown option swapp; available"),
        ("inputs=[nowhere]", "nowhere"),
    ],
)
def test_invalid_options_are_refused(cli, config, change, words):
    code, _, err = cli("judgelm", "data", "build", "--config", config, change)
    assert code == 1
    assert words in " ".join(err.split())
