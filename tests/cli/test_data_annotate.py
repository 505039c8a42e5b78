"""`judgelm data annotate` against a real, misbehaving server."""

import json
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import SampleStream
from judgelm.runs.run_files import read_judgments
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support.endpoint.server import endpoint
from tests.support.jsonl_files import rows_of
from tests.support.jsonl_files import write_rows as write
from tests.support.teachers import Ledger, TeacherBackend

SCRIPT = Path(__file__).parents[2] / "data_tools" / "annotate.py"
PRICES = ("--price-in", "2", "--price-out", "10")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def annotate(folder, monkeypatch, capsys):
    """Run the recipe in this process; return exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["annotate.py", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "300")
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        return ended.value.code or 0, *capsys.readouterr()

    return run


def pairs(n, references=True):
    """Make pairs; the answers of pair i have i % 5 + 1 and i % 3 + 1 words, the teacher's scores."""
    return [
        {
            "question_id": f"q{i}",
            "question_body": f"what is {i}?",
            "answer1_body": " ".join(["red"] * (i % 5 + 1)),
            "answer2_body": " ".join(["fox"] * (i % 3 + 1)),
            "answer1_model_id": "m",
            "answer2_model_id": "n",
            "answer1_metadata": {"decoding_method": "greedy"},
        }
        | ({"reference": {"text": f"it is {i}"}} if references else {})
        for i in range(n)
    ]


def at(server, *more, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    given = [part for name, value in arguments.items() for part in ("--engine-arg", f"{name}={value}")]
    return ("--model", "tiny", *given, *more)


def counts_of(printed):
    return {line[10:]: int(line[:8]) for line in printed.splitlines() if line[:8].strip().isdigit()}


def test_pairs_become_judgelm_rows_with_and_without_reference(annotate, tiny_model):
    from transformers import AutoTokenizer

    write("pairs.jsonl", pairs(6))
    with endpoint(TeacherBackend()) as server:
        code, out, _ = annotate("pairs.jsonl", "-o", "train.jsonl", "--reference", "both", *at(server))
    assert code == 0
    assert counts_of(out)["rows"] == 6
    row = rows_of("train.jsonl")[3]
    assert row == pairs(6)[3] | {
        "score": [4, 1],
        "text": "4 1\nAssistant 1 says red red red red, Assistant 2 says fox.",
        "score_w_reference": [4, 1],
        "text_w_reference": "4 1\nAssistant 1 says red red red red, Assistant 2 says fox.",
        "metadata": {},
    }
    prompts = [body["prompt"] for body in server.bodies if "Assistant" in str(body.get("prompt"))]
    assert sum("[Reference Answer]" in prompt for prompt in prompts) == 6
    assert len(prompts) == 12
    stream = SampleStream(["train.jsonl"])
    for row, sample in stream.pairs():
        words = tuple(float(len(answer.split())) for answer in sample.answers)
        assert [label.scores for label in stream.labels(row, False, True)] == [words, words]
    assert read_labels("train.jsonl", with_reference=True).labels["q3"].reason.startswith("Assistant 1 says")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    builder = SFTRowBuilder(tokenizer, RowOptions(template="judgelm-compact", window=512))
    assert len(list(builder.read(["train.jsonl"]))) == builder.counts.with_reason == 6


@pytest.mark.distributed
def test_a_killed_run_resumes_and_pays_for_nothing_twice(folder):
    write("pairs.jsonl", pairs(40))
    ledger = Ledger()
    with endpoint(TeacherBackend(), delay_s=0.03) as server:
        server.misbehave(ledger)
        options = ("--reference", "both", *at(server, concurrency=4))
        command = [sys.executable, SCRIPT, "pairs.jsonl", "-o", "t.jsonl", *options]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while sum(ledger.served.values()) < 30:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        time.sleep(0.2)  # the server ends what it had begun
        with Path("t.judgments.jsonl").open("a") as file:
            file.write('{"id": "q39", "mode"')  # a line that the kill tore
        assert not Path("t.jsonl").exists()
        before = {name for name, one in read_so_far().items() if one["failure"] is None}
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 20 < len(before) < 80
    assert f"prompts: {80 - len(before)}," in done.stderr
    assert counts_of(done.stdout)["rows"] == 40
    assert len(ledger.served) == 80
    # four were under way, and as many may have been answered and not yet been written
    assert sum(ledger.served.values()) <= 80 + 8
    sessions = json.loads(Path("t.judgments.run.json").read_text())["sessions"]
    assert [session["outcome"] for session in sessions] == ["running", "finished"]


def read_so_far():
    rows = (json.loads(line) for line in Path("t.judgments.jsonl").read_text().splitlines() if line.endswith("}"))
    return {row["id"]: row for row in rows}


def test_a_run_stops_if_the_server_is_down_and_resumes_later(annotate):
    write("pairs.jsonl", pairs(12))
    ledger = Ledger()
    with endpoint(TeacherBackend()) as server:
        server.misbehave(lambda number, body: "500" if len(ledger.served) >= 5 else ledger(number, body))
        arguments = ("pairs.jsonl", "-o", "t.jsonl", *at(server, concurrency=1, retries=1))
        code, _, err = annotate(*arguments)
        assert (code, "is not responding: HTTP 500" in err) == (1, True)
        server.misbehave(ledger)
        code, out, _ = annotate(*arguments)
    assert (code, counts_of(out)["rows"], set(ledger.served.values())) == (0, 12, {1})


def test_the_estimate_sends_no_request(annotate, tiny_model):
    from transformers import AutoTokenizer

    write("pairs.jsonl", pairs(4))
    with endpoint() as server:
        code, _, err = annotate(
            "pairs.jsonl", "-o", "t.jsonl", *at(server), *PRICES, "--estimate", "--reason-tokens", "500",
            "--template", "judgelm-compact",
        )  # fmt: skip
        assert server.bodies == []
    texts = [f"[Q] what is {i}?\n[1] {'red ' * (i % 5) + 'red'}\n[2] {'fox ' * (i % 3) + 'fox'}\n[S]" for i in range(4)]
    tokens = round(sum(map(len, texts)) / 4)
    assert (code, f"prompts: 4, with about {tokens} tokens (4 characters per token)" in err) == (0, True)
    # 2 USD a million in, 10 out; 4 replies of 170 tokens, or of 500
    assert f"cost: about {tokens * 2e-6 + 680 * 1e-5:.4f} USD, at most {tokens * 2e-6 + 2000 * 1e-5:.4f} USD" in err
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    counted = sum(len(tokenizer(text)["input_ids"]) for text in texts)
    _, _, err = annotate(
        "pairs.jsonl", "-o", "t.jsonl", "--model", "x", "--template", "judgelm-compact", "--estimate",
        "--tokenizer", tiny_model,
    )  # fmt: skip
    assert f"about {counted} tokens ({tiny_model})" in err


def test_max_cost_stops_the_run_and_a_higher_limit_resumes_it(annotate):
    write("pairs.jsonl", pairs(30))
    ledger = Ledger()
    with endpoint(TeacherBackend()) as server:
        server.misbehave(ledger)
        arguments = ("pairs.jsonl", "-o", "t.jsonl", *PRICES, "--reason-tokens", "64", *at(server, concurrency=2))
        code, out, err = annotate(*arguments, "--max-cost", "0.012")
        assert code == 2
        assert "might exceed --max-cost 0.012" in " ".join(err.split())
        asked_first = len(ledger.served)
        assert 5 < asked_first < 30
        assert counts_of(out)["rows"] == asked_first == len(rows_of("t.jsonl"))
        assert float(re.search("spent in all sessions: at most (.*) USD", out)[1]) <= 0.012
        assert re.search(r"billed in this session: [\d,]+ \+ [\d,]+ tokens, 0\.0\d+ USD", out)

        code, _, err = annotate(*arguments, "--max-cost", "0.001")
        assert (code, "USD is already spent" in err) == (1, True)

        code, out, err = annotate(*arguments, "--max-cost", "1")
        assert f"prompts: {30 - asked_first}," in err
        assert "spent in earlier sessions: 0.0" in err
    assert (code, counts_of(out)["rows"], set(ledger.served.values())) == (0, 30, {1})


SAYS = {
    ("good", "bad"): "8 3\nfirst", ("bad", "good"): "2 9\nsecond",  # one winner in both orders
    ("this", "that"): "7 6\nfirst", ("that", "this"): "7 6\nfirst",  # always the first answer
    ("one", "two"): "5 5\ntie", ("two", "one"): "no scores at all",  # one order cannot be read
    ("odd", "even"): "42 5\nmuch", ("even", "odd"): "5 4\nfirst",  # the order given cannot be read
}  # fmt: skip


@pytest.fixture
def opinions(folder):
    firsts = [("good", "bad"), ("this", "that"), ("one", "two"), ("odd", "even")]
    rows = [{"id": a, "question": "q", "answer_1": a, "answer_2": b} for a, b in firsts]
    Path("script.json").write_text(json.dumps({f"q|{a}|{b}": reply for (a, b), reply in SAYS.items()}))
    return (write("pairs.jsonl", rows), "-o", "t.jsonl", "--engine", "scripted", "-m", "script.json", "--both-orders")


def test_orders_that_disagree_are_kept_and_marked_or_dropped_and_counted(annotate, opinions):
    annotate(*opinions[:-1])
    code, out, err = annotate(*opinions)
    assert code == 2  # more failures than --max-failure-rate
    assert "prompts: 4," in err  # the second order was added later
    assert {row["question_id"]: row["metadata"] for row in rows_of("t.jsonl")} == {
        "good": {"orders_agree": True},
        "this": {"orders_agree": False},
        "one": {},
    }
    assert counts_of(out) == {
        "replies in this session, of which 1 failed": 4,
        "unusable input lines": 0,
        "rows": 3,
        "pairs without a usable judgment (no row)": 1,
        "without reference: failed, out_of_range": 1,
        "without reference, swapped: failed, off_grammar": 1,
        "without reference: judged in only one order, kept": 1,
        "without reference: orders disagree on the winner, kept": 1,
    }
    _, out, _ = annotate(*opinions, "--drop-disagreeing")
    [row] = rows_of("t.jsonl")
    assert (row["question_id"], row["score"], row["text"]) == ("good", [8, 3], "8 3\nfirst")
    assert counts_of(out)["without reference: orders disagree on the winner, dropped"] == 1
    assert counts_of(out)["without reference: judged in only one order, dropped"] == 1
    assert counts_of(out)["pairs without a usable judgment (no row)"] == 3


def test_a_failed_reply_is_counted_by_its_code_and_never_a_row(annotate):
    says = {"a0": "I cannot say", "a1": "0 11\nno", "a2": " ".join(["hm"] * 50), "a3": "7 5\n" + "so " * 50}
    write("pairs.jsonl", [{"id": i, "question": "q", "answer_1": f"a{i}", "answer_2": "b"} for i in range(6)])
    with endpoint(TeacherBackend(lambda first, second: says.get(first)), has_completions=False) as server:
        server.misbehave(lambda number, body: "refusal" if "a4" in str(body) else None)
        arguments = ("pairs.jsonl", "-o", "t.jsonl", "--reason-tokens", "20", *at(server))
        code, out, err = annotate(*arguments)
        assert code == 2, err
        assert {row["question_id"]: row["text"][:4] for row in rows_of("t.jsonl")} == {"3": "7 5\n", "5": "1 1\n"}
        assert rows_of("t.jsonl")[0]["text"] == "7 5\n"
        expected = {"off_grammar": 1, "out_of_range": 1, "truncated": 1, "engine": 1}
        counts = counts_of(out)
        assert {code: counts[f"without reference: failed, {code}"] for code in expected} == expected
        assert counts["without reference: scores with an incomplete reason (truncated)"] == 1
        assert read_judgments("t.judgments.jsonl")["0"].shown[0].text == "I cannot say"

        server.misbehave(None)
        _, out, err = annotate(*arguments)
        assert "prompts: 1," in err  # the refusal alone was the server's
        assert counts_of(out)["rows"] == 3


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (("pairs.jsonl", "-o", "pairs.jsonl"), "would overwrite the input"),
        (("pairs.jsonl", "-o", "none/t.jsonl"), "no such folder"),
        (("pairs.jsonl", "-o", "t.csv"), "must end in .jsonl"),
        (("pairs.jsonl", "-o", "t.jsonl", "--drop-disagreeing"), "add --both-orders"),
        (("pairs.jsonl", "-o", "t.jsonl", "--price-in", "1"), "set both price_in and price_out"),
        (
            ("pairs.jsonl", "-o", "t.jsonl", "--max-cost", "1"),
            "requires the openai engine, --price-in, and --price-out",
        ),
    ],
)
def test_conflicting_options_are_refused_before_any_request(annotate, arguments, finding):
    write("pairs.jsonl", pairs(1))
    code, _, err = annotate(*arguments, "-m", "x")
    assert code == 1
    assert finding in " ".join(err.split())
    assert [path.name for path in Path().iterdir()] == ["pairs.jsonl"]


def test_a_prompt_is_refused_with_the_way_out(annotate):
    write("pairs.jsonl", pairs(1))
    code, _, err = annotate("pairs.jsonl", "-o", "train.jsonl", "--model", "m", "--prompt", "mine.txt")
    assert (code, "use judgelm-batch" in err) == (1, True)
