"""FLORES as tasks of lm-evaluation-harness, from local files: find the right one of four texts.

    python -m lab.experiments.training.tasks DEVTEST et=est_Latn --out TASKS
    lm_eval --model hf --model_args pretrained=MODEL --include_path TASKS --tasks flores_et --output_path RESULTS

The items are those of `choices.py`. The place of the right text is drawn from the number of the item. The harness
scores: `acc_norm` divides by the length of the text, `acc_mutual_info` takes off its likelihood without the context.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.experiments.training.choices import distractors, split

TASK = """task: {name}
tag: {tag}
dataset_path: json
dataset_kwargs:
  data_files: {file}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{before}}}}"
doc_to_choice: "{{{{texts}}}}"
doc_to_target: "{{{{right}}}}"
target_delimiter: ""
metric_list:
  - metric: acc_norm
  - metric: acc_mutual_info
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flores", type=Path, help="folder of FLORES-200 devtest")
    parser.add_argument("languages", nargs="+", metavar="NAME=CODE", help="such as et=est_Latn")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    english = sentences(options.flores, "eng_Latn")
    for language, code in (item.split("=") for item in options.languages):
        own = sentences(options.flores, code)
        halves = [split(text) for text in own]
        tasks = {
            f"continuation_{language}": ([first for first, _ in halves], [second for _, second in halves]),
            f"from_{language}": ([f"{text}\n" for text in own], english),
            f"to_{language}": ([f"{text}\n" for text in english], own),
        }
        for name, (before, texts) in tasks.items():
            file = (options.out / f"{name}.jsonl").absolute()
            lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in items(before, texts))
            file.write_text("".join(lines), encoding="utf-8")
            task = TASK.format(name=f"flores_{name}", tag=f"flores_{language}", file=file)
            (options.out / f"{name}.yaml").write_text(task, encoding="utf-8")


def sentences(flores: Path, code: str) -> list[str]:
    return (flores / f"{code}.devtest").read_text(encoding="utf-8").splitlines()


def items(before: Sequence[str], texts: Sequence[str]) -> Iterator[dict[str, object]]:
    """The right text among those of the nearest lengths, in an order of its own for each item."""
    for number, places in enumerate(distractors(texts)):
        order = [int(place) for place in places]
        random.Random(number).shuffle(order)
        yield {"before": before[number], "texts": [texts[i] for i in order], "right": order.index(number)}


if __name__ == "__main__":
    main()
