"""Hooks of MkDocs for the manual: pages made from the code, and links to files outside the manual."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import reference_pages

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the changes of each release."""
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    changes = re.sub(r"\[([^\]]+)\]\((\w+\.md)(?:#[^)]*)?\)", _told_if_elsewhere, changes)
    pages = {
        "commands.md": reference_pages.commands(),
        "rest.md": reference_pages.rest(),
        "messages.md": reference_pages.messages(),
        "changes.md": changes,
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files outside the manual by their path in the source tree."""
    here = Path(config.docs_dir, page.file.src_uri).parent
    markdown = re.sub(r"\]\((?:\.\./)+CHANGELOG\.md(#[^)]*)?\)", lambda found: f"]({_up(here)}changes.md)", markdown)
    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]*)(?:#[^)]*)?\)", lambda found: _named(found, here), markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove files that no browser requests: maps of the theme's sources, other languages' stemmers."""
    assets = Path(config.site_dir, "assets")
    for file in assets.rglob("*.map"):
        file.unlink()
    shutil.rmtree(assets / "javascripts" / "lunr", ignore_errors=True)


def _up(here: Path) -> str:
    return "../" * len(here.relative_to(ROOT / "docs").parts)


def _told_if_elsewhere(link: re.Match[str]) -> str:
    """Keep a link to a page of the manual; name any other file."""
    return link[0] if (ROOT / "docs" / link[2]).is_file() else f"{link[1]} (`{link[2]}`)"


def _named(link: re.Match[str], here: Path) -> str:
    path = (here / link[2]).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return link[0]
    return f"{link[1]} (`{path.relative_to(ROOT)}`)"
