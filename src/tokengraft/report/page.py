"""The page itself: one file, scripts and data inside, nothing fetched."""

import json
from collections.abc import Mapping
from importlib import resources

from tokengraft import _core
from tokengraft.adapt.result import Adaptation
from tokengraft.errors import OptionError
from tokengraft.report.facts import page_facts


def report_page(found: Adaptation, held_out: Mapping[str, list[str]], *, title: str) -> str:
    """The report of an adaptation, as HTML that opens anywhere without a network.

    Args:
        found: What came of the adaptation.
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
    # `</` would end the script that the data stands in; in JSON it may be written with a backslash.
    facts = json.dumps(page_facts(found, held_out), ensure_ascii=False).replace("</", "<\\/")
    parts = {"TITLE": _escaped(title), "VERSION": _core.__version__, "FACTS": facts, "PLOTLY": get_plotlyjs()}
    for name, text in parts.items():
        template = template.replace("{{" + name + "}}", text)
    return template


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
