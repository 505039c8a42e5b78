"""Inputs of commands: broken files, shards, folders and pipes."""

import json
import os
import threading

import pytest

SCRIPTED = ("--engine", "scripted", "--model", "8 6\n", "-q")


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def broken_list(rows):
    return "[" + ",\n".join(json.dumps(row) for row in rows) + ",\n{,,}]"


def unclosed_quote(rows):
    lines = ["id,question,answer_1,answer_2", *(",".join(row.values()) for row in rows), '9,"q,a,b', "10,q,a,b"]
    return "\n".join(lines)


@pytest.mark.parametrize(("name", "write"), [("a.json", broken_list), ("a.csv", unclosed_quote)])
def test_rows_before_a_syntax_error_are_judged_and_the_run_exits_with_1(cli, tmp_path, name, write):
    rows = [{"id": f"p{index}", "question": "q", "answer_1": "a", "answer_2": "b"} for index in range(5)]
    (tmp_path / name).write_text(write(rows))
    command = ("judgelm-batch", tmp_path / name, "-o", tmp_path / "out.jsonl", *SCRIPTED)
    code, _, err = cli(*command)
    assert code == 1
    assert f"{name}:{6 if name == 'a.json' else 7}: " in err
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == ["p0", "p1", "p2", "p3", "p4"]
    assert cli(*command)[0] == 1  # judges nothing twice, and reports the error again
    assert len(rows_of(tmp_path / "out.jsonl")) == 5


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "{run}", "--labels", "{broken}"),
        ("report", "{run}", "--samples", "{broken}"),
        ("study", "estimate", "{run}", "--labels", "{broken}"),
        ("data", "import", "preferences", "{broken}", "-o", "{out}"),
        ("data", "sample", "{broken}", "--size", "1", "-o", "{out}"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_refuses_a_broken_file(cli, pairs, tmp_path, command):
    cli("judgelm-batch", pairs(3), "-o", tmp_path / "run.jsonl", *SCRIPTED)
    row = {"id": "p0", "prompt": "q0", "chosen": "a", "rejected": "b"}
    (tmp_path / "broken.json").write_text(broken_list([row]))
    places = {"run": tmp_path / "run.jsonl", "broken": tmp_path / "broken.json", "out": tmp_path / "out.jsonl"}
    code, _, err = cli("judgelm", *(part.format(**places) for part in command))
    assert code == 1
    assert "broken.json:2: broken JSON list: " in err
    assert not (tmp_path / "out.jsonl").exists()


def test_a_folder_of_shards_is_one_input(cli, pairs, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in (0, 1):
        path = pairs(4, name=f"part-{number}.jsonl")
        rows = [row | {"id": f"{number}-{row['id']}"} for row in rows_of(path)]
        (folder / path.name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("judgelm-batch", folder, "-o", tmp_path / "out.jsonl", *SCRIPTED)[0] == 0
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [f"{n}-p{i}" for n in (0, 1) for i in range(4)]
    names = [entry["file"] for entry in json.loads((tmp_path / "out.run.json").read_text())["fingerprint"]["input"]]
    assert names == ["part-0.jsonl", "part-1.jsonl"]
    code, _, err = cli("judgelm-batch", folder, "-o", folder / "out.jsonl", *SCRIPTED)
    assert (code, "is in the input folder" in err) == (1, True)


def test_a_named_pipe_is_read_like_standard_input(cli, pairs, tmp_path):
    content = pairs(3).read_text()
    os.mkfifo(tmp_path / "pipe.jsonl")
    threading.Thread(target=lambda: (tmp_path / "pipe.jsonl").write_text(content), daemon=True).start()
    assert cli("judgelm-batch", tmp_path / "pipe.jsonl", "-o", tmp_path / "out.jsonl", *SCRIPTED)[0] == 0
    assert len(rows_of(tmp_path / "out.jsonl")) == 3
    manifest = json.loads((tmp_path / "out.run.json").read_text())
    assert manifest["fingerprint"]["input"] == [{"file": "-", "bytes": 0, "sha": None}]


def test_labels_may_come_from_standard_input(cli, pairs, tmp_path):
    cli("judgelm-batch", pairs(3), "-o", tmp_path / "run.jsonl", *SCRIPTED)
    labels = b"".join(b'{"id": "p%d", "winner": 1}\n' % number for number in range(3))
    command = ("judgelm", "eval", tmp_path / "run.jsonl", "--labels", "-", "--json", tmp_path / "e.json")
    assert cli(*command, stdin=labels)[0] == 0
    assert json.loads((tmp_path / "e.json").read_text())["excluded"]["accuracy"]["value"] == 1.0
