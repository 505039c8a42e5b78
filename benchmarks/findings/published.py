"""Published judgments that are scored, and the labels that they are scored against.

Paths that begin with `data/` lie in the folder of data, others in clones of the repositories that published them.
"""

from dataclasses import dataclass, field

_LLMBAR_SETS = ("Natural", "Adversarial_Neighbor")
_JUDGEBENCH = "JudgeBench/{folder}/dataset=judgebench,response_model={model}{rest}.jsonl"
_GPT_4O, _CLAUDE = "gpt-4o-2024-05-13", "claude-3-5-sonnet-20240620"
_VICUNA = "data/vicuna_reviews/review/vicuna-13b_20230322-clean-lang__review_gpt35_vicuna-13b.jsonl"
_FAIREVAL = ("question.jsonl", "answer/answer_gpt35.jsonl", "answer/answer_vicuna-13b.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSet:
    """Rows with labels, made by `judgelm data import FORMAT FILES`.

    Attributes:
        against: where the labels come from.
        annotator: of AlpacaEval's annotations, whose verdicts are the labels.
    """

    format: str
    files: tuple[str, ...]
    against: str
    annotator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJudge:
    """A judge's published files, made a run file by `judgelm data import-judgments FILES`.

    Attributes:
        labels: key of `SETS`; None where no labels are at hand, so that its orders alone are compared.
        rows: whether ids are those of the labelled rows with the same question and answers.
    """

    name: str
    judge: str
    on: str
    files: tuple[str, ...]
    labels: str | None
    options: tuple[str, ...] = field(default=())
    rows: bool = False


SETS = {
    "llmbar": LabelledSet(
        format="llmbar", files=tuple(f"data/llmbar/{name}/dataset.json" for name in _LLMBAR_SETS), against="gold labels"
    ),
    "pandalm": LabelledSet(format="pandalm", files=("data/pandalm/testset-v1.json",), against="majority of 3 people"),
    "judgebench": LabelledSet(
        format="judgebench",
        files=tuple(_JUDGEBENCH.format(folder="data", model=model, rest="") for model in (_GPT_4O, _CLAUDE)),
        against="the right answer",
    ),
    "auto-j": LabelledSet(format="auto-j", files=("auto-j/data/test/testdata_pairwise.jsonl",), against="people"),
    "faireval": LabelledSet(
        format="faireval",
        files=tuple(f"FairEval/{name}" for name in (*_FAIREVAL, "review/review_gpt35_vicuna-13b_human.txt")),
        against="FairEval's people",
    ),
    "alpaca-eval": LabelledSet(
        format="alpaca-eval",
        files=("data/alpaca_eval_judgments",),
        against="GPT-4-turbo with CoT",
        annotator="alpaca_eval_cot_gpt4_turbo_fn",
    ),
}


def _llmbar(judge: str, prompt: str) -> PublishedJudge:
    return PublishedJudge(
        name=f"llmbar-{judge}-{prompt}".lower(),
        judge=f"{judge}, {prompt}",
        on="LLMBar",
        files=tuple(f"data/llmbar/{name}/evaluators/{judge}/{prompt}/result.json.gz" for name in _LLMBAR_SETS),
        labels="llmbar",
    )


def _judgebench(judge: str, prompt: str, model: str, answers: str = _GPT_4O) -> PublishedJudge:
    rest = f",judge_name={prompt},judge_model={model}"
    return PublishedJudge(
        name=f"judgebench-{judge}".lower(),
        judge=judge,
        on="JudgeBench",
        files=(_JUDGEBENCH.format(folder="outputs", model=answers, rest=rest),),
        labels="judgebench",
    )


def _alpaca_eval(name: str, judge: str, annotator: str) -> PublishedJudge:
    return PublishedJudge(
        name=f"alpaca-eval-{name}",
        judge=judge,
        on="AlpacaEval",
        files=("data/alpaca_eval_judgments",),
        labels="alpaca-eval",
        options=("--judge", annotator),
        rows=True,
    )


JUDGES = (
    *(_llmbar("GPT-4", prompt) for prompt in ("Vanilla", "CoT", "Swap", "Rating")),
    *(_llmbar("ChatGPT", prompt) for prompt in ("Vanilla", "CoT")),
    _llmbar("LLaMA2", "CoT"),
    PublishedJudge(
        name="pandalm-gpt-3.5", judge="GPT-3.5", on="PandaLM", labels="pandalm",
        files=("data/pandalm/gpt-3.5-turbo-testset-v1.json",),
    ),
    PublishedJudge(
        name="pandalm-7b", judge="PandaLM-7B", on="PandaLM", labels="pandalm",
        files=("data/pandalm/pandalm-7b-testset-v1.json",),
    ),
    _judgebench("o1-mini", "arena_hard", "o1-mini-2024-09-12"),
    _judgebench("Claude-3-Haiku", "arena_hard", "claude-3-haiku-20240307", _CLAUDE),
    _judgebench("Skywork-Reward-Gemma-2-27B", "reward_model", "Skywork_Skywork-Reward-Gemma-2-27B"),
    _judgebench("Skywork-Reward-Llama-3.1-8B", "reward_model", "Skywork_Skywork-Reward-Llama-3.1-8B"),
    _judgebench("InternLM2-20B-Reward", "reward_model", "internlm_internlm2-20b-reward"),
    _judgebench("InternLM2-7B-Reward", "reward_model", "internlm_internlm2-7b-reward"),
    _judgebench("GRM-Gemma-2B", "reward_model", "Ray2333_GRM-Gemma-2B-rewardmodel-ft"),
    PublishedJudge(
        name="auto-j-13b", judge="Auto-J-13B", on="Auto-J", labels="auto-j", options=("--judge", "auto-j-13b"),
        files=("auto-j/data/outputs/pairwise_example_output.jsonl",
               "auto-j/data/outputs/pairwise_exchange_example_output.jsonl"),
    ),
    _alpaca_eval("weighted", "GPT-4-turbo, probabilities", "weighted_alpaca_eval_gpt4_turbo"),
    _alpaca_eval("verdicts", "GPT-4-turbo, verdicts", "alpaca_eval_gpt4_turbo_fn"),
    PublishedJudge(
        name="vicuna", judge="GPT-4, GPT-3.5 against Vicuna-13B", on="Vicuna", labels="faireval", files=(_VICUNA,),
        options=("--judge", "gpt-4", "--id", "faireval-{question_id}"),
    ),
    PublishedJudge(
        name="qlora", judge="GPT-4, six systems against GPT-3.5", on="Vicuna", labels=None,
        files=("data/qlora_ratings/relative-gpt-3.5/*.jsonl",), options=("--judge", "gpt-4"),
    ),
    *(
        PublishedJudge(
            name=f"cherry-gpt-{version}", judge=f"GPT-{version}, Cherry against Alpaca", on="Cherry LLM's four sets",
            files=tuple(
                f"Cherry_LLM/logs/cherry_alpaca_5_per-VS-alpaca/{name}_wrap_reviews_gpt{version}.json"
                for name in ("koala", "sinstruct", "vicuna", "wizardlm")
            ),
            labels=None, options=("--judge", f"gpt-{version}"),
        )
        for version in ("4", "3.5")
    ),
)  # fmt: skip
