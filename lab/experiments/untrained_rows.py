"""Bits per byte of a model before training, by the initialiser of its new rows, and where the difference comes from.

    tokengraft adapt smollm2 --target et.jsonl --keep en.jsonl --add 8000 --preserve-keep --out et-add
    python -m lab.experiments.untrained_rows smollm2 et-add --text en=en-held-out.jsonl et=et-held-out.jsonl \
        --init fvt fvt-rare --out results.jsonl
    python -m lab.experiments.untrained_rows smollm2 et-add ... --untie --output-init fvt fvt-rare

A row for each tokenizer, pair of initialisers and text. The difference to the untouched model, in percent of its
bits, has two parts:

- `splits`: other tokens. What the text would cost if no kept token lost probability to new ones.
- `probability`: what it costs beyond that. `new` is the mean probability of all new tokens together.

The text is cut as by `tokengraft probe`, and each part is scored after the token that begins texts, in 32 bits. What a
model computes after its head (a scale, a limit for logits) is left out. Needs torch.

Bits before training say whether a model still works at once. They do not say which rows are best after training.
"""

import argparse
import copy
import json
import math
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import tokengraft as tg
from lab.experiments.rows import Change
from tokengraft.corpus.read import documents
from tokengraft.train.score import chunks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder")
    parser.add_argument("adapted", nargs="+", type=Path, help="folders with new tokenizers")
    parser.add_argument("--learn", nargs="+", default=(), help="the text it was learned from, for `context`")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="text to score")
    parser.add_argument("--kb", type=float, default=100, help="kilobytes of each text")
    parser.add_argument("--init", nargs="+", default=("fvt", "fvt-rare"))
    parser.add_argument("--output-init", nargs="+", default=(None,))
    parser.add_argument("--untie", action="store_true", help="give a tied model an output of its own, with equal rows")
    parser.add_argument("--out", type=Path, help="append the rows to this file, as JSON lines")
    options = parser.parse_args()
    base = tg.load(options.model)
    model = load_model(options.model, untie=options.untie)
    texts = {name: parts(path, options.kb * 1000) for name, _, path in (text.partition("=") for text in options.text)}
    scorer = Scorer(model)
    untouched = {name: scorer.score(model, base, text, []) for name, text in texts.items()}
    for folder, init, output_init in product(options.adapted, options.init, options.output_init):
        run = {"adapted": folder.name, "init": init, "output": output_init or "as init", "untied": options.untie}
        new = tg.load(folder)
        plan, by_name = tg.plan(base, new), Change(base, new, lambda: tg.count(base, [*options.learn]))
        changed = copy.deepcopy(model)
        tg.transplant_model(
            changed, plan, init=by_name.init(init), output_init=output_init and by_name.init(output_init)
        )
        new_ids = [i for i, source in enumerate(plan.sources) if isinstance(source, tuple)]
        for name in texts:
            row = {**run, "text": name} | compared(untouched[name], scorer.score(changed, new, texts[name], new_ids))
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def load_model(folder: str, *, untie: bool):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if untie:
        model.config.tie_word_embeddings = False
        model.get_output_embeddings().weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    return model


def parts(path: str, most: float) -> list[str]:
    """The first parts of a text, of at most so many bytes."""
    return [*chunks(up_to(documents([path], tg.ReadOptions(documents="lines")), most))]


def up_to(texts: Iterable[str], most: float) -> Iterator[str]:
    for text in texts:
        most -= len(text.encode())
        if most < 0:
            return
        yield text


class Scorer:
    """Scores models that differ in the rows of new tokens only: states of kept tokens are computed once."""

    def __init__(self, model) -> None:
        self._kept: dict[tuple[int, ...], torch.Tensor] = {}
        self._start = model.config.bos_token_id

    def score(self, model, tokenizer: tg.Tokenizer, text: list[str], new_ids: list[int]) -> dict[str, float]:
        """Bits, and those that kept tokens lose to new ones; the sum of the probabilities of new tokens; sizes."""
        total = {"bits": 0.0, "lost": 0.0, "new": 0.0, "tokens": 0, "bytes": sum(len(part.encode()) for part in text)}
        is_new = torch.zeros(tokenizer.n_rows, dtype=torch.bool)
        is_new[new_ids] = True
        for ids in (tokenizer.encode(part) for part in text):
            targets = torch.tensor(ids)
            with torch.no_grad():
                logits = model.get_output_embeddings()(self._states(model, tuple(ids), is_new))[:, : tokenizer.n_rows]
                logs = torch.log_softmax(logits, dim=-1)
                kept = torch.logsumexp(logs[:, ~is_new].double(), dim=-1)  # the probability that kept tokens share
            total["bits"] -= float(logs.gather(1, targets[:, None]).double().sum()) / math.log(2)
            total["lost"] -= float(kept[~is_new[targets]].sum()) / math.log(2) if new_ids else 0.0
            total["new"] += float((1 - kept.exp()).sum())
            total["tokens"] += len(ids)
        return total

    def _states(self, model, ids: tuple[int, ...], is_new: torch.Tensor) -> torch.Tensor:
        """The last hidden state before each id. Kept tokens must have the ids that they had."""
        plain = not is_new[list(ids)].any()
        if plain and ids in self._kept:
            return self._kept[ids]
        states = model.base_model(torch.tensor([[self._start, *ids[:-1]]])).last_hidden_state[0]
        if plain:
            self._kept[ids] = states
        return states


def compared(base: dict[str, float], scored: dict[str, float]) -> dict[str, float]:
    """Bits per byte, and the difference to the untouched model in percent, in parts."""
    percent = {
        "change": scored["bits"] / base["bits"] - 1,
        "splits": (scored["bits"] - scored["lost"]) / base["bits"] - 1,
        "probability": scored["lost"] / base["bits"],
        "new": scored["new"] / scored["tokens"],
    }
    sizes = {"bytes": scored["bytes"], "tokens_base": base["tokens"], "tokens": scored["tokens"]}
    per_byte = {"base": base["bits"] / base["bytes"], "bits_per_byte": scored["bits"] / scored["bytes"]}
    return {
        **sizes,
        **{k: round(v, 4) for k, v in per_byte.items()},
        **{k: round(100 * v, 3) for k, v in percent.items()},
    }


if __name__ == "__main__":
    main()
