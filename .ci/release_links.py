"""Makes the links of README.md absolute and adds `project.urls` to pyproject.toml, for the page on PyPI.

    python .ci/release_links.py

The release workflow runs it before it builds. The URL is that of the repository which runs the workflow, so none is
written down here. It changes the files in place: do not commit them.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def absolute(readme: str, repository: str, revision: str) -> str:
    """The text with absolute links.

    >>> absolute("![p](a.svg), [b](docs/b.md#c)", "https://host/me/it", "v1")
    '![p](https://host/me/it/raw/v1/a.svg), [b](https://host/me/it/blob/v1/docs/b.md#c)'
    """

    def link(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/{revision}/{path})"

    return LINK.sub(link, readme)


def with_urls(pyproject: str, repository: str, revision: str) -> str:
    """The project file with a table of URLs, unless it has one."""
    if "[project.urls]" in pyproject:
        return pyproject
    urls = {
        "Source": repository,
        "Documentation": f"{repository}/blob/{revision}/docs/index.md",
        "Changelog": f"{repository}/blob/{revision}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return pyproject.replace("[project.scripts]", f"[project.urls]\n{table}\n[project.scripts]")


if __name__ == "__main__":
    repository = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    for name, changed in (("README.md", absolute), ("pyproject.toml", with_urls)):
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(changed(text, repository, os.environ["GITHUB_REF_NAME"]), encoding="utf-8")
