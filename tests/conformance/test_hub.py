"""`judgelm data get` by the real `huggingface_hub` and `datasets` clients, against a hub of files on this machine."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from judgelm.data.sources.public_datasets import dataset_card
from tests.support.hub_server import running_hub

pytestmark = pytest.mark.conformance

NOWHERE = "http://127.0.0.1:9"  # no service listens there
OFFSETBIAS = [
    {"instruction": f"Name prime {n}.", "output_1": "7", "output_2": "8", "label": 1 + n % 2} for n in range(20)
]
HELPSTEER3 = {
    "domain": "code",
    "language": "python",
    "context": [{"role": "user", "content": "Sort it."}],
    "response1": "sorted(x)",
    "response2": "x",
    "overall_preference": -2,
}
MESSAGES = {
    side: [{"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": text}]
    for side, text in (("chosen", "7"), ("rejected", "8"))
}
HELPSTEER3_README = """---
license: cc-by-4.0
configs:
- config_name: preference
  default: true
  data_files:
  - split: train
    path: preference/train.jsonl.gz
  - split: validation
    path: preference/validation.jsonl.gz
- config_name: feedback
  data_files:
  - split: train
    path: feedback/train.jsonl.gz
---
"""


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(tmp_path, rows):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub


@pytest.fixture
def command(hub, tmp_path):
    """The command and its process's options, in a folder of its own."""

    def make(*arguments, token=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        return (
            [sys.executable, "-m", "judgelm", "data", "get", *map(str, arguments)],
            {
                "env": environment | hub.environment(tmp_path / "cache", token) | {"COLUMNS": "200"},
                "cwd": tmp_path,
                "text": True,
            },
        )

    return make


@pytest.fixture
def get(command):
    """Run the command to its end: exit code and standard error."""

    def run(*arguments, token=None):
        words, options = command(*arguments, token=token)
        done = subprocess.run(words, capture_output=True, check=False, timeout=240, **options)
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return done.returncode, done.stderr

    return run


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_set_is_downloaded_at_the_revision_that_the_hub_answers_and_that_is_recorded(hub, get, tmp_path):
    sha = hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines(*OFFSETBIAS, {"a": 1})})
    code, err = get("offsetbias")
    assert code == 0, err
    assert err.index("licence: bsd-3-clause") < err.index(f"revision: {sha}, now on the hub")
    assert "train: 20 rows, labels 1: 10, 2: 10" in err
    assert "1 rows rejected" in err
    lock = yaml.safe_load((tmp_path / "judgelm-data.lock.yaml").read_text())
    assert (lock["offsetbias"]["repo"], lock["offsetbias"]["revision"]) == ("NCSOFT/offsetbias", sha)
    assert len(rows(tmp_path / "data/offsetbias/train.jsonl")) == 20
    [reject] = rows(tmp_path / "data/offsetbias/train.rejects.jsonl")
    assert (reject["file"], reject["line"]) == ("train.jsonl", 21)
    source = json.loads((tmp_path / "data/offsetbias/source.json").read_text())
    assert source["splits"]["train"]["revision"] == sha
    assert source["schema_verified"] is False


def test_datasets_finds_the_files_of_a_configuration_and_a_split(hub, get, tmp_path):
    files = {
        "README.md": HELPSTEER3_README,
        "preference/train.jsonl.gz": gzip.compress(lines(HELPSTEER3).encode()),
        "preference/validation.jsonl.gz": gzip.compress(lines(HELPSTEER3 | {"overall_preference": 1}).encode()),
        "feedback/train.jsonl.gz": gzip.compress(lines({"other": 1}).encode()),
    }
    hub.commit("dataset", "nvidia/HelpSteer3", files, licence="cc-by-nc-4.0")
    code, err = get("helpsteer3", "--split", "validation", "-o", "out")
    assert code == 0, err
    assert "licence on the hub now: cc-by-nc-4.0; the card says cc-by-4.0" in err
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["source.json", "validation.jsonl"]
    assert [row["winner"] for row in rows(tmp_path / "out/validation.jsonl")] == [2]
    assert hub.downloads("preference/train.jsonl.gz") == []
    # the other split later, at the same revision; what is there of the first stays
    assert get("helpsteer3", "--split", "train", "-o", "out")[0] == 0
    source = json.loads((tmp_path / "out/source.json").read_text())
    assert sorted(source["splits"]) == ["train", "validation"]
    lock = yaml.safe_load((tmp_path / "judgelm-data.lock.yaml").read_text())
    assert {name: list(files) for name, files in lock["helpsteer3"]["splits"].items()} == {
        "validation": ["preference/validation.jsonl.gz"],
        "train": ["preference/train.jsonl.gz"],
    }
    # and again without the hub, by the paths of the lock
    hub.url = NOWHERE
    assert get("helpsteer3", "-o", "out", "--overwrite")[0] == 0


def test_parquet_files_of_two_splits_by_the_repositorys_own_metadata(hub, get, tmp_path):
    readme = "---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n"
    readme += "".join(f"  - split: {name}\n    path: data/{name}-*\n" for name in ("train_prefs", "test_prefs"))
    table = parquet(tmp_path, [MESSAGES | {"prompt": "Name a prime.", "score_chosen": 9.0, "score_rejected": 2.0}])
    parts = {f"data/{name}-00000-of-00001.parquet": table for name in ("train_prefs", "test_prefs")}
    hub.commit("dataset", "HuggingFaceH4/ultrafeedback_binarized", {"README.md": readme + "---\n"} | parts)
    code, err = get("ultrafeedback", "-o", "out", "--json", "result.json")
    assert code == 0, err
    assert sorted(rows(tmp_path / "out/train.jsonl")[0]["scores"]) == [2, 9]
    result = json.loads((tmp_path / "result.json").read_text())
    assert {name: split["rows"] for name, split in result["splits"].items()} == {"train": 1, "test": 1}


def test_a_newer_revision_is_said_the_locked_one_taken_and_update_moves(hub, get, tmp_path):
    first = hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines(*OFFSETBIAS)})
    assert get("offsetbias", "-o", "out")[0] == 0
    second = hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines(*OFFSETBIAS[:5])})
    code, err = get("offsetbias", "-o", "out")
    assert (code, "train.jsonl: exists already; add --overwrite" in err) == (1, True)
    code, err = get("offsetbias", "-o", "out", "--overwrite")
    assert code == 0
    assert f"revision: {first}, of judgelm-data.lock.yaml; the hub has another now, {second}: --update takes it" in err
    assert len(rows(tmp_path / "out/train.jsonl")) == 20
    code, err = get("offsetbias", "-o", "out", "--update")
    assert (code, f"revision: {second}, now on the hub" in err) == (0, True)
    assert len(rows(tmp_path / "out/train.jsonl")) == 5
    assert yaml.safe_load((tmp_path / "judgelm-data.lock.yaml").read_text())["offsetbias"]["revision"] == second


@pytest.mark.parametrize(
    ("token", "finding"),
    [
        (None, "a gated data set, and no valid token came with the request"),
        ("hf_other", "the account of this token has not been granted access"),
    ],
)
def test_a_gated_set_without_access_is_a_sentence_with_the_steps(hub, get, tmp_path, token, finding):
    card = dataset_card("chatbot-arena-conversations")
    hub.commit("dataset", card.repo, {"data/train-0.jsonl": "{}"}, gated=True, tokens=["hf_good"])
    code, err = get(card.name, token=token)
    assert code == 1
    assert f"error: {card.repo}: {finding}" in err
    assert f"; accept its conditions at {card.page} (logged in), create a token" in err
    assert not (tmp_path / "judgelm-data.lock.yaml").exists()


def test_a_gated_set_with_access(hub, get, tmp_path):
    card = dataset_card("chatbot-arena-conversations")
    vote = {
        "question_id": "b1", "model_a": "m1", "model_b": "m2", "winner": "model_b", "turn": 1,
        "conversation_a": MESSAGES["chosen"], "conversation_b": MESSAGES["rejected"],
    }  # fmt: skip
    table = parquet(tmp_path, [vote])
    files = {"data/train-00000-of-00001.parquet": table}
    hub.commit("dataset", card.repo, files, gated=True, tokens=["hf_good"])
    code, err = get(card.name, "-o", "out", token="hf_good")
    assert code == 0, err
    assert [row["winner"] for row in rows(tmp_path / "out/train.jsonl")] == [2]


@pytest.mark.parametrize(
    ("name", "files", "finding"),
    [
        ("offsetbias", None, "error: NCSOFT/offsetbias: not on the hub, or private"),
        ("offsetbias", {"other.jsonl": lines(*OFFSETBIAS)}, "a file of the card is not in the repository"),
        ("ultrafeedback", {"data/train-0.jsonl": "{}"}, 'no split "train_prefs", only train; the layout has changed'),
    ],
    ids=["not there", "without the card's file", "without the card's split"],
)
def test_a_repository_that_lacks_what_the_card_says(hub, get, name, files, finding):
    if files is not None:
        hub.commit("dataset", dataset_card(name).repo, files)
    code, err = get(name)
    assert (code, finding in err) == (1, True), err


def test_another_schema_is_said_and_no_rows_are_written(hub, get, tmp_path):
    hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines({"prompt": "q", "winner": 1})})
    code, err = get("offsetbias", "-o", "out")
    assert code == 1
    assert "it lacks instruction, output_1, output_2, label and has the fields prompt, winner" in err
    assert list((tmp_path / "out").iterdir()) == []


def test_a_broken_transfer_goes_on_where_it_broke(hub, get, tmp_path):
    # the client writes in chunks of 10 MiB, so 11 MB of 12 leave it with one chunk
    content = lines(*(row | {"output_2": "8" * 600_000} for row in OFFSETBIAS))
    hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": content})
    hub.break_after["train.jsonl"] = 11_000_000
    code, err = get("offsetbias", "-o", "out")
    assert code == 0, err
    assert hub.downloads("train.jsonl") == [None, f"bytes={10 << 20}-"]
    assert len(rows(tmp_path / "out/train.jsonl")) == 20


def test_killed_between_two_files_the_first_is_not_downloaded_again(hub, command, get, tmp_path):
    pair = {"chosen": "\n\nHuman: Hi\n\nAssistant: a", "rejected": "\n\nHuman: Hi\n\nAssistant: b"}
    paths = dataset_card("hh-rlhf").splits["test"].files
    files = {path: gzip.compress(lines(pair | {"category": path}).replace("Hi", path).encode()) for path in paths}
    hub.commit("dataset", "Anthropic/hh-rlhf", files)
    hub.held.add(paths[2])
    words, options = command("hh-rlhf", "--split", "test", "-o", "out")
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **options)
    deadline = time.monotonic() + 120
    while not hub.downloads(paths[2]) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    hub.held.clear()
    code, err = get("hh-rlhf", "--split", "test", "-o", "out")
    assert code == 0, err
    assert [len(hub.downloads(path)) for path in paths] == [1, 1, 2, 1]
    assert len(rows(tmp_path / "out/test.jsonl")) == 4


def test_without_the_hub_a_locked_set_comes_from_the_cache_and_an_unlocked_one_does_not(hub, command, get, tmp_path):
    sha = hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines(*OFFSETBIAS)})
    assert get("offsetbias", "-o", "out")[0] == 0
    hub.url = NOWHERE
    code, err = get("offsetbias", "-o", "out", "--overwrite")
    assert code == 0, err
    assert f"revision: {sha}, of judgelm-data.lock.yaml; the hub does not answer, so it was not compared" in err
    code, err = get("judgelm-100k")
    assert (code, f"no answer from the hub at {NOWHERE}" in err) == (1, True)


def test_a_damaged_cache_is_refused(hub, get, tmp_path):
    hub.commit("dataset", "NCSOFT/offsetbias", {"train.jsonl": lines(*OFFSETBIAS)})
    assert get("offsetbias", "-o", "out")[0] == 0
    [cached] = (tmp_path / "cache").rglob("train.jsonl")
    cached.resolve().write_text(lines(*OFFSETBIAS[:3]))
    code, err = get("offsetbias", "-o", "out", "--overwrite")
    assert (code, "the hub client's cache is damaged" in err) == (1, True)
    assert len(rows(tmp_path / "out/train.jsonl")) == 20
