"""Pairs of our own making: limits, safety and facts by program, and answers to other instructions.

    python -m benchmarks.reading_training.own_pairs made --out FOLDER
    python -m benchmarks.reading_training.own_pairs questions --gsm8k train.jsonl --out questions.jsonl
    python -m benchmarks.reading_training.own_pairs neighbours --solutions solutions.jsonl --out neighbours.jsonl

Words and sentences are in `own_words.json`. Two kinds of limits, capitals and no commas, are for development alone:
they show whether a limit that training did not have is noticed too. Standard library only.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.reading_training.pairs import (
    Pair,
    balanced_by_length,
    json_lines,
    placed,
    split_of,
    uniform,
    write_pairs,
)

WORDS: dict[str, Any] = json.loads((Path(__file__).parent / "own_words.json").read_text(encoding="utf-8"))
UNSEEN = ("limit capitals", "limit no commas")
GSM8K_QUESTIONS, SAMPLES = 1500, 4
_PADDING = (
    " It is worth adding some background here, since there is a lot that could be said about it.",
    " Many people ask about this, and there are several ways to look at the matter.",
    " I have tried to give a complete and detailed answer, with everything that you may want to know.",
    " Let me know if you would like to hear more, and I will gladly go into further detail.",
)
Case = tuple[str, str, str]
"""Question, better answer, worse answer."""


def word_count(draw: random.Random) -> Case:
    """Exactly n words, or more or fewer."""
    thing, adjectives = draw.choice(list(WORDS["things"].items()))
    n = draw.randint(2, 5)
    chosen = draw.sample(adjectives, min(len(adjectives), 7))
    other = draw.choice([count for count in (n - 1, n + 1, n + 2) if 1 <= count <= len(chosen)])
    question = f"Describe {thing} in exactly {WORDS['numbers'][str(n)]} words."
    sentence = f"{thing.capitalize()} can be described as {', '.join(chosen[:-1])} and {chosen[-1]}."
    worse = draw.choice([_listed(chosen[:other]), sentence])
    return question, _listed(chosen[:n]), worse


def _listed(words: list[str]) -> str:
    return f"{', '.join(words).capitalize()}."


def without_letter(draw: random.Random) -> Case:
    """Words without a letter, or with it."""
    thing, adjectives = draw.choice(list(WORDS["things"].items()))
    for letter in draw.sample("eaoirtns", 8):
        free = [word for word in adjectives if letter not in word]
        bound = [word for word in adjectives if letter in word]
        if len(free) >= 3 and len(bound) >= 2:
            break
    else:
        return word_count(draw)
    question = f"Give three words for {thing}. None of them may contain the letter '{letter}'."
    worse = draw.sample(free, 1) + draw.sample(bound, 2)
    draw.shuffle(worse)
    return question, _listed(draw.sample(free, 3)), _listed(worse)


def item_count(draw: random.Random) -> Case:
    """A list of n things, or of more or fewer."""
    category, items = draw.choice(list(WORDS["lists"].items()))
    n = draw.randint(3, 6)
    other = draw.choice([n - 1, n + 1, n + 2, n + 3])
    style = draw.choice(("{}", "- {}", "numbered"))
    chosen = draw.sample(items, min(len(items), n + 3))
    return (
        f"List exactly {WORDS['numbers'][str(n)]} {category}.",
        _lines(chosen[:n], style),
        _lines(chosen[:other], style),
    )


def _lines(items: list[str], style: str) -> str:
    if style == "numbered":
        return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))
    return "\n".join(style.format(item) for item in items)


def sorted_items(draw: random.Random) -> Case:
    """In alphabetical order, or not."""
    category, items = draw.choice(list(WORDS["lists"].items()))
    chosen = draw.sample(items, draw.randint(4, 6))
    shuffled = chosen[:]
    while shuffled == sorted(chosen, key=str.casefold):
        draw.shuffle(shuffled)
    question = f"Put these {category} into alphabetical order: {', '.join(draw.sample(chosen, len(chosen)))}."
    return question, ", ".join(sorted(chosen, key=str.casefold)), ", ".join(shuffled)


def json_object(draw: random.Random) -> Case:
    """A JSON object alone, or prose, other keys, broken syntax, or words around it."""
    country, capital = draw.choice(list(WORDS["capitals"].items()))
    keys = draw.choice((("country", "capital"), ("name", "capital_city"), ("land", "city")))
    better = json.dumps(dict(zip(keys, (country, capital), strict=True)))
    worse = draw.choice([
        f"{capital} is the capital of {country}, and it is also its seat of government.",
        better.replace('"', "", 2),
        better[:-1],
        json.dumps({keys[0]: country}),
        f"Sure! Here is the JSON object that you asked for:\n{better}\nLet me know if you need more.",
    ])  # fmt: skip
    question = f"Reply with a JSON object alone, with the keys {keys[0]} and {keys[1]}: {country} and its capital."
    return question, better, worse


def language(draw: random.Random) -> Case:
    """In the language asked for, or in another."""
    entry = draw.choice(WORDS["languages"])
    asked = draw.choice([name for name in entry if name != "question"])
    other = draw.choice([name for name in entry if name not in ("question", asked)])
    return f"{entry['question']} Answer in {asked}.", entry[asked], entry[other]


def yes_or_no_alone(draw: random.Random) -> Case:
    """One word, or the right word with a lecture."""
    statement, answer = draw.choice(WORDS["statements"])
    lecture = f"{answer.capitalize()}, and here is why." + "".join(draw.sample(_PADDING, draw.randint(1, 3)))
    return f"{statement} Reply with yes or no alone.", f"{answer.capitalize()}.", lecture


def one_sentence(draw: random.Random) -> Case:
    """One sentence, or the same and more."""
    thing, adjectives = draw.choice(list(WORDS["things"].items()))
    sentence = f"{thing.capitalize()} can be {draw.choice(adjectives)} and {draw.choice(adjectives)}."
    more = sentence + "".join(draw.sample(_PADDING, draw.randint(1, 3)))
    return f"Tell me about {thing} in one sentence.", sentence, more


def last_word(draw: random.Random) -> Case:
    """Ends with a word, or does not."""
    thing, adjectives = draw.choice(list(WORDS["things"].items()))
    first, last = draw.sample(adjectives, 2)
    question = f"Write a sentence about {thing} that ends with the word '{last}'."
    return (
        question,
        f"{thing.capitalize()} can be {first} and {last}.",
        f"{thing.capitalize()} can be {last} and {first}.",
    )


def capitals(draw: random.Random) -> Case:
    """In capital letters, or not all of it."""
    thing, adjectives = draw.choice(list(WORDS["things"].items()))
    sentence = f"{thing.capitalize()} can be {draw.choice(adjectives)}."
    return f"Say something about {thing}, in capital letters only.", sentence.upper(), sentence


def no_commas(draw: random.Random) -> Case:
    """Without commas, or with them."""
    category, items = draw.choice(list(WORDS["lists"].items()))
    chosen = draw.sample(items, 3)
    better = f"{chosen[0]} and {chosen[1]} and {chosen[2]}"
    return f"Name three {category} without using a comma.", better, ", ".join(chosen)


LIMITS: dict[str, Callable[[random.Random], Case]] = {
    "limit word count": word_count, "limit letter": without_letter, "limit item count": item_count,
    "limit order": sorted_items, "limit json": json_object, "limit language": language,
    "limit yes or no": yes_or_no_alone, "limit one sentence": one_sentence, "limit last word": last_word,
    "limit capitals": capitals, "limit no commas": no_commas,
}  # fmt: skip


def limits(draw: random.Random, per_kind: int = 140) -> Iterator[Pair]:
    """Pairs in which one answer keeps the limit that the question sets."""
    for kind, make in LIMITS.items():
        for number in range(per_kind):
            question, better, worse = make(draw)
            if better != worse:
                split = "dev" if kind in UNSEEN else split_of(question)
                yield _pair(f"{kind.replace(' ', '-')}-{number}", question, better, worse, "limits", kind, draw, split)


def safety(draw: random.Random) -> Iterator[Pair]:
    """Harmful requests refused with an offer against vaguely granted; harmless ones answered against refused."""
    for number, (question, alternative) in enumerate(WORDS["harmful"]):
        for version in range(3):
            refusal = f"{draw.choice(WORDS['refusals'])} {alternative}"
            granted = draw.choice(WORDS["compliance"]) + "".join(draw.sample(_PADDING, draw.randint(0, 2)))
            yield _pair(f"harmful-{number}-{version}", question, refusal, granted, "safety", "harmful", draw)
    for number, (question, answer) in enumerate(WORDS["harmless"]):
        for version in range(2):
            refusal = f"{draw.choice(WORDS['refusals'])} {draw.choice(WORDS['lectures'])}"
            yield _pair(f"harmless-{number}-{version}", question, answer, refusal, "safety", "harmless", draw)


def facts(draw: random.Random) -> Iterator[Pair]:
    """The right name against another of its kind, either of them with words around it."""
    forms = ("{}.", "It is {}.", "The answer is {}, as is widely known.", "{}. It is well known for this.")
    for name, question in (("capitals", "What is the capital of {}?"), ("symbols", "Which element has the symbol {}?")):
        table = WORDS[name]
        for number, (key, right) in enumerate(table.items()):
            for version in range(3):
                wrong = draw.choice([value for value in table.values() if value != right])
                better, worse = (draw.choice(forms).format(value) for value in (right, wrong))
                worse += draw.choice(("", draw.choice(_PADDING)))
                asked = question.format(key)
                yield _pair(f"{name}-{number}-{version}", asked, better, worse, "facts", name, draw)


def _pair(
    name: str, question: str, better: str, worse: str, family: str, kind: str, draw: random.Random,
    split: str | None = None,
) -> Pair:  # fmt: skip
    answers, label = placed(better, worse, draw)
    return Pair(
        id=name, question=question, answers=answers, label=label, family=family, kind=kind,
        split=split or split_of(question),
    )  # fmt: skip


def instructions() -> list[tuple[str, str, str]]:
    """Template, topic and instruction, of all templates and the topics that suit them."""
    return [
        (template, topic, template.format(topic))
        for group in WORDS["instructions"]
        for template in group["templates"]
        for topic in group["topics"]
    ]


def questions(gsm8k: Path, draw: random.Random) -> list[dict[str, str]]:
    """What the base is to answer: GSM8K questions four times, own instructions in short and in full; shuffled."""
    rows = [row["question"] for row in json_lines(gsm8k)]
    asked = []
    for question in draw.sample(rows, GSM8K_QUESTIONS):
        for sample in range(SAMPLES):
            short = "\nSolve it in a few short lines. End with: The answer is N." if sample % 2 else ""
            asked.append({"set": "gsm8k", "question": question, "prompt": question + short, "style": str(sample % 2)})
    for template, topic, question in instructions():
        for style, request in (("short", "Answer in one to three sentences."), ("full", "Answer in detail.")):
            prompt = f"{question} {request}"
            asked.append(
                {"set": "own", "question": question, "prompt": prompt, "style": style, "template": template,
                 "topic": topic}
            )  # fmt: skip
    return draw.sample(asked, len(asked))


def neighbours(solutions: Path, draw: random.Random) -> list[Pair]:
    """An answer to this instruction against one to its neighbour: same topic, or same template; mostly a longer one."""
    answers: dict[tuple[str, str, str], str] = {}
    for row in json_lines(solutions):
        if row["set"] == "own" and row["finished"] and len(row["answer"]) >= 40:
            answers[row["template"], row["topic"], row["style"]] = row["answer"]
    pairs = []
    for (template, topic, style), good in answers.items():
        others = [
            (key, text) for key, text in answers.items() if (key[0] == template) != (key[1] == topic)
        ]  # fmt: skip
        question = template.format(topic)
        for number, (key, bad) in enumerate(draw.sample(others, min(4, len(others)))):
            if split_of(question) == "dev" or split_of(key[0].format(key[1])) == "train":
                name = f"own-{uniform(question):.9f}-{style}-{number}"
                pairs.append(_pair(name, question, good, bad, "longer", "own neighbour", draw))
    chosen = []
    for split in ("train", "dev"):
        chosen += balanced_by_length([pair for pair in pairs if pair.split == split], draw, 1400, 0.3)
    return chosen


def everyday(path: Path) -> Iterator[Pair]:
    """The project's sixty everyday pairs, for development."""
    for row in json_lines(path):
        yield Pair(
            id=row["id"], question=row["question"], answers=(row["answer_1"], row["answer_2"]),
            label={1: 1.0, 2: 0.0}.get(row["winner"], 0.5), family="everyday", kind=f"everyday {row['category']}",
            split="dev",
        )  # fmt: skip


def main() -> None:
    """Write what the command names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("made", "questions", "neighbours"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path)
    parser.add_argument("--solutions", type=Path)
    parser.add_argument("--everyday", type=Path, default=Path(__file__).parents[2] / "judgelm/everyday_pairs.jsonl")
    options = parser.parse_args()
    draw = random.Random(0)
    if options.command == "questions":
        rows = questions(options.gsm8k, draw)
        options.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        print(f"{len(rows)} prompts")
        return
    if options.command == "neighbours":
        pairs = neighbours(options.solutions, draw)
        write_pairs(options.out, pairs)
        print(f"{len(pairs)} pairs")
        return
    made = {
        "limits": limits(draw),
        "safety": safety(draw),
        "facts": facts(draw),
        "everyday": everyday(options.everyday),
    }
    for name, pairs_of in made.items():
        unique = {(pair.question, frozenset(pair.answers)): pair for pair in pairs_of}
        write_pairs(options.out / f"own_{name}.jsonl", unique.values())
        counts: dict[str, int] = defaultdict(int)
        for pair in unique.values():
            counts[f"{pair.kind} {pair.split}"] += 1
        print(f"{name}: {dict(counts)}")


if __name__ == "__main__":
    main()
