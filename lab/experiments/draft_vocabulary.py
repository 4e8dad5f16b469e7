"""Draft vocabularies of a model that is its own draft: coverage and accepted proposals, by size and by text.

    python -m lab.experiments.draft_vocabulary SmolLM2-135M --data DIR --out lab/experiments/results/draft-vocabulary

English and Estonian of DIR (see the README), and Python's own library as code. Ids are chosen by documents that are not
held out: of the same text (`own`), of another (`en`, `et`, `code`), of all three in equal shares (`all`), or they are
the first ones (`first`). Writes `results.csv` and `table.md`. Needs torch, and seven minutes of a core.

- `coverage`: the share of the tokens of held-out documents that are among the ids.
- `accepted`: the share of the tokens that the model writes after them, greedily, which are among the ids. A draft that
  is equal to its target but for its head proposes exactly these. A real draft is also wrong for other reasons.
- `forced`: the same for the most likely next token at every position of the held-out documents.
"""

import argparse
import sysconfig
import tempfile
from itertools import product
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import tokengraft as tg
from lab.experiments.data import Documents, Folder, digest, up_to
from lab.experiments.tables import to_csv
from lab.page_parts import markdown

SIZES = (2_048, 4_096, 8_192, 16_384, 32_768)
PROMPTS, PROMPT, WRITTEN = 32, 32, 64
"""Held-out documents that the model continues, tokens of each that it reads, and tokens that it writes."""
FORCED = 256
"""Tokens of each of these documents that it is forced to read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("--data", type=Path, required=True, help="the folder with `corpora`")
    parser.add_argument("--characters", type=int, default=20_000_000, help="of each text to count")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    options = parser.parse_args()
    tokenizer = tg.load(options.model)
    folder = Folder(options.data / "corpora")
    texts = {name: folder.documents(name, options.characters) for name in ("en", "et")}
    texts["code"] = code(options.characters)
    counts = {name: tg.count(tokenizer, iter(text.train)) for name, text in texts.items()}
    largest = max(part.totals.pretokens for part in counts.values())
    counts["all"] = sum(part.scale(round(largest / part.totals.pretokens)) for part in counts.values())
    ids = {("first", size): {*range(size)} for size in SIZES}
    for (name, part), size in product(counts.items(), SIZES):
        with tempfile.TemporaryDirectory() as place:
            ids[name, size] = {*tg.draft(options.model, part, Path(place) / "map", size=size).ids}
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    rows = [row for name, text in texts.items() for row in measured(name, text, tokenizer, model, ids)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.csv").write_text(to_csv(rows), encoding="utf-8")
    (options.out / "table.md").write_text(table(rows), encoding="utf-8")


def code(characters: int) -> Documents:
    """Files of Python's own library, in the order of their hashes; one in 20 is held out."""
    files = Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")
    own = [path for path in files if not {"site-packages", "test", "tests", "idlelib"} & {*path.parts}]
    ordered = sorted((digest(text), text) for text in (path.read_text(encoding="utf-8") for path in own) if text)
    held_out = [text for key, text in ordered if key[-1] % 20 == 0]
    return Documents(tuple(up_to((text for key, text in ordered if key[-1] % 20), characters)), tuple(held_out))


def measured(name, text, tokenizer, model, chosen):
    """The rows of one text: for every size, and for ids by every text."""
    found = tg.count(tokenizer, iter(text.held_out)).tokens(tokenizer)
    long = [ids for ids in tokenizer.encode_batch(text.held_out[:2000]) if len(ids) >= PROMPT]
    prompts = torch.tensor([ids[:PROMPT] for ids in long[:PROMPTS]])
    with torch.no_grad():
        written = model.generate(prompts, max_new_tokens=WRITTEN, do_sample=False, eos_token_id=None, pad_token_id=0)
        forced = [model(torch.tensor([ids[:FORCED]])).logits[0].argmax(-1) for ids in long[:PROMPTS]]
    likely = {"accepted": written[:, PROMPT:].flatten().tolist(), "forced": torch.cat(forced).tolist()}
    for (by, size), ids in chosen.items():
        row = {"text": name, "size": size, "ids_by": "own" if by == name else by}
        row["coverage"] = share(sum(n for i, n in found.items() if i in ids), sum(found.values()))
        row |= {kind: share(sum(i in ids for i in tokens), len(tokens)) for kind, tokens in likely.items()}
        yield row | {"tokens": sum(found.values()), **{f"n_{kind}": len(tokens) for kind, tokens in likely.items()}}


def share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2)


def table(rows) -> str:
    """Coverage of held-out text, and accepted proposals in brackets, in percent."""
    kinds = ("own", "all", "first", "en", "et", "code")
    cells = {(row["text"], row["size"], row["ids_by"]): f"{row['coverage']} ({row['accepted']})" for row in rows}
    places = dict.fromkeys((row["text"], row["size"]) for row in rows)
    lines = ([name, f"{size:,}", *(cells.get((name, size, kind), "") for kind in kinds)] for name, size in places)
    return markdown(("text", "ids", *kinds), lines) + "\n"


if __name__ == "__main__":
    main()
