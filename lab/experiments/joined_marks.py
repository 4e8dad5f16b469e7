"""What `--join-marks` gives Hindi: bytes per token of FLORES by number of tokens, with words cut at marks and whole.

    python -m lab.experiments.joined_marks --data DIR --flores FLORES --tokenizers TOKENIZERS

`joined 0` is the base with another split pattern alone. `languages_changed` is how many of the other languages of
FLORES have another token in any line then, of those that are not written in Devanagari; `devanagari_changed` of those
that are. Writes `joined-marks/results.csv`.
"""

from collections.abc import Iterator

import tokengraft as tg
from lab.experiments import cli
from lab.experiments.experiment import Row, Setup

SIZES = (1_000, 2_000, 4_000, 8_000)
MODELS = ("llama3", "qwen2_5", "smollm2")
SCRIPT = "Devanagari"


def rows(setup: Setup) -> Iterator[Row]:
    """A row for each tokenizer, way to split and number of tokens."""
    train = setup.data.source.documents("hi", 10**9).train
    flores = {path.stem: path.read_text("utf-8").splitlines() for path in sorted(setup.data.flores.glob("*.devtest"))}
    sentences = flores.pop("hin_Deva")
    for model in MODELS:
        base = setup.tokenizer(model)
        joined = tg.tokenizer.join_marks(base, [SCRIPT])
        changed = [name for name, lines in flores.items() if base.encode_batch(lines) != joined.encode_batch(lines)]
        written = sum(name.endswith("Deva") for name in changed)
        for split, tokenizer in (("cut", base), ("joined", joined)):
            extension = tg.extend(tokenizer, tg.count(tokenizer, iter(train)), SIZES[-1])
            for size in (0, *SIZES):
                rate = bytes_per_token(extension[:size].apply(tokenizer), sentences)
                more = {"languages_changed": len(changed) - written, "devanagari_changed": written}
                yield {"model": model, "split": split, "size": size, "bytes_per_token": rate, **more}


def bytes_per_token(tokenizer: tg.Tokenizer, lines: list[str]) -> float:
    n_tokens = sum(len(ids) for ids in tokenizer.encode_batch(lines))
    return sum(len(line.encode()) for line in lines) / n_tokens


if __name__ == "__main__":
    cli.write_rows({"joined-marks/results.csv": rows})
