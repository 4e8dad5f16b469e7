"""Bits per byte of a model before training, by the initialiser of its new rows, and where the difference comes from.

    tokengraft adapt smollm2 --target et.jsonl --keep en.jsonl --add 8000 --preserve-keep --out et-add
    python -m lab.experiments.untrained_rows smollm2 et-add --text en=en-held-out.jsonl et=et-held-out.jsonl \
        --init fvt fvt-rare --out results.jsonl
    python -m lab.experiments.untrained_rows smollm2 et-add ... --untie --output-init fvt fvt-rare

A row for each tokenizer, pair of initialisers and text. The difference to the untouched model, in percent of its
bits, has two parts:

- `splits`: other tokens. What the text would cost if no kept token lost probability to new ones.
- `probability`: what it costs beyond that. `new` is the mean probability of all new tokens together.

The text is cut as by `tokengraft evaluate --bits`, and each part is scored after the token that begins texts, in 32
bits. What a model computes after its head (a scale, a limit for logits) is left out. Needs torch.

Bits before training say whether a model still works at once. They do not say which rows are best after training.
"""

import argparse
import copy
import json
import math
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import tokengraft as tg
from lab.experiments.data import read_documents
from lab.experiments.rows import Change
from lab.experiments.training.data import up_to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder")
    parser.add_argument("adapted", nargs="+", type=Path, help="folders with new tokenizers")
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
        plan, by_name = tg.plan(base, new), Change(base, new)
        changed = copy.deepcopy(model)
        tg.transplant_model(
            changed,
            plan,
            init=by_name.init(init),
            options=tg.TransplantOptions(output_init=output_init and by_name.init(output_init)),
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
    return [*tg.measure.bits.chunks(up_to(read_documents(Path(path)), most))]


class Scorer:
    """Scores models that differ in the rows of new tokens only: what depends on kept tokens alone is computed once."""

    def __init__(self, model) -> None:
        self._start = model.config.bos_token_id
        self._states: dict[tuple[int, ...], torch.Tensor] = {}
        self._kept: dict[tuple[tuple[int, ...], int], torch.Tensor] = {}

    def score(self, model, tokenizer: tg.Tokenizer, text: list[str], new_ids: list[int]) -> dict[str, float]:
        """Bits, and those that kept tokens lose to new ones; the sum of the probabilities of new tokens; sizes."""
        total = {"bits": 0.0, "lost": 0.0, "new": 0.0, "tokens": 0, "bytes": sum(len(part.encode()) for part in text)}
        new = set(new_ids)
        kept_ids = [i for i in range(tokenizer.n_rows) if i not in new]
        with torch.no_grad():
            head = model.get_output_embeddings().weight
            kept_rows, new_rows = head[kept_ids], head[new_ids]
            for ids in (tuple(tokenizer.encode(part)) for part in text):
                states = self._cached(self._states, ids, new, ids, lambda ids=ids: self._run(model, ids))
                key = (ids, hash(tuple(kept_ids)))
                kept = self._cached(self._kept, key, new, ids, lambda states=states: log_sum(states, kept_rows))
                everything = torch.logaddexp(kept, log_sum(states, new_rows)) if new else kept
                target = (states * head[list(ids)]).sum(dim=1).double()
                of_kept = torch.tensor([i not in new for i in ids])
                total["bits"] += float((everything - target).sum()) / math.log(2)
                total["lost"] += float((everything - kept)[of_kept].sum()) / math.log(2)
                total["new"] += float((1 - (kept - everything).exp()).sum())
                total["tokens"] += len(ids)
        return total

    @staticmethod
    def _cached(known: dict, key, new: set[int], ids: tuple[int, ...], compute) -> torch.Tensor:
        """A value that is computed once, unless a new token is among the ids. Kept tokens must keep their ids."""
        if not new.isdisjoint(ids):
            return compute()
        if key not in known:
            known[key] = compute()
        return known[key]

    def _run(self, model, ids: tuple[int, ...]) -> torch.Tensor:
        """The last hidden state before each id."""
        return model.base_model(torch.tensor([[self._start, *ids[:-1]]]), use_cache=False).last_hidden_state[0]


def log_sum(states: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of the exponentials of the logits of some rows."""
    return torch.logsumexp(states @ rows.T, dim=1).double()


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
