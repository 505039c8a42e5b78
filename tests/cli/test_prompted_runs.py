"""Runs with `--prompt`: batch, resume, votes, cascades, panels, reports, exports, and studies."""

import csv
import json

import pytest

from tests.support.jsonl_files import rows_of, write_rows

SUPPORT = "Context: {context}\nAnswer: {answer}\nIs it supported?\nreply: Yes/No\n"
PAIR = "A: {answer_1}\nB: {answer_2}\nWhich is better for {customer}?\nreply: A/B/tie\n"
REASON = (
    "prompt: 'Is {answer} right?'\n"
    "reply: {label: {fulfilled: Yes, failed: No}, reason: 5, text: '{reason} So: {verdict}'}\n"
)


@pytest.fixture
def run(batch, tmp_path):
    """Judge rows with a prompt; return the exit code, standard error, and the judgments."""

    def run(rows, text, *options, reply="Yes", name="out"):
        path = tmp_path / ("prompt.yaml" if text.startswith("prompt:") else "prompt.txt")
        path.write_text(text)
        out = tmp_path / f"{name}.jsonl"
        code, _, errors = batch(rows, "--prompt", path, *options, reply=reply, out=out)
        return code, errors, rows_of(out) if out.exists() else []

    return run


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,context,answer\n1,Paris is in France.,It is in France.\n2,It is 330 m tall.,It is 300 m tall.\n"
    )
    return path


@pytest.fixture
def pair_rows(tmp_path):
    rows = ({"id": f"p{i}", "answer_1": f"a{i}", "answer_2": f"b{i}", "customer": "Acme"} for i in range(4))
    return write_rows(tmp_path / "pairs.jsonl", rows)


def manifest(tmp_path, name="out"):
    return json.loads((tmp_path / f"{name}.run.json").read_text())


def test_a_table_without_questions_is_labelled(run, table, tmp_path):
    code, errors, rows = run(table, SUPPORT)
    assert (code, [row["verdict"]["label"] for row in rows]) == (0, ["yes", "yes"])
    assert "mode label, prompt prompt (prompt.txt), probabilities of Yes/No" in errors
    kept = manifest(tmp_path)["provenance"].popitem()[1]["prompt"]
    assert kept == {"file": "prompt.txt", "name": "prompt", "text": SUPPORT}


def test_a_run_is_resumed_with_the_same_file_and_refused_with_another(run, table):
    assert run(table, SUPPORT)[0] == 0
    code, errors, rows = run(table, SUPPORT)
    assert (code, len(rows), "2 samples have already been judged" in errors) == (0, 2, True)
    code, errors, _ = run(table, SUPPORT.replace("supported?", "supported ?"))
    assert (code, "template.sha: was" in errors) == (1, True)
    assert run(table, SUPPORT.replace("supported?", "true?"), "--overwrite")[0] == 0


def test_rows_without_a_field_are_rejected_with_row_and_slot(run, tmp_path):
    answers = [{"id": "a", "answer": "x", "context": ["c"]}, {"id": "b", "answer": "x"}]
    answers += [{"id": "c", "answer": "x", "context": None}]
    code, _, rows = run(write_rows(tmp_path / "rows.jsonl", answers), SUPPORT)
    assert (code, [row["id"] for row in rows]) == (2, ["a"])
    reasons = [row["reason"] for row in rows_of(tmp_path / "out.rejects.jsonl")]
    assert ["sample b" in reasons[0], "sample c" in reasons[1]] == [True, True]
    assert all("{context}" in reason for reason in reasons)


def test_changed_fields_of_a_judged_row_are_refused(run, table):
    assert run(table, SUPPORT)[0] == 0
    table.write_text(table.read_text().replace("330", "331"))
    code, errors, _ = run(table, SUPPORT)
    assert (code, "rows.csv" in errors) == (1, True)


def test_a_column_in_a_later_row_can_show_that_a_slot_is_written_wrongly(run, tmp_path):
    rows = write_rows(tmp_path / "late.jsonl", [{"answer": "a"}, {"answer": "b", "context": "c"}])
    code, errors, _ = run(rows, "{{context}}: {answer}?\nreply: Yes/No\n")
    assert (code, "{{context}} is literal text" in errors) == (1, True)


def test_literal_columns_are_reported_before_the_model_is_loaded(cli, table, tmp_path):
    (tmp_path / "own.txt").write_text("{{context}}: {answer}?\nreply: Yes/No\n")
    options = ("--prompt", tmp_path / "own.txt", "--mode", "label", "--model", tmp_path / "missing")
    code, _, errors = cli("judgelm-batch", table, "-o", tmp_path / "out.jsonl", *options)
    assert (code, "{{context}} is literal text" in errors, "missing" in errors) == (1, True, False)


@pytest.mark.parametrize(("options", "suggested"), [((), "answer=left"), (("--mode", "pair"), "answer_2=right")])
def test_suggested_columns_follow_the_mode(run, tmp_path, options, suggested):
    (tmp_path / "rows.csv").write_text("question,left,right\nq,r,c\n")
    _, errors, _ = run(tmp_path / "rows.csv", "{question} {answer}\nreply: Yes/No\n", *options)
    assert f"--column {suggested}" in errors


def test_empty_texts_in_slots_are_counted(run, tmp_path):
    (tmp_path / "gap.csv").write_text("context,answer\nc,a\n,b\n")
    code, errors, rows = run(tmp_path / "gap.csv", SUPPORT)
    assert (code, len(rows)) == (0, 2)
    assert "samples with an empty text in a slot │ 1" in " ".join(errors.split())


def test_suggested_columns_are_those_of_the_prompt(run, tmp_path):
    (tmp_path / "rows.csv").write_text("query,response,context\nq,r,c\n")
    _, errors, _ = run(tmp_path / "rows.csv", "{query} {context} {answer}\nreply: Yes/No\n")
    assert "--column answer=response" in errors
    assert "answer_1" not in errors


def test_a_reason_that_begins_like_a_word_is_not_its_verdict(run, pair_rows):
    reply = "{pair: {first: A, second: B}, reason: 9, text: '{reason} So: {verdict}'}"
    text = f"prompt: '{{answer_1}} or {{answer_2}}?'\nreply: {reply}\n"
    _, _, rows = run(pair_rows, text, "--order-rule", "given", reply="Both work. So: A")
    assert [row["verdict"]["winner"] for row in rows] == [1] * 4


def test_a_configuration_may_name_a_single_prompt(batch, table, tmp_path):
    (tmp_path / "own.txt").write_text(SUPPORT)
    (tmp_path / "config.yaml").write_text(f"prompt: {tmp_path / 'own.txt'}\n")
    code, _, errors = batch(table, "--config", tmp_path / "config.yaml", reply="Yes", out=tmp_path / "out.jsonl")
    assert (code, "prompt own (own.txt)" in errors) == (0, True)


def test_a_slot_takes_a_renamed_column(run, table):
    table.write_text(table.read_text().replace("context", "Source text"))
    code, _, rows = run(table, SUPPORT, "--column", "context=Source text")
    assert (code, len(rows)) == (0, 2)


@pytest.mark.parametrize(
    ("text", "options", "finding"),
    [
        (SUPPORT, ("--mode", "rubric"), "prompt prompt cannot be used in mode rubric; use --mode label"),
        (SUPPORT, ("--template", "yes-no"), "--prompt cannot be combined with --template"),
        (SUPPORT, ("--votes", "3"), "reasons first"),
        (SUPPORT, ("--reference", "use"), "the prompt has no slot {reference}"),
        (SUPPORT.replace("Is", "{reference} Is"), ("--reference", "ignore"), "but the prompt shows {reference}"),
        (SUPPORT, ("--prompt", "other.txt"), "--prompt is given twice"),
        (SUPPORT.replace("{context}", "{{context}}"), (), "{{context}} is literal text"),
        (SUPPORT.replace("{answer}", "{reply}"), (), "requires a prompt with {answer}"),
        (PAIR, ("--mode", "label"), "cannot be used in mode label; use --mode pair"),
    ],
)
def test_what_does_not_fit_is_refused_before_judging(run, table, text, options, finding):
    code, errors, rows = run(table, text, *options)
    assert (code, rows) == (1, [])
    assert finding in errors


def test_a_verdict_that_is_not_a_word_is_a_failure(run, table, tmp_path):
    code, errors, rows = run(table, SUPPORT, reply="Maybe")
    assert (code, {row["failure"]["code"] for row in rows}) == (2, {"low_coverage"})
    assert "low_coverage" in errors.replace(" ", "_")
    assert f"first failure, sample {rows[0]['id']}: {rows[0]['failure']['why']}" in errors
    assert manifest(tmp_path)["sessions"][0]["first_failure"].startswith(rows[0]["id"])


def test_pairs_are_judged_in_both_orders_and_studied(cli, run, pair_rows, tmp_path):
    code, _, rows = run(pair_rows, PAIR, reply="A")
    assert (code, {row["verdict"]["winner"] for row in rows}) == (0, {"tie"})  # A is first in both orders
    assert {row["consistent"] for row in rows} == {False}
    code, printed, _ = cli(
        "judgelm", "study", "position-bias", tmp_path / "out.jsonl", "-o", tmp_path / "study", "--json", "-"
    )
    [row] = json.loads(printed)["tables"][0]["rows"]
    assert (code, row["n"], row["consistency"]["value"]) == (0, 4, 0)


def test_order_rule_given_asks_once(run, pair_rows):
    code, _, rows = run(pair_rows, PAIR, "--order-rule", "given", reply="A")
    assert (code, {row["verdict"]["winner"] for row in rows}, len(rows[0]["shown"])) == (0, {1}, 1)
    code, _, rows = run(pair_rows, PAIR, "--order-rule", "given", "--both-orders", reply="A", name="both")
    assert (code, {row["verdict"]["winner"] for row in rows}, len(rows[0]["shown"])) == (0, {1}, 2)


def test_reasons_are_counted_and_sampled_by_votes(run, table):
    code, errors, rows = run(table, REASON, reply="Yes it is")
    assert (code, rows[0]["shown"][0]["reason"]) == (0, "Yes it is")
    assert "reasons written / cut at the limit" in errors
    code, _, rows = run(table, REASON, "--votes", "3", reply="Yes it is", name="votes")
    assert (code, rows[0]["votes"], rows[0]["verdict"]["label"]) == (0, {"1": "yes", "2": "yes"}, "yes")


def test_export_reports_and_eval_read_the_runs(cli, run, table, pair_rows, tmp_path):
    assert run(table, SUPPORT)[0] == 0
    assert cli("judgelm", "export", tmp_path / "out.jsonl", "-s", table, "-o", tmp_path / "out.csv")[0] == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
        assert (first["context"], first["verdict"]) == ("Paris is in France.", "yes")
    assert run(pair_rows, PAIR, "--order-rule", "given", reply="A", name="run")[0] == 0
    labelled = write_rows(tmp_path / "labels.jsonl", [row | {"winner": 1} for row in rows_of(pair_rows)])
    code, printed, _ = cli("judgelm", "eval", tmp_path / "run.jsonl", "--labels", labelled, "--quiet", "--json", "-")
    found = json.loads(printed)
    assert (code, found["excluded"]["accuracy"]["value"], found["protocol"][:31]) == (
        0,
        1,
        "Each pair was judged in one ord",
    )
    # rows without a question are not one cluster: Wilson's interval of 4 of 4
    assert found["excluded"]["accuracy"]["low"] == pytest.approx(0.51, abs=0.01)
    report = tmp_path / "report.html"
    assert cli("judgelm", "report", tmp_path / "run.jsonl", "--labels", labelled, "-o", report)[0] == 0
    assert report.exists()


def test_labels_are_not_compared_as_pairs(cli, run, table, tmp_path):
    assert run(table, SUPPORT)[0] == 0
    labelled = write_rows(tmp_path / "labels.jsonl", [{"id": str(i), "answer": "a", "label": "yes"} for i in (1, 2)])
    code, _, errors = cli("judgelm", "eval", tmp_path / "out.jsonl", "--labels", labelled)
    assert (code, "mode label" in errors, "judgelm export" in errors) == (1, True, True), errors


def test_a_panel_joins_runs_of_one_prompt(cli, run, table, tmp_path):
    for name, reply in (("first", "Yes"), ("second", "No"), ("third", "No")):
        assert run(table, SUPPORT, reply=reply, name=name)[0] == 0
    runs = [tmp_path / f"{name}.jsonl" for name in ("first", "second", "third")]
    code, _, errors = cli("judgelm", "study", "panel", *runs, "-o", tmp_path / "panel.jsonl")
    assert code == 0, errors
    assert {row["verdict"]["label"] for row in rows_of(tmp_path / "panel.jsonl")} == {"no"}


def test_a_cascade_passes_unsure_pairs_to_the_second_judge(cli, pair_rows, tmp_path):
    prompt, out = tmp_path / "prompt.txt", tmp_path / "out.jsonl"
    prompt.write_text(PAIR)
    small = {f"a{i}|b{i}|Acme": "A" for i in range(4)} | {f"b{i}|a{i}|Acme": "A" if i % 2 else "B" for i in range(4)}
    (tmp_path / "small.json").write_text(json.dumps(small))
    judges = f"{tmp_path}/small.json,B"
    command = ("judgelm-batch", pair_rows, "-o", out, "--engine", "scripted", "--cascade", judges, "--prompt", prompt)
    code, _, errors = cli(*command)
    assert code == 0, errors
    # p1 and p3 are undecided by the small judge; B is second in both orders, which is a tie
    assert [(row["id"], row["verdict"]["winner"]) for row in sorted(rows_of(out), key=lambda row: row["id"])] == [
        ("p0", 1), ("p1", "tie"), ("p2", 1), ("p3", "tie"),
    ]  # fmt: skip
    assert "2 of 4" in errors


def test_requests_are_matched_with_several_files_and_files_of_several_prompts(cli, tmp_path):
    (tmp_path / "good.txt").write_text("Good? {answer}\nSay.\nreply: Yes/No\n")
    (tmp_path / "two.yaml").write_text(
        "- {name: kind, prompt: 'Kind? {answer}!', reply: Yes/No}\n"
        "- {name: short, prompt: 'Short? {answer}!', reply: Long/Not long, ask: prompt}\n"
    )
    texts = {"good": "Good? So.\nSay.", "short": "Short? So!"}
    requests = [
        {
            **{"custom_id": name, "method": "POST", "url": "/v1/chat/completions"},
            "body": {"model": "m", "messages": [{"role": "user", "content": text}]},
        }
        for name, text in texts.items()
    ]
    rows, out = write_rows(tmp_path / "requests.jsonl", requests), tmp_path / "out.jsonl"
    own = ("--prompt", tmp_path / "good.txt", "--prompt", tmp_path / "two.yaml")
    reply = json.dumps({"So.": "Yes", "So": "Not long"})
    (tmp_path / "script.json").write_text(reply)
    model = ("--engine", "scripted", "--model", tmp_path / "script.json")
    code, _, errors = cli("judgelm-batch", rows, "-o", out, *own, *model)
    assert code == 0, errors
    replies = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows_of(out)}
    assert replies == {"good": "Yes", "short": "Not long"}
