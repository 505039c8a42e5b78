"""OpenAI's Batch API by its official client, and the same files through `judgelm-batch`."""

import io
import json
import time
from functools import partial

import openai
import pytest

from tests.support.in_process import exit_code
from tests.support.known_judge import quality
from tests.support.served import review, served

CHAT = "/v1/chat/completions"
HELLO = {"model": "gpt-4", "messages": [{"role": "user", "content": "Hello."}]}
VERDICT = f"{quality('one')} {quality('two')}"


def line(name, body, url=CHAT):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"


@pytest.fixture(scope="module")
def client():
    with (
        served(settings={"names": ("gpt-4",)}) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as one,
    ):
        yield one


def run_batch(client, text, endpoint=CHAT):
    """Upload the requests and wait for the end of the batch."""
    file = client.files.create(file=("requests.jsonl", io.BytesIO(text.encode())), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    until = time.monotonic() + 60
    while batch.status == "in_progress" and time.monotonic() < until:
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def rows_of(client, file_id):
    return [json.loads(row) for row in client.files.content(file_id).text.splitlines()]


def test_requests_are_answered_and_errors_stand_in_a_file_of_their_own(client):
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
def test_a_file_that_is_none_fails_the_batch_with_its_line(client, text, finding):
    batch = run_batch(client, text)
    assert batch.status == "failed"
    assert finding in batch.errors.data[0].message


def test_files_and_batches_are_listed_and_deleted(client):
    file = client.files.create(file=("r.jsonl", io.BytesIO(line("a", review()).encode())), purpose="batch")
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
        client.files.create(file=("r.jsonl", io.BytesIO(b"x")), purpose="fine-tune")


@pytest.fixture
def answer(tmp_path, capsys):
    """Answer `requests.jsonl` by `judgelm-batch` with a scripted judge; its exit code, the results and what it said."""

    def run(*options, reply="8 6\n"):
        command = (tmp_path / "requests.jsonl", "-o", tmp_path / "out.jsonl", "--engine", "scripted", "--model", reply)
        code = exit_code("judgelm-batch", *command, *options)
        said = capsys.readouterr().err
        rows = [json.loads(row) for row in (tmp_path / "out.jsonl").read_text().splitlines()]
        return code, {row["custom_id"]: row["response"] for row in rows}, said

    return run


def test_the_same_file_is_answered_without_a_server_and_resumed(answer, tmp_path):
    requests = tmp_path / "requests.jsonl"
    requests.write_text(line("a", review()))
    code, results, _ = answer()
    assert (code, results["a"]["status_code"]) == (0, 200)
    requests.write_text(line("a", review()) + line("b", HELLO))
    code, again, said = answer()
    assert (code, again["a"], again["b"]["status_code"]) == (2, results["a"], 400)
    assert "0 answered, 1 rejected, 1 answered before" in said
    code, _, said = answer(reply="6 6\n")
    assert (code, "contains results from a different judge" in said) == (1, True)


@pytest.mark.parametrize("options", [("--mode", "single"), ("--reasons", "all"), ("--limit", "1"), ("--workers", "2")])
def test_options_that_requests_do_not_take_are_refused(tmp_path, capsys, options):
    (tmp_path / "requests.jsonl").write_text(line("a", review()))
    command = (tmp_path / "requests.jsonl", "-o", tmp_path / "out.jsonl", "--engine", "scripted", "--model", "8 6")
    assert exit_code("judgelm-batch", *command, *options) == 1
    assert f"{options[0]} cannot be used with Batch API input" in capsys.readouterr().err


def test_prompts_of_the_users_own_are_answered(answer, tmp_path):
    (tmp_path / "prompts.yaml").write_text(
        "name: mine\nprompt: [{text: 'Q: {question} A: {answer_1} B: {answer_2} Better?'}]\n"
        "reply: {pair: {first: A, second: B}}\n"
    )
    body = {"model": "x", "messages": [{"role": "user", "content": "Q: Why? A: So. B: No. Better?"}]}
    (tmp_path / "requests.jsonl").write_text(line("a", body))
    assert answer()[0] == 2
    code, results, _ = answer("--overwrite", "--prompts", tmp_path / "prompts.yaml")
    assert code == 0
    assert results["a"]["body"]["choices"][0]["message"]["content"] == "A"


CHEAP = line("a", HELLO)


@pytest.fixture
def shared():
    """Clients of two keys of one server, with room for 3,000 bytes each."""
    settings = {"api_keys": ("sk-ann", "sk-ben"), "names": ("gpt-4",), "max_files_bytes": 6000}
    with served(settings=settings) as server:
        clients = [
            openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) for key in settings["api_keys"]
        ]
        yield clients
        for client in clients:
            client.close()


def upload(client, text):
    return client.files.create(file=("r.jsonl", text.encode()), purpose="batch")


def test_files_and_batches_belong_to_their_key(shared):
    ann, ben = shared
    batch = run_batch(ann, line("a", review()) + line("b", HELLO))
    assert (batch.status, list(ben.files.list()), list(ben.batches.list())) == ("completed", [], [])
    for attempt in (
        *(
            partial(ben.files.content, name)
            for name in (batch.input_file_id, batch.output_file_id, batch.error_file_id)
        ),
        partial(ben.files.retrieve, batch.input_file_id),
        partial(ben.files.delete, batch.output_file_id),
        partial(ben.batches.retrieve, batch.id),
        partial(ben.batches.cancel, batch.id),
        partial(ben.batches.create, input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()
    assert len(list(ann.files.list())) == 3


def test_a_key_that_has_filled_its_share_refuses_no_other(shared):
    ann, ben = shared
    full = upload(ann, "x" * 2000)
    with pytest.raises(openai.RateLimitError, match="3,000 bytes"):
        upload(ann, "x" * 2000)
    assert upload(ben, "x" * 2000).bytes == 2000
    ann.files.delete(full.id)
    assert upload(ann, "x" * 2000).bytes == 2000


def test_results_count_and_a_batch_without_room_for_them_keeps_those_it_has(shared, monkeypatch):
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
    with pytest.raises(openai.RateLimitError, match="limit of 3 files"):
        upload(shared[0], "x")
    assert upload(shared[1], "x").bytes == 1


def test_of_many_batches_the_last_are_kept(shared, monkeypatch):
    monkeypatch.setattr("judgelm.serving.batch_files._MAX_BATCHES", 2)
    first, *rest = [run_batch(shared[0], CHEAP) for _ in range(3)]
    assert {batch.id for batch in rest} == {batch.id for batch in shared[0].batches.list()}
    with pytest.raises(openai.NotFoundError):
        shared[0].batches.retrieve(first.id)


@pytest.mark.parametrize(
    "field",
    [{"metadata": {"a": "x" * 600}}, {"metadata": {str(n): "" for n in range(17)}}, {"completion_window": "1h"}],
)
def test_what_a_batch_keeps_of_its_request_is_bounded(client, field):
    request = {"input_file_id": upload(client, CHEAP).id, "endpoint": CHAT, "completion_window": "24h"} | field
    with pytest.raises(openai.BadRequestError, match=next(iter(field))):
        client.batches.create(**request)
