"""The product's size stays within the budget in `pyproject.toml`, and a public class name stands once."""

import ast
import io
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = [path for folder in ("judgelm", "train", "serve", "data_tools") for path in (ROOT / folder).rglob("*.py")]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, comment nor docstring."""
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    documented = {
        line
        for string in strings
        if isinstance(string, ast.Constant) and isinstance(string.value, str)
        for line in range(string.lineno, string.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(held - documented)


def test_the_product_stays_within_its_budget():
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["judgelm"]["budget"]
    lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in PRODUCT)
    assert lines <= budget["lines"], "delete what the change makes superfluous, or raise the budget and say for what"


def test_a_public_class_name_stands_once_in_the_tree():
    names = Counter(
        node.name
        for path in (ROOT / "judgelm").rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
