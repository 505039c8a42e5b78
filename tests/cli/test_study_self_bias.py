import io
import json

import pytest
import typer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertTokenizerFast
from typer.testing import CliRunner

from judgelm.cli.commands import add_command
from judgelm.cli.console import PlainConsole
from judgelm.cli.study.answers import _token_counter, self_bias_command
from judgelm.data.sources.rating_tables import RatingColumns, read_ratings
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import encode_line
from judgelm.metrics.resampling import Resampling
from judgelm.records import GradeVerdict, Judgment, Shown, Unparsed
from judgelm.runs.serialization import judgment_row
from judgelm.studies.self_bias import study_self_bias
from judgelm.studies.self_bias_fits import SelfBiasOptions


@pytest.fixture
def run():
    app = typer.Typer()
    add_command(app, self_bias_command, "study")

    def call(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)

    return call


@pytest.fixture
def ratings(tmp_path):
    """Two models of one family judge each other and themselves; each gives itself 1 of 5 more."""
    path = tmp_path / "ratings.csv"
    lines = ["prompt,aspect,judge,model,score,polite"]
    for item in range(20):
        for place, model in enumerate(("left", "right", "other")):
            human = 1 + (item + 2 * place) % 4
            lines.append(f"{item},tone,human,{model},{human},")
            lines += [
                f"{item},tone,{judge},{model},{human + (judge == model)},{(item + place) % 2}"
                for judge in ("left", "right")
            ]
    path.write_text("\n".join(lines) + "\n")
    return path


NAMED = ("--item-column", "prompt", "--dimension-column", "aspect", "--bootstrap", 100, "--draws", 2)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_in_a_terminal_alone(run, ratings, tmp_path, monkeypatch, terminal):
    shown = io.StringIO()
    console = PlainConsole()
    console.file, console._force_terminal = shown, terminal
    monkeypatch.setattr("judgelm.cli.study.answers.console", console)
    assert run(ratings, "-o", tmp_path / "out", *NAMED).exit_code == 0
    assert bool(shown.getvalue()) == terminal


def test_each_step_is_said_as_it_begins(ratings):
    columns = RatingColumns(item="prompt", dimension="aspect")
    steps = []
    options = SelfBiasOptions(draws=2, resampling=Resampling(resamples=100))
    study_self_bias(read_ratings([ratings], columns), options, progress=steps.append)
    assert steps[0] == "main regression"
    assert "ordinal regressions" in steps
    assert steps[-1] == "tables and their intervals"


def test_the_command_writes_the_study_and_prints_json(run, ratings, tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("pair: [left, right]\n")
    done = run(
        ratings, "-o", tmp_path / "out", *NAMED, "--families", families, "--indicator", "polite",
        "--debiased", tmp_path / "debiased.jsonl", "--json", "-",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    [table] = [table for table in found["tables"] if table["name"] == "coefficients"]
    own = [row["estimate"]["value"] for row in table["rows"] if row["term"] == "self-bias (gamma)"]
    assert own == pytest.approx([0.2, 0.2])  # 1 of 5
    assert (tmp_path / "out").is_dir()
    first = json.loads((tmp_path / "debiased.jsonl").read_text().splitlines()[0])
    assert first["judge"] == first["model"] == "left"
    assert first["debiased"] == pytest.approx(first["reference"])


def test_families_must_be_lists(run, ratings, tmp_path):
    families = tmp_path / "families.yaml"
    families.write_text("pair: left\n")
    with pytest.raises(ConfigError, match=r"expected family: \[model, ...\]"):
        run(ratings, "-o", tmp_path / "out", *NAMED, "--families", families)


def test_run_files_of_rubrics_are_ratings_too(run, tmp_path):
    # people give 1 to 4 of 5, each judge the same, and itself one level more
    rows, human = [], ["item,dimension,judge,model,score"]
    for item in range(12):
        for place, model in enumerate(("left", "right", "other")):
            score = 1 + (item + 2 * place) % 4
            row = {"id": f"{item}/{model}", "item": f"p{item}", "question": f"q{item}", "answer": "a b"}
            rows.append(row | {"answer_models": [model], "score_by_people": score})
            human.append(f"p{item},conciseness,human,{model},{score}")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "human.csv").write_text("\n".join(human) + "\n")
    for judge in ("left", "right"):
        judged = []
        for row in rows:
            score = row["score_by_people"] + (judge in row["answer_models"])
            failure = Unparsed("off_grammar", "?") if row["id"] == "0/other" else None
            part = Shown(order=(0,), text="", part="conciseness", scores=None if failure else (score,), failure=failure)
            verdict = None if failure else GradeVerdict(score=score / 5)
            judged.append(Judgment(sample_id=row["id"], mode="rubric", verdict=verdict, shown=(part,), failure=failure))
        (tmp_path / f"{judge}.jsonl").write_bytes(b"".join(encode_line(judgment_row(one)) for one in judged))
    judges = [argument for judge in ("left", "right") for argument in ("--run", f"{judge}={tmp_path}/{judge}.jsonl")]
    common = ("-o", tmp_path / "out", "--bootstrap", 100, "--draws", 2, "--no-checks", "--json", "-")
    done = run(tmp_path / "human.csv", *judges, "--rows", tmp_path / "rows.jsonl", *common)
    found = json.loads(done.stdout)
    [table] = [table for table in found["tables"] if table["name"] == "coefficients"]
    own = [row["estimate"]["value"] for row in table["rows"] if row["term"] == "self-bias (gamma)"]
    assert own == pytest.approx([0.2, 0.2])
    assert found["counts"]["ratings without a score"] == 2
    with pytest.raises(ConfigError, match="also give the rows that were judged"):
        run(tmp_path / "human.csv", *judges, *common)


def test_lengths_of_answers_are_counted_by_a_named_tokenizer(run, tmp_path):
    pieces = BertTokenizerFast(tokenizer_object=Tokenizer(WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "b": 3})))
    pieces.backend_tokenizer.pre_tokenizer = Whitespace()
    pieces.save_pretrained(tmp_path / "bert")
    assert _token_counter(str(tmp_path / "bert"))("ab b") == 3
    (tmp_path / "human.csv").write_text("item,judge,model,score\np,human,left,1\n")
    with pytest.raises(ConfigError, match="files of ratings bring their lengths"):
        run(tmp_path / "human.csv", "-o", tmp_path / "out", "--length-tokenizer", tmp_path / "bert")


def test_a_run_without_a_model_of_the_answer_is_refused(run, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "question": "q", "answer": "a"}\n')
    one = Judgment(sample_id="1", mode="single", verdict=GradeVerdict(score=8), shown=())
    (tmp_path / "run.jsonl").write_bytes(encode_line(judgment_row(one)))
    with pytest.raises(InputError, match="its row has 1 answers and 0 models"):
        run("--run", f"x={tmp_path}/run.jsonl", "--rows", tmp_path / "rows.jsonl", "-o", tmp_path / "out")


def test_helm_instructs_runs_are_ratings(run, tmp_path):
    models = {"openai_gpt-4-0314": 3, "openai_gpt-3.5-turbo-0613": 2, "anthropic_claude-v1.3": 3}
    own = {("gpt4", "openai_gpt-4-0314"), ("claude", "anthropic_claude-v1.3")}
    for model, quality in models.items():
        for evaluator in ("mturk", "gpt4", "claude", "scale"):
            folder = tmp_path / "helm" / f"koala:model={model},evaluator={evaluator}"
            folder.mkdir(parents=True)
            rows = []
            for item in range(12):
                # judges agree with people but for one point more for their own completions
                score = quality - item % 2 + ((evaluator, model) in own)
                stats = [{"name": {"name": "Helpfulness"}, "count": 1, "mean": score}]
                rows.append({"instance_id": f"id{item}", "stats": stats})
            (folder / "per_instance_stats.json").write_text(json.dumps(rows))
    out = tmp_path / "out"
    result = run(tmp_path / "helm", "-o", out, "--no-checks", "--bootstrap", 100, "--draws", 2)
    assert result.exit_code == 0, result.output
    assert "3 rows: evaluator scale is none of the paper's" in " ".join(result.output.split())
    study = json.loads((out / "study.json").read_text())
    [rows] = [table["rows"] for table in study["tables"] if table["name"] == "coefficients"]
    effects = {(row["term"].split()[0], row["level"]): row["estimate"]["value"] for row in rows}
    # one point of the highest score, 4
    assert effects["self-bias", "GPT-4"] == pytest.approx(1 / 4)
    assert effects["self-bias", "Claude v1.3"] == pytest.approx(1 / 4)
    assert effects["family-bias", "GPT"] == pytest.approx(0)  # GPT-4 on GPT-3.5 Turbo
