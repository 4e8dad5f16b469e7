"""The notebook runs from top to bottom, and has the outputs of a run when it is opened."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_bytes())["cells"] if cell["cell_type"] == "code"]


def run(source, names):
    """Runs a cell as Jupyter does. Returns the value of its last line if that is an expression."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def test_every_cell_runs_and_what_it_shows_is_stored(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    plots = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for at, cell in enumerate(CELLS, start=1):
        value = run("".join(cell["source"]), names)
        shown = [kind for output in cell["outputs"] for kind in output.get("data", {})]
        assert cell["execution_count"] == at
        assert ("text/plain" in shown) == (value is not None or bool(plots.get_fignums()))
        assert ("text/html" in shown) == hasattr(value, "_repr_html_")
        assert ("image/png" in shown) == bool(plots.get_fignums())
        plots.close("all")
    assert names["curve"].points[-1].gain > 0
    assert (tmp_path / "build" / "quickstart" / "extended" / "README.md").is_file()


def test_the_notebook_has_no_error_no_warning_and_no_path_of_the_machine_that_ran_it():
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"execute_result", "display_data"}
    texts = json.dumps([{**output.get("data", {}), "image/png": ""} for output in outputs])
    assert not [part for part in ("/home/", "/root", "/work", "/tmp", "site-packages") if part in texts]
