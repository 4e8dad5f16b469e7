"""`report_page`: one HTML file that contains its scripts and data."""

import json
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from tokengraft import _core
from tokengraft.report.content import Content
from tokengraft.report.data import page_data
from tokengraft.report.pack import compressed

SCRIPTS = ("vocabulary", "tokenizer", "bpe", "charts", "elements", "summary", "explorer", "reader", "page")
"""The scripts of the page, in the order in which they use each other."""


def report_page(content: Content) -> str:
    """The report as HTML that needs no network."""
    data, columns = page_data(content)
    packed = compressed(
        {"data": json.dumps(data, ensure_ascii=False, allow_nan=False).encode(errors="replace")} | columns
    )
    parts = {
        "TITLE": escape(content.title),
        "VERSION": _core.__version__,
        "STYLE": _file("style.css"),
        "SCRIPT": "\n".join(_file(f"{name}.js") for name in SCRIPTS),
        "DATA": packed,
    }
    page = filled(_file("page.html"), parts)
    return page.encode(errors="replace").decode()  # a file name that is not UTF-8 contains unpaired surrogates


def _file(name: str) -> str:
    return resources.files("tokengraft.report").joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, Any]) -> str:
    """The template with every `{{NAME}}` replaced, in one pass: inserted text is not searched again.

    >>> filled("{{A}} {{B}}", {"A": "{{B}}", "B": "b"})
    '{{B}} b'
    """
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], template)
