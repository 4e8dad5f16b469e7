"""The task files have the prompts of the paper, and no code."""

import json

import pytest

yaml = pytest.importorskip("yaml")
jinja2 = pytest.importorskip("jinja2")

from lab.experiments import cli, downstream, registry  # noqa: E402
from lab.experiments.downstream import COLUMNS, FOLDER, task_of  # noqa: E402

DOCUMENTS = {
    "winogrande": {
        "sentence": "Ann thanked Eve because _ had helped.",
        "option1": "Ann",
        "option2": "Eve",
        "answer": "2",
    },
    "xcopa": {
        "premise": "Mees jooksis.",
        "question": "cause",
        "choice1": "Ta oli hiljaks jäänud.",
        "choice2": "Sadas.",
        "label": 0,
    },
    "sib200": {"text": "Õun on puuvili", "category": "health"},
    "belebele": {
        "flores_passage": "Jõgi on lai.",
        "question": "Milline on jõgi? ",
        **{f"mc_answer{i}": answer for i, answer in enumerate(("lai", "kitsas", "kuiv", "lühike"), 1)},
        "correct_answer_num": "1",
    },
    "flores": {"sentence_eng_Latn": "A river.", "sentence_est_Latn": "Jõgi."},
}


def kind(name):
    return name.split("_")[0]


def test_the_tasks_are_those_of_the_table():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(COLUMNS)
    assert [task_of(name)["task"] for name in COLUMNS] == [f"paper_{name}" for name in COLUMNS]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_task_file_has_no_code(name):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert "!function" not in text
    assert task_of(name)["num_fewshot"] == (0 if kind(name) == "winogrande" else 5)


def test_documents_of_a_file_take_the_place_of_the_hub(tmp_path):
    task = task_of("sib200_et", tmp_path / "sib200_et.jsonl")
    assert task["dataset_path"] == "json"
    assert task["dataset_kwargs"] == {"data_files": {"test": str(tmp_path / "sib200_et.jsonl")}}
    assert "dataset_name" not in task
    assert (task["test_split"], task["fewshot_split"]) == ("test", "test")


@pytest.mark.usefixtures("plotting")
def test_the_harness_runs_every_task_on_local_documents(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed: the tasks are not run")
    from tiny_models import tiny_llama

    def with_short_translations(*given):
        task = task_of(*given)
        return task | {name: value | {"max_gen_toks": 4} for name, value in task.items() if name == "generation_kwargs"}

    monkeypatch.setattr(downstream, "task_of", with_short_translations)

    tiny_llama(tmp_path / "model", max_position_embeddings=4096)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|start|>", "eos_token": "<|end|>"}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    folder = tmp_path / "data" / "downstream"
    folder.mkdir(parents=True)
    for name in COLUMNS:
        lines = [json.dumps({**DOCUMENTS[kind(name)], "number": i}) + "\n" for i in range(6)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    options = ["--data", str(folder.parent), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    assert cli.main(["downstream", *options]) == 0
    text = (tmp_path / "out" / "downstream" / "results.csv").read_text(encoding="utf-8")
    assert all(f",{name},local," in text for name in COLUMNS)


def test_the_page_says_what_was_not_run(tmp_path):
    from lab.experiments.docs import NOT_RUN, docs_page

    assert docs_page(tmp_path).count(NOT_RUN) == len(registry.MODULES)
