"""A Containerfile's instructions, and a stage of it followed in a folder: no container engine, no root."""

import fnmatch
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

NEEDS_ROOT = ("apt-get", "groupadd", "useradd")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`word` is its keyword in capitals, `text` the rest with continued lines joined."""

    word: str
    text: str


def instructions(path: Path) -> list[Instruction]:
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [Instruction(part[0].upper(), part[1] if len(part) > 1 else "") for part in parts]


def stages(path: Path) -> dict[str, list[Instruction]]:
    result: dict[str, list[Instruction]] = {"": []}
    name = ""
    for step in instructions(path):
        if step.word == "FROM":
            name = step.text.rpartition(" AS ")[2].strip()
            result[name] = []
        else:
            result[name].append(step)
    return result


def build_context(root: Path) -> list[str]:
    """The files that .dockerignore lets into an image, relative to the checkout, of those that git does not ignore."""
    rules = [line.strip() for line in (root / ".dockerignore").read_text(encoding="utf-8").splitlines()]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in listed if name and (root / name).is_file() and _is_let_in(name, rules)]


def _is_let_in(name: str, rules: list[str]) -> bool:
    let_in = True
    folders = [name, *(parent.as_posix() for parent in Path(name).parents)]
    for rule in rules:
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!")
        pattern, tails = (pattern[3:], True) if pattern.startswith("**/") else (pattern, False)
        if any(fnmatch.fnmatchcase(Path(one).name if tails else one, pattern) for one in folders if one != "."):
            let_in = rule.startswith("!")
    return let_in


@dataclass(slots=True)
class Image:
    """Stages followed below a folder."""

    root: Path
    checkout: Path
    environment: Mapping[str, str]
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def follow(self, steps: list[Instruction]) -> dict[str, str]:
        """Do a stage's steps."""
        folder, variables, arguments = "/", {}, {}
        for step in steps:
            if step.word == "WORKDIR":
                folder = step.text
                self._path(folder).mkdir(parents=True, exist_ok=True)
            elif step.word == "ARG":
                name, _, value = step.text.partition("=")
                arguments[name] = self.arguments.get(name, value)
            elif step.word == "ENV":
                pairs = re.findall(r'(\w+)=("[^"]*"|\S+)', step.text)
                variables |= {name: self._below(value.strip('"')) for name, value in pairs}
            elif step.word == "COPY":
                self._copy(step.text.split(), folder)
            elif step.word == "RUN":
                self._run(step.text, folder, arguments | variables)
        path = variables.get("PATH", "").replace("$PATH", self.environment["PATH"])
        return variables | ({"PATH": path} if path else {})

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _below(self, text: str) -> str:
        return re.sub(r"(?<![\w./])/(opt/judgelm|src|cache|work|recipes)\b", rf"{self.root}/\1", text)

    def _copy(self, words: list[str], folder: str) -> None:
        if words[0].startswith("--from="):
            return  # stages share the root
        *sources, target = words
        goal = self._path(target if target.startswith("/") else f"{folder}/{target}")
        for name in build_context(self.checkout):
            for source in sources:
                inside = _inside(name, source)
                if inside is not None:
                    (goal / inside).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(self.checkout / name, goal / inside)

    def _run(self, text: str, folder: str, variables: Mapping[str, str | None]) -> None:
        for command in self._possible(text):
            subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self._below(command)], cwd=self._path(folder),
                env={**self.environment, **{name: value for name, value in variables.items() if value is not None}},
                check=True, capture_output=True, text=True,
            )  # fmt: skip

    def _possible(self, text: str) -> Iterator[str]:
        for command in re.split(r"\s*&&\s*", text):
            if command.split()[0] in NEEDS_ROOT or "/var/lib/apt" in command:
                self.left_out.append(command)
            else:
                yield command


def _inside(name: str, source: str) -> str | None:
    if source == ".":
        return name
    if name == source:
        return Path(name).name
    return os.path.relpath(name, source) if name.startswith(f"{source}/") else None
