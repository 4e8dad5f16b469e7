"""The page itself: one file, scripts and data inside, nothing fetched."""

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


def report_page(found: Adaptation, held_out: Mapping[str, list[str]], *, title: str) -> str:
    """The report of an adaptation, as HTML that opens anywhere without a network.

    Args:
        found: The adaptation.
        held_out: The documents it was measured on, by the name of their text.
        title: What to call it.

    Raises:
        OptionError: The charting library is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise OptionError(
            "the report draws its charts with plotly, which is not installed", hint="pip install 'tokengraft[report]'"
        ) from error
    template = resources.files("tokengraft.report").joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(title),
        "VERSION": _core.__version__,
        "FACTS": embedded_json(page_data(found, held_out)),
        "PLOTLY": get_plotlyjs(),
    }
    page = filled(template, parts)
    return page.encode(errors="replace").decode()  # a file name that is not UTF-8 has half surrogates in it


def embedded_json(data: Any) -> str:
    """JSON that may stand in a `<script>`: without `<`, no text in it can end the script or open a comment.

    >>> embedded_json("</script><!--")
    '"\\\\u003c/script>\\\\u003c!--"'
    """
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with every `{{NAME}}` replaced, in one pass: what is filled in is not looked at again.

    >>> filled("{{A}} {{B}}", {"A": "{{B}}", "B": "b"})
    '{{B}} b'
    """
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], template)
