"""Files for OpenAI's Batch API, answered by `judgelm-batch`."""

import json

import pytest

from judgelm.errors import InputError
from judgelm.serving.batch_requests import read_requests
from tests.support.in_process import exit_code
from tests.support.jsonl_files import rows_of as read_rows
from tests.support.served import CHAT, review

HELLO = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello."}]}


def line(name, body, url=CHAT):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("", "the file is empty"),
        ("{}\n", "line 1: expected an object"),
        (line("a", HELLO) + "not JSON\n", "line 2: invalid JSON"),
        (line("a", HELLO) + line("a", HELLO), 'line 2: "custom_id"'),
        (line("a", HELLO, "/v1/embeddings"), 'line 1: "url"'),
        (line("a", HELLO).replace('"model"', '"messages": [], "model"', 1), 'key "messages" appears twice'),
    ],
)
def test_an_invalid_file_is_refused_with_the_line(text, finding):
    with pytest.raises(InputError) as error:
        read_requests(text)
    assert finding in str(error.value)


@pytest.fixture
def answer(tmp_path, capsys):
    """Answer requests by `judgelm-batch` with a scripted judge; the exit code, the results and the errors."""

    def run(requests, *options, reply="8 6\n"):
        (tmp_path / "requests.jsonl").write_text(requests)
        command = (tmp_path / "requests.jsonl", "-o", tmp_path / "out.jsonl", "--engine", "scripted", "--model", reply)
        code = exit_code("judgelm-batch", *command, *options)
        rows = read_rows(tmp_path / "out.jsonl") if (tmp_path / "out.jsonl").exists() else []
        return code, {row["custom_id"]: row["response"] for row in rows}, capsys.readouterr().err

    return run


def test_a_file_is_answered_and_resumed(answer):
    code, results, _ = answer(line("a", review()))
    assert (code, results["a"]["status_code"]) == (0, 200)
    assert results["a"]["body"]["choices"][0]["message"]["content"].split("\n")[0] == "8 6"
    both = line("a", review()) + line("b", HELLO)
    code, again, errors = answer(both)
    assert (code, again["a"], again["b"]["status_code"]) == (2, results["a"], 400)
    assert again["b"]["body"]["error"]["code"] == "unrecognised_prompt"
    assert "0 answered, 1 rejected, 1 answered before" in errors
    code, _, errors = answer(both, reply="6 6\n")
    assert (code, "a different judge" in errors) == (1, True)


def test_unknown_prompts_in_a_file_are_answered_if_asked(answer):
    code, results, errors = answer(line("a", HELLO), "--unknown", "answer")
    assert (code, results["a"]["body"]["choices"][0]["message"]["content"]) == (0, "8 6\n")
    assert "1 unrecognised prompts were not judged" in errors


@pytest.mark.parametrize("options", [("--mode", "single"), ("--reasons", "all"), ("--limit", "1"), ("--workers", "2")])
def test_options_that_do_not_apply_to_requests_are_refused(answer, options):
    code, results, errors = answer(line("a", review()), *options)
    assert (code, results) == (1, {})
    assert f"{options[0]} cannot be used with Batch API input" in errors


def test_prompts_of_the_users_own_are_answered(answer, tmp_path):
    (tmp_path / "prompts.yaml").write_text(
        "name: mine\nprompt: [{text: 'Q: {question} A: {answer_1} B: {answer_2} Better?'}]\n"
        "reply: {pair: {first: A, second: B}}\n"
    )
    body = {"model": "x", "messages": [{"role": "user", "content": "Q: Why? A: So. B: No. Better?"}]}
    assert answer(line("a", body))[0] == 2
    code, results, _ = answer(line("a", body), "--overwrite", "--prompt", tmp_path / "prompts.yaml")
    assert (code, results["a"]["body"]["choices"][0]["message"]["content"]) == (0, "A")
