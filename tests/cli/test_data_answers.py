"""`judgelm data answers`: collect answers from models and servers, and make pairs for a teacher."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from judgelm.data.answers import AnswerSet, read_questions
from judgelm.data.samples import SampleStream
from tests.support.endpoint.server import endpoint
from tests.support.jsonl_files import rows_of
from tests.support.jsonl_files import write_rows as write
from tests.support.teachers import AnswererBackend, Ledger, TeacherBackend

TOOLS = Path(__file__).parents[2] / "data_tools"
FAULTS = ("429", "500", "stall", "cut", "drop", "torn", None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tool(folder, monkeypatch, capsys):
    """Run a recipe in this process; return exit code, standard output and standard error."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(TOOLS / f"{name}.py"), run_name="__main__")
        return ended.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def collect(tool):
    """Let generators answer questions.jsonl into ans/."""
    return lambda *options: tool("collect_answers", "collect", "questions.jsonl", "-o", "ans", *options)


def questions(n, name="questions.jsonl"):
    return write(name, [{"id": i, "question": f"what is {i}", "reference": f"it is {i}"} for i in range(n)])


def served_by(server, name, **more):
    """Return the options of a generator on a server."""
    more = {"engine_args.base_url": server.base_url, "engine_args.backoff_s": 0.01, "max_tokens": 40} | more
    given = ",".join(f"{key}={value}" for key, value in more.items())
    return ("--generator", f"name={name},engine=openai,model=tiny,form=plain,{given}")


def test_an_answer_row_has_the_fields_of_judgelms_answer_files(collect):
    questions(2)
    code, out, _ = collect("--generator", "name=a,engine=scripted,model=so")
    assert (code, out) == (0, "a: 2 of 2 asked, 0 of them before, 0 at their token limit; answers in ans/a.jsonl\n")
    row = rows_of("ans/a.jsonl")[0]
    names = ("question_id", "question_body", "decoding_method", "model", "text")
    assert [row[name] for name in names] == ["0", "what is 0", "greedy", "a", "so"]
    assert json.loads(Path("ans/a.run.json").read_text())["sessions"][0]["answered"] == 2


def test_questions_become_rows_despite_misbehaving_servers(tool, collect):
    questions(12)
    answering, teaching = Ledger(FAULTS, marker="Question:"), Ledger(FAULTS)
    with (
        endpoint(AnswererBackend("ann"), retry_after="0.02", stall_s=4) as ann,
        endpoint(AnswererBackend("bo")) as bo,
        endpoint(TeacherBackend(), retry_after="0.02", stall_s=4) as teacher,
    ):
        ann.misbehave(answering)
        teacher.misbehave(teaching)
        patience = {"engine_args.timeout_s": 1.5}
        warm = served_by(bo, "bo", temperature=0.7, seed=1)
        code, out, err = collect(*served_by(ann, "ann", **patience), *served_by(bo, "bo"), *warm)
        assert code == 0, err
        assert [line.split(" asked")[0] for line in out.splitlines()] == ["ann: 12 of 12", "bo: 24 of 24"]
        answers = [str(path) for path in Path("ans").glob("*.jsonl")]
        tool("collect_answers", "pairs", "questions.jsonl", "--answers", *answers, "-o", "pairs.jsonl",
             "--pairs-per-question", "2", "--with-reference")  # fmt: skip
        code, out, err = tool(
            "annotate", "pairs.jsonl", "-o", "train.jsonl", "--reference", "both", "--model", "tiny",
            "--engine-arg", f"base_url={teacher.base_url}", "--engine-arg", "timeout_s=1.5",
            "--engine-arg", "backoff_s=0.01",
        )  # fmt: skip
        assert code == 0, err
    assert set(answering.served.values()) == set(teaching.served.values()) == {1}
    assert (len(answering.served), len(teaching.served)) == (12, 48)
    stream = SampleStream(["train.jsonl"])
    labelled = [(sample, *stream.labels(row, False, True)) for row, sample in stream.pairs()]
    assert len(labelled) == 24
    for sample, plain, referenced in labelled:
        assert plain.scores == referenced.scores == tuple(min(10, len(text.split())) for text in sample.answers)
        assert sample.answer_models[0] != sample.answer_models[1]
        assert sample.reference == f"it is {sample.metadata['question_id']}"
    models = {model for sample, _, _ in labelled for model in sample.answer_models}
    assert models == {"ann", "bo", "reference"}


def test_a_model_that_has_finished_is_not_loaded_again(collect):
    questions(3)
    with endpoint(AnswererBackend("ann")) as server:
        answerer = served_by(server, "ann")
        collect(*answerer)
    with Path("ans/ann.jsonl").open("a") as file:
        file.write('{"id": "7#gr')  # a line that a kill tore
    code, out, _ = collect(*answerer)  # the server is gone
    assert (code, out[:39]) == (0, "ann: 3 of 3 asked, 3 of them before, 0 ")


def test_new_questions_and_decodings_are_added_and_other_settings_refused(collect):
    scripted = "name=a,engine=scripted,model=so"
    questions(2)
    collect("--generator", scripted)
    questions(3)
    _, out, _ = collect("--generator", scripted, "--generator", f"{scripted},temperature=0.5")
    assert "a: 6 of 6 asked, 2 of them before" in out
    code, _, err = collect("--generator", f"{scripted},max_tokens=9")
    assert (code, "asked.max_tokens: was 1024, now 9" in err) == (1, True)


def test_server_failures_are_retried_and_do_not_stop_other_models(collect):
    questions(4)
    with endpoint(AnswererBackend("ann")) as server:
        server.misbehave(lambda number, body: "400" if "what is 2" in str(body) else None)
        unknown = ("--generator", "name=x,engine=scripted,model=none.json")
        arguments = (*unknown, *served_by(server, "ann"))
        code, out, err = collect(*arguments)
        assert (code, "x: error: " in err) == (1, True)
        assert "ann: 3 of 4 asked, 0 of them before, 0 at their token limit, 1 failed (engine)" in out
        assert "ann: first failure: HTTP 400" in err
        server.misbehave(None)
        _, out, _ = collect(*arguments)
        assert "ann: 4 of 4 asked, 3 of them before" in out
    assert AnswerSet(["ans/ann.jsonl"]).of(read_questions("questions.jsonl")[2])[0].model == "ann"


def test_a_chat_model_gets_its_chat_template_and_a_base_model_plain_text(collect, tiny_model, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    chat = tmp_path / "chat"
    chat.mkdir()
    for path in tiny_model.iterdir():
        (chat / path.name).symlink_to(path)
    (chat / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}bot:")
    questions(2)
    code, _, err = collect(
        "--generator", f"name=base,engine=transformers,model={tiny_model},max_tokens=5",
        "--generator", f"name=chat,engine=transformers,model={chat},max_tokens=5,system=Hi",
    )  # fmt: skip
    assert code == 0, err
    for name, text in (("base", "Question: what is 0\nAnswer:"), ("chat", "system: Hi user: what is 0 bot:")):
        row = rows_of(f"ans/{name}.jsonl")[0]
        assert row["prompt_tokens"] == len(tokenizer(text, add_special_tokens=name == "base")["input_ids"])
        assert (row["finish_reason"], row["completion_tokens"]) == ("length", 5)


def test_generators_in_the_file_and_on_the_command_line_are_merged(collect):
    questions(1)
    Path("c.yaml").write_text("generators: [{name: a, engine: scripted, model: so, decodings: [{}, {temperature: 1}]}]")
    _, out, _ = collect("--config", "c.yaml", "--generator", "name=a,engine=scripted,model=so,temperature=0.5,seed=4")
    assert "a: 3 of 3" in out
    decodings = [row["decoding_method"] for row in rows_of("ans/a.jsonl")]
    assert decodings == ["greedy", "temperature=1,seed=0", "temperature=0.5,seed=4"]
