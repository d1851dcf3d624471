"""MkDocs hook: README.md is the site's first page; links out of docs/ become plain text."""

import re
from pathlib import Path

from mkdocs.structure.files import File

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def inside(markdown, rename):
    """Each relative link's target is rename(target), or the link is its text alone where that is None."""

    def link(match):
        target = rename(match[2])
        return match[1] if target is None else f"[{match[1]}]({target})"

    return LINK.sub(link, markdown)


def of_readme(target):
    return target.removeprefix("docs/") if target.startswith("docs/") else None


def of_page(target):
    if target.startswith("../README.md"):
        return target.replace("../README.md", "index.md", 1)
    return None if target.startswith("../") else target


def on_files(files, config):
    readme = (Path(config.config_file_path).parent / "README.md").read_text()
    page = inside(readme, of_readme).replace("](docs/images/", "](images/")
    files.append(File.generated(config, "index.md", content=page))
    return files


def on_page_markdown(markdown, page, config, files):
    return inside(markdown, of_page) if page.file.src_uri != "index.md" else markdown
