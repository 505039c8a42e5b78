"""The site's page of benchmarks holds the text of benchmarks/README.md, and the site the files that it links to."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

FOLDER = Path(__file__).parents[1] / "benchmarks"
LINK = "[benchmarks/README.md](../benchmarks/README.md)"
SHOWN = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what benchmarks/README.md and its pages link to."""
    pages = [FOLDER / "README.md"]
    for page in pages:
        for name in SHOWN.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / name).resolve()
            place = f"benchmarks/{path.relative_to(FOLDER).as_posix()}"
            if files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
                pages += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the text in the place of the link to it."""
    if page.file.src_uri != "benchmarks.md":
        return markdown
    _, _, details = (FOLDER / "README.md").read_text(encoding="utf-8").partition("\n")
    return markdown.replace(LINK, SHOWN.sub(r"](benchmarks/\1)", details))
