"""`downstream`: the paper's tasks for lm-evaluation-harness, on a model and the hub, or on local files.

The task files are in `lab/experiments/tasks`. They have no code, and lm-evaluation-harness can use them by itself:

    lm_eval --model hf --model_args pretrained=FOLDER --include_path lab/experiments/tasks --tasks paper_xcopa_et

If the data folder has `downstream/TASK.jsonl`, its documents are read instead of the hub's, as examples too.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.experiments import paper
from lab.experiments.experiment import Cell, Experiment, Row, Rows, Setup
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, number

FOLDER = Path(__file__).parent / "tasks"
COLUMNS = {
    "flores_en_et": "FLORES en-et",
    "flores_et_en": "FLORES et-en",
    "winogrande_et": "Winogrande et",
    "winogrande_en": "Winogrande en",
    "belebele_et": "Belebele et",
    "belebele_en": "Belebele en",
    "sib200_et": "SIB-200 et",
    "sib200_en": "SIB-200 en",
    "xcopa_et": "XCOPA et",
}
"""Tasks in the order of the paper's Table 5."""


def task_of(name: str, documents: Path | None = None) -> dict[str, Any]:
    """A task as lm-evaluation-harness takes it, with documents of a file in place of the hub's if there are some."""
    import yaml

    task: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    if documents is None:
        return task
    task |= {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(documents)}}, "test_split": "test"}
    task |= {"fewshot_split": "test"} if task["num_fewshot"] else {}
    task.pop("dataset_name", None)
    return task


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """The scores of a task, the part of the cell."""
    import torch
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    documents = local_documents(setup, cell.part)
    found = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(setup.model_folder)},
        tasks=[task_of(cell.part, documents)],
        task_manager=TaskManager(include_defaults=False),  # which would read thousands of task files
        batch_size=1,
        device="cuda" if torch.cuda.is_available() else "cpu",
        bootstrap_iters=0,
    )
    source = "local" if documents else "hub"
    for metric, value in _metrics(found["results"][f"paper_{cell.part}"]):
        samples = found["n-samples"][f"paper_{cell.part}"]["effective"]
        yield {"task": cell.part, "source": source, "metric": metric, "score": value, "documents": samples}


def local_documents(setup: Setup, task: str) -> Path | None:
    """The file of documents of a task, if the data has one."""
    folder = setup.data.folder
    path = folder / "downstream" / f"{task}.jsonl" if folder else None
    return path if path and path.is_file() else None


def _metrics(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in scores.items():
        metric, _, _ = name.partition(",")
        if isinstance(value, float) and not metric.endswith("_stderr"):
            yield metric, value


def tables(rows: Rows) -> list[Table]:
    """Our scores, and the paper's."""
    return [_ours(rows), paper_table()]


def _ours(rows: Rows) -> Table:
    lines = [(COLUMNS[r["task"]], r["source"], r["metric"], number(r["score"]), f"{r['documents']:,}") for r in rows]
    return Table("This model", ("task", "documents from", "metric", "score", "documents"), lines)


def paper_table() -> Table:
    """The paper's Table 5, without confidence intervals."""
    lines = [(model, arm, *scores.split()) for model, arms in paper.DOWNSTREAM.items() for arm, scores in arms.items()]
    note = "FLORES: COMET. The others: accuracy in percent."
    return Table("The paper's figures", ("model", "training", *COLUMNS.values()), lines, note)


def panels(rows: Rows) -> list[Panel]:
    """Our scores."""
    series = Series("score", range(len(rows)), [row["score"] for row in rows])
    return [Panel("Downstream tasks", ", ".join(row["task"] for row in rows), "score", [series])]


EXPERIMENT = Experiment(
    name="downstream",
    title="Downstream tasks with lm-evaluation-harness",
    source="Table 5, prompts of Figure 10",
    about=(
        "The tasks of the paper with its prompts: Winogrande and Estonian Winogrande (0 shots), XCOPA, SIB-200, "
        "Belebele and FLORES translation (5 shots). FLORES is scored by chrF; the paper uses COMET, outside the "
        "harness."
    ),
    measure=lambda setup, cell: [*measure(setup, cell)],
    tables=tables,
    panels=panels,
    models=("model",),
    languages=("",),
    parts=tuple(COLUMNS),
    needs=("lm_eval",),
    needs_model=True,
    needs_text=False,
    hub=True,
    caveat="",
)
