"""Claims of an answer."""

from functools import lru_cache
from typing import NamedTuple

from judgelm.prompts.passages import sentences_of


class Claim(NamedTuple):
    """A part of an answer that is checked by itself.

    Attributes:
        text: the claim as in the answer, without list markers.
        lead: text that the claim depends on: the header of a table, or the sentence that introduces a list.
    """

    text: str
    lead: str = ""

    @property
    def in_full(self) -> str:
        """The claim after its lead."""
        separator = "\n" if self.lead.startswith("|") else " "
        return f"{self.lead}{separator}{self.text}" if self.lead else self.text


@lru_cache(maxsize=1024)
def split_claims(answer: str, language: str = "en") -> tuple[Claim, ...]:
    """Split an answer into sentences, rows of tables, and blocks of code.

    Headings, rules, and text without letters and digits are not claims. A sentence that ends with a colon before a list
    is not a claim, but the lead of each item.

    Args:
        answer: plain text or Markdown.
        language: ISO 639-1 code, for the rules of abbreviations.
    """
    from markdown_it import MarkdownIt

    claims: list[Claim] = []
    lead, header, depth = "", "", 0
    lines = answer.splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse(answer)
    for index, token in enumerate(tokens):
        depth += token.nesting if token.type.endswith(("_list_open", "_list_close")) else 0
        if depth == 0 and not token.type.endswith("_list_close") and token.type not in ("paragraph_open", "inline"):
            lead = lead if token.type == "paragraph_close" else ""
        if token.type in ("fence", "code_block"):
            claims.append(Claim(token.content.strip("\n")))
        elif token.type == "tr_open" and token.map is not None:
            row = lines[token.map[0]].strip()
            if header:
                claims.append(Claim(row, header))
            header = header or row
        elif token.type == "table_close":
            header = ""
        elif token.type in ("inline", "html_block") and not header and tokens[index - 1].type != "heading_open":
            sentences = list(sentences_of(token.content, language))
            opens_list = tokens[index + 2 : index + 3] and tokens[index + 2].type.endswith("_list_open")
            next_lead = sentences.pop() if opens_list and sentences and sentences[-1].endswith((":", "：")) else ""
            claims += [Claim(sentence, lead if depth else "") for sentence in sentences]
            lead = next_lead or (lead if depth else "")
    return tuple(claim for claim in claims if any(map(str.isalnum, claim.text)))
