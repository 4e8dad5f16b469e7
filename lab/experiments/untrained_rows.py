"""Bits per byte of a model before training, by the initialiser of its new rows.

    python -m lab.experiments.untrained_rows smollm2 --learn et.parquet --keep en.parquet --swap 8000 \
        --text et=est_Latn.devtest en=eng_Latn.devtest --lines 100
    python -m lab.experiments.untrained_rows smollm2 ... --untie --output-init fvt length-weighted first-piece

A row for each pair of initialisers: bits per byte of each text; the share of all probability that the new tokens get,
averaged over the positions of each text; and the median length of new rows. The first row is the untouched model, whose
figure of probability is 0. Each line is scored after the token that begins texts. Needs torch.

Bits before training say whether a model still works at once. They do not say which rows are best after training.
"""

import argparse
import copy
import math
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import tokengraft as tg
from lab.experiments.initialisers import INITIALISERS
from lab.experiments.rows import Change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--learn", nargs="+", required=True, help="text to learn new tokens from")
    parser.add_argument("--keep", nargs="+", required=True, help="text whose tokens are not pruned")
    parser.add_argument("--swap", type=int, default=8000, help="tokens to replace")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="text to score, line by line")
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--init", nargs="+", default=tuple(INITIALISERS))
    parser.add_argument("--output-init", nargs="+", default=(None,))
    parser.add_argument("--untie", action="store_true", help="give a tied model an output of its own, with equal rows")
    options = parser.parse_args()
    base = tg.load(options.model)
    model = load_model(options.model, untie=options.untie)
    texts = {name: lines(path, options.lines) for name, _, path in (text.partition("=") for text in options.text)}
    print("init", "output", *(f"{name} bits/byte\t{name} new" for name in texts), "length", sep="\t")
    show("-", "-", copy.deepcopy(model), base, texts, torch.tensor([], dtype=torch.long))
    learn, keep = tg.count(base, options.learn), tg.count(base, options.keep)
    bare = tg.Protection(defaults=False)
    pruned = tg.prune_order(base, learn + keep, "leaf-frequency", protection=bare)[: options.swap].apply(base)
    new = tg.extend(pruned, learn, options.swap).apply(pruned)
    changes, by_name = tg.plan(base, new), Change(base, new, lambda: learn)
    new_ids = torch.tensor([i for i, source in enumerate(changes.sources) if isinstance(source, tuple)])
    for init, output_init in product(options.init, options.output_init):
        changed = copy.deepcopy(model)
        chosen = {"init": by_name.init(init), "output_init": output_init and by_name.init(output_init)}
        tg.transplant_model(changed, changes, **chosen)
        show(init, output_init or "tied", changed, new, texts, new_ids)


def load_model(folder: str, *, untie: bool):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if untie:
        model.config.tie_word_embeddings = False
        model.get_output_embeddings().weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    return model


def lines(path: str, most: int) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()[:most]


def show(init: str, output_init: str, model, tokenizer: tg.Tokenizer, texts: dict, new_ids: torch.Tensor) -> None:
    rows = model.get_input_embeddings().weight[new_ids].norm(dim=1)
    model = model.to(torch.bfloat16)  # some processors are many times as fast in it
    scores = [f"{score:.3f}" for text in texts.values() for score in measure(model, tokenizer, text, new_ids)]
    print(init, output_init, *scores, f"{rows.median():.2f}" if len(rows) else "-", sep="\t", flush=True)


def measure(model, tokenizer: tg.Tokenizer, text: list[str], new_ids: torch.Tensor) -> tuple[float, float]:
    """Bits per byte of the lines, and the mean probability of all new tokens together."""
    bits, shares = 0.0, []
    for line in text:
        ids = torch.tensor([[model.config.bos_token_id, *tokenizer.encode(line)]])
        with torch.no_grad():
            log_probabilities = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
        bits -= float(log_probabilities.gather(1, ids[0, 1:, None]).sum()) / math.log(2)
        shares.append(log_probabilities[:, new_ids].exp().sum(dim=-1))
    return bits / sum(len(line.encode()) for line in text), float(torch.cat(shares).mean())


if __name__ == "__main__":
    main()
