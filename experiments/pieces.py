"""What SentencePiece types gain by continued training: bytes per token on held-out text before and after.

    python experiments/pieces.py llama2 mistral_v3 gemma3 --text et=et.txt:est_Latn.devtest ja=ja.txt:jpn.devtest

A row for each tokenizer and text: how many tokens were learned, how many of them missing characters; bytes per token of
the base and after each size; added tokens that cannot be reached; and, where the folder has a SentencePiece model, the
held-out lines that `sentencepiece` encodes otherwise than `tokenizer.json`. Bytes are those of the lines without their
newlines. Does not show what the model makes of the new tokens: for that it must be trained.
"""

import argparse
from pathlib import Path

import tokengraft as tg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", help="tokenizer folders")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=TRAIN:HELD_OUT")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 4000, 16000])
    parser.add_argument("--max-bytes", type=int, default=20_000_000, help="of each training text (20 MB)")
    options = parser.parse_args()
    print("tokenizer text learned characters", *(["base", *options.sizes]), "unreachable forms_differ", sep="\t")
    for folder in options.tokenizers:
        base = tg.load(folder)
        for text in options.text:
            name, _, paths = text.partition("=")
            train, _, held_out = paths.partition(":")
            row = measure(base, train, Path(held_out).read_text(encoding="utf-8").splitlines(), options)
            print(Path(folder).name, name, *row, sep="\t", flush=True)


def measure(base: tg.Tokenizer, train: str, lines: list[str], options: argparse.Namespace) -> list[str]:
    counts = tg.count(base, train, count_options=tg.CountOptions(max_bytes=options.max_bytes))
    extension = tg.extend(base, counts, max(options.sizes))
    extended = [extension[:size].apply(base) for size in options.sizes]
    n_bytes = sum(len(line.encode()) for line in lines)
    rates = [n_bytes / sum(len(tok.encode(line)) for line in lines) for tok in (base, *extended)]
    unreachable = [sum(i >= base.n_rows for i in tok.structure.unreachable) for tok in extended]
    differ = [forms_differ(tok, lines) for tok in extended] if base.piece_file else ["-"]
    return [
        f"{len(extension):,}",
        f"{len(extension.characters):,}",
        *(f"{rate:.3f}" for rate in rates),
        "/".join(map(str, unreachable)),
        "/".join(map(str, differ)),
    ]


def forms_differ(tokenizer: tg.Tokenizer, lines: list[str]) -> int:
    """The lines that the two forms encode differently."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_proto=tokenizer.files[tokenizer.piece_file or ""])
    return sum(tokenizer.encode(line) != model.encode(line) for line in lines)


if __name__ == "__main__":
    main()
