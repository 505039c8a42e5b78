"""OpenAI's Batch API by its official client, and the same files through `judgelm-batch`."""

import json
from functools import partial

import openai
import pytest

from tests.support.in_process import exit_code
from tests.support.jsonl_files import rows_of as read_rows
from tests.support.known_judge import quality
from tests.support.served import CHAT, review, served, until

HELLO = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello."}]}
VERDICT = f"{quality('one')} {quality('two')}"


def line(name, body, url=CHAT):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"


@pytest.fixture(scope="module")
def client():
    with (
        served(settings={"names": ("gpt-4",)}) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client,
    ):
        yield client


def upload(client, text):
    return client.files.create(file=("r.jsonl", text.encode()), purpose="batch")


def run_batch(client, text):
    """Upload the requests and wait for the end of the batch."""
    name = upload(client, text).id
    batch = client.batches.create(input_file_id=name, endpoint=CHAT, completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status != "in_progress", 60)
    return client.batches.retrieve(batch.id)


def rows_of(client, file_id):
    return [json.loads(row) for row in client.files.content(file_id).text.splitlines()]


def test_requests_are_answered_and_errors_are_in_a_separate_file(client):
    batch = run_batch(client, line("a", review()) + "\n" + line("b", HELLO) + line("c", review()))
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 3, 2, 1)
    good = {row["custom_id"]: row["response"] for row in rows_of(client, batch.output_file_id)}
    assert good.keys() == {"a", "c"}
    content = good["a"]["body"]["choices"][0]["message"]["content"]
    assert (good["a"]["status_code"], content.split("\n")[0]) == (200, VERDICT)
    [bad] = rows_of(client, batch.error_file_id)
    assert (bad["custom_id"], bad["response"]["body"]["error"]["code"]) == ("b", "unrecognised_prompt")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("", "the file is empty"),
        ("{}\n", "line 1: expected an object"),
        (line("a", HELLO) + "not JSON\n", "line 2: invalid JSON"),
        (line("a", HELLO) + line("a", HELLO), 'line 2: "custom_id"'),
        (line("a", HELLO, "/v1/embeddings"), 'line 1: "url"'),
        (line("a", HELLO).replace('"model"', '"messages": [], "model"', 1), 'key "messages" appears twice'),
        (line("a", {"model": "gpt-4", "input": "x"}, "/v1/responses"), f"endpoint {CHAT}"),
    ],
)
def test_an_invalid_file_fails_the_batch_and_names_the_line(client, text, finding):
    batch = run_batch(client, text)
    assert (batch.status, finding in batch.errors.data[0].message) == ("failed", True)


def test_files_and_batches_are_listed_and_deleted(client):
    file = upload(client, line("a", review()))
    assert file.id in [each.id for each in client.files.list()]
    assert client.files.retrieve(file.id).bytes == file.bytes
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)
    batch = run_batch(client, line("a", review()))
    assert batch.id in [each.id for each in client.batches.list()]
    assert client.batches.cancel(batch.id).status == "completed"  # too late
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_x")
    with pytest.raises(openai.BadRequestError):
        client.files.create(file=("r.jsonl", b"x"), purpose="fine-tune")


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


def test_the_same_file_is_answered_without_a_server_and_resumed(answer):
    code, results, _ = answer(line("a", review()))
    assert (code, results["a"]["status_code"]) == (0, 200)
    both = line("a", review()) + line("b", HELLO)
    code, again, errors = answer(both)
    assert (code, again["a"], again["b"]["status_code"]) == (2, results["a"], 400)
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


CHEAP = line("a", HELLO)


@pytest.fixture
def shared():
    """Clients of two keys of one server, with room for 3,000 bytes each."""
    settings = {"api_keys": ("sk-ann", "sk-ben"), "names": ("gpt-4",), "max_files_bytes": 6000}
    with (
        served(settings=settings) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-ann", max_retries=0) as ann,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-ben", max_retries=0) as ben,
    ):
        yield ann, ben


def test_files_and_batches_belong_to_their_key(shared):
    ann, ben = shared
    batch = run_batch(ann, line("a", review()) + line("b", HELLO))
    assert (batch.status, list(ben.files.list()), list(ben.batches.list())) == ("completed", [], [])
    names = batch.input_file_id, batch.output_file_id, batch.error_file_id
    for attempt in (
        *(partial(ben.files.content, name) for name in names),
        partial(ben.files.retrieve, batch.input_file_id),
        partial(ben.files.delete, batch.output_file_id),
        partial(ben.batches.retrieve, batch.id),
        partial(ben.batches.cancel, batch.id),
        partial(ben.batches.create, input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()
    assert len(list(ann.files.list())) == 3


def test_a_full_share_of_a_key_does_not_affect_others(shared):
    ann, ben = shared
    full = upload(ann, "x" * 2000)
    with pytest.raises(openai.RateLimitError, match="3,000 bytes"):
        upload(ann, "x" * 2000)
    assert upload(ben, "x" * 2000).bytes == 2000
    ann.files.delete(full.id)
    assert upload(ann, "x" * 2000).bytes == 2000


def test_results_count_and_a_batch_without_room_keeps_its_first_results(shared, monkeypatch):
    monkeypatch.setattr("judgelm.serving.batch_files.MAX_CONCURRENT", 1)
    batch = run_batch(shared[0], "".join(line(str(number), HELLO) for number in range(9)))
    assert (batch.status, batch.errors.data[0].code) == ("failed", "storage_full")
    kept = rows_of(shared[0], batch.error_file_id)
    assert 0 < len(kept) == batch.request_counts.failed < 9
    shared[0].files.delete(batch.error_file_id)
    assert run_batch(shared[0], CHEAP).status == "completed"


def test_the_number_of_files_is_limited_by_key(shared, monkeypatch):
    monkeypatch.setattr("judgelm.serving.batch_files._MAX_FILES", 3)
    for _ in range(3):
        upload(shared[0], "x")
    with pytest.raises(openai.RateLimitError, match="limit of 3"):
        upload(shared[0], "x")
    assert upload(shared[1], "x").bytes == 1


def test_only_the_last_batches_are_kept(shared, monkeypatch):
    monkeypatch.setattr("judgelm.serving.batch_files._MAX_BATCHES", 2)
    first, *rest = [run_batch(shared[0], CHEAP) for _ in range(3)]
    assert {batch.id for batch in rest} == {batch.id for batch in shared[0].batches.list()}
    with pytest.raises(openai.NotFoundError):
        shared[0].batches.retrieve(first.id)


@pytest.mark.parametrize(
    "field",
    [{"metadata": {"a": "x" * 600}}, {"metadata": {str(n): "" for n in range(17)}}, {"completion_window": "1h"}],
)
def test_the_metadata_and_window_of_a_batch_are_limited(client, field):
    request = {"input_file_id": upload(client, CHEAP).id, "endpoint": CHAT, "completion_window": "24h"} | field
    with pytest.raises(openai.BadRequestError, match=next(iter(field))):
        client.batches.create(**request)
