"""`report_page`: one HTML file that contains its scripts and data."""

import json
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from tokengraft import _core
from tokengraft.adapt.result import Adaptation
from tokengraft.errors import OptionError
from tokengraft.report.data import page_data


def report_page(adaptation: Adaptation, held_out: Mapping[str, list[str]], *, title: str) -> str:
    """The report of an adaptation as HTML that needs no network.

    Args:
        adaptation: The adaptation.
        held_out: The documents that it was evaluated on, by name of the text.
        title: The title of the page.

    Raises:
        OptionError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise OptionError(
            "the report needs plotly for its charts, which is not installed", hint="pip install 'tokengraft[report]'"
        ) from error
    template = resources.files("tokengraft.report").joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(title),
        "VERSION": _core.__version__,
        "DATA": embedded_json(page_data(adaptation, held_out)),
        "PLOTLY": get_plotlyjs(),
    }
    page = filled(template, parts)
    return page.encode(errors="replace").decode()  # a file name that is not UTF-8 contains unpaired surrogates


def embedded_json(data: Any) -> str:
    """JSON that is safe inside a `<script>`. It has no `<`, so no text can end the script or open a comment.

    >>> embedded_json("</script><!--")
    '"\\\\u003c/script>\\\\u003c!--"'
    """
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with every `{{NAME}}` replaced, in one pass: inserted text is not searched again.

    >>> filled("{{A}} {{B}}", {"A": "{{B}}", "B": "b"})
    '{{B}} b'
    """
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], template)
