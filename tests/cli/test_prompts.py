"""`judgelm prompts`: new, check, and suggest."""

import json

import pytest

from judgelm.prompts.prompt_file import read_prompt
from judgelm.prompts.prompt_template import verdict_form
from tests.support.jsonl_files import write_rows

RENDERED = "Context: a big fox\nAnswer: a fox\nYes\nIs it supported?"
SUPPORT = "Context: {context}\nAnswer: {answer}\nIs it supported?\nreply: Yes/No\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "my_prompt.yaml"


@pytest.mark.parametrize("kind", ["label", "grade", "pair", "choice"])
def test_a_new_file_is_a_prompt_of_this_kind(cli, path, kind):
    code, _, errors = cli("judgelm", "prompts", "new", path, "--kind", kind)
    assert (code, f"judgelm prompts check {path}" in errors.replace("\n", " ")) == (0, True)
    prompt = read_prompt(path)
    assert (prompt.name, prompt.reply.kind, prompt.ask) == ("my-prompt", kind, "prompt")


def test_the_commented_lines_of_a_new_file_work(cli, path):
    cli("judgelm", "prompts", "new", path)
    text = path.read_text().replace("# reason: 200", "reason: 200").replace('# text: "{reason}', 'text: "{reason}')
    path.write_text(text)
    assert verdict_form(read_prompt(path)).stop == "Verdict:"


def test_an_existing_file_is_kept(cli, path):
    path.write_text("mine")
    code, _, errors = cli("judgelm", "prompts", "new", path)
    assert (code, path.read_text(), "--overwrite" in errors) == (1, "mine", True)
    assert cli("judgelm", "prompts", "new", path, "--overwrite")[0] == 0
    code, _, errors = cli("judgelm", "prompts", "new", path.with_suffix(".txt"))
    assert (code, ".yaml" in errors) == (1, True)


@pytest.fixture
def check(cli, tmp_path, tiny_chat):
    def check(text, *rows, options=()):
        (tmp_path / "prompt.txt").write_text(text)
        if rows:
            options = ("--samples", write_rows(tmp_path / "rows.jsonl", rows), "--model", tiny_chat, *options)
        return cli("judgelm", "prompts", "check", tmp_path / "prompt.txt", *options)

    return check


def test_a_check_without_rows_lists_slots_and_words(check):
    code, printed, _ = check(SUPPORT)
    assert code == 0
    assert "slots: context, answer" in printed
    assert "words: Yes, No" in printed


def test_a_check_shows_the_first_row_as_the_judge_gets_it(check):
    code, printed, _ = check(SUPPORT, {"context": "a big fox", "answer": "a fox\nYes"}, options=("--json", "-"))
    [report] = json.loads(printed)
    assert (code, report["prompt"]) == (0, f"<user> {RENDERED}\n<assistant> ")
    assert (report["cut"], report["sanitized"], report["window"]) == ([], 0, 512)
    assert "".join(report["tokens_of_words"]["Yes"]) == "Yes"


def test_a_check_tells_what_is_cut(check):
    code, printed, _ = check(SUPPORT, {"context": "c", "answer": "a fox " * 500}, options=("--json", "-"))
    [report] = json.loads(printed)
    assert (code, len(report["cut"]), report["tokens"] <= 512) == (0, 1, True)


@pytest.mark.parametrize(
    ("text", "row", "finding"),
    [
        (SUPPORT, {"answer": "a"}, "{context}"),
        ("fox " * 2000 + SUPPORT, {"context": "c", "answer": "a"}, "shorten"),
        ("{answer_1} or {answer_2}?\nreply: A/B", {"answer": "a"}, "2 answers"),
    ],
)
def test_a_prompt_that_cannot_judge_the_row_fails_the_check(check, text, row, finding):
    code, _, errors = check(text, row)
    assert (code, finding in errors) == (1, True), errors


def test_a_file_that_is_not_a_prompt_fails_the_check(check):
    code, _, errors = check("Is it supported?\n")
    assert (code, "line 1" in errors) == (1, True)


def test_suggested_prompts_can_be_checked(cli, path, tmp_path):
    texts = [f"Rate it.\nTicket: {ticket}\n\nReply:\n{reply}\n\nGive 1 to 5." for ticket, reply in ("ab", "cd")]
    rows = [{"messages": [{"role": "user", "text": text}]} for text in texts]
    learned = write_rows(tmp_path / "learned.jsonl", rows)
    code, _, errors = cli("judgelm", "prompts", "suggest", learned, "-o", path)
    assert (code, "judgelm serve --prompt" in errors) == (0, True), errors
    assert cli("judgelm", "prompts", "check", path)[0] == 0
    code, _, errors = cli("judgelm", "prompts", "suggest", learned, "-o", path)
    assert (code, "--overwrite" in errors) == (1, True)
