"""The same task in other scripts: 8,000 tokens of Greek, Russian, Arabic or Hindi, learned from 6 MB.

    python -m lab.comparison.scripts MODEL_FOLDER FLORES_FOLDER ell_Grek=CORPUS.parquet ...

Every tenth document is held out. Of these, the lines are scored that the text to learn from does not have. The rows of
`scripts.csv` for other languages are kept. Besides the tools of the first table, tokengraft runs with options, and
`add_tokens` gets whole words.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

import tokengraft as tg
from lab.comparison import tools
from lab.comparison.__main__ import PACKAGES, TOKENS, package_version, until, write
from lab.comparison.page import SCRIPTS, rows_of
from lab.comparison.score import bytes_per_token, score

TEXT_BYTES, HELD_OUT_BYTES = 6_000_000, 700_000
Tool = Callable[[Path, Path, int, Path], None]


def limited(script: str, max_token_bytes: int | None) -> Tool:
    """tokengraft with `--scripts` and, if given, `--max-token-bytes`."""

    def extend(model: Path, text: Path, tokens: int, out: Path) -> None:
        base = tg.load(model)
        limits = tg.Limits(scripts=[script], max_token_bytes=max_token_bytes)
        new = tg.extend(base, tg.count(base, text), tokens, limits=limits).apply(base)
        tg.transplant(model, new, out)

    return extend


def whole_words(model: Path, text: Path, tokens: int, out: Path) -> None:
    """`add_tokens` with `single_word=True`. With the space before it, a word would never be found."""
    from tokenizers import AddedToken
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    known = tokenizer.get_vocab()
    words = (tokenizer.convert_tokens_to_string([word]).strip() for word in tools.frequent_words(tokenizer, text))
    words = [word for word in dict.fromkeys(words) if word and "\ufffd" not in word and word not in known]
    tokenizer.add_tokens([AddedToken(word, single_word=True) for word in words[:tokens]])
    network = AutoModelForCausalLM.from_pretrained(model)
    network.resize_token_embeddings(len(tokenizer))
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)


def split(corpus: Path, text: Path, held_out: Path) -> None:
    """Writes the documents to learn from, and the lines to score."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    documents = pq.read_table(corpus, columns=["text"])["text"].to_pylist()
    last = documents[9::10]
    del documents[9::10]
    learned = [*until(documents, TEXT_BYTES)]
    pq.write_table(pa.table({"text": learned}), text)
    known = {line for document in learned for line in document.splitlines()}
    lines = [line for document in until(last, HELD_OUT_BYTES) for line in document.splitlines()]
    held_out.write_text("\n".join(line for line in lines if line.strip() and line not in known), encoding="utf-8")


def measure(model: Path, flores: Path, language: str, corpus: Path) -> Iterator[dict[str, object]]:
    script = language.partition("_")[2]
    arms = {"unchanged": None} | tools.TOOLS
    arms |= {"limited": limited(script, None), "limited_16": limited(script, 16), "whole_words": whole_words}
    del arms["tokensurgeon"]  # its tokens are those of `train_new`
    packages = {"whole_words": "transformers"} | PACKAGES
    with tempfile.TemporaryDirectory() as folder:
        text, held_out = Path(folder, "text.parquet"), Path(folder, "held-out.txt")
        split(corpus, text, held_out)
        lines = held_out.read_text(encoding="utf-8").splitlines()
        for name, tool in arms.items():
            package, out = packages.get(name, "tokengraft"), Path(folder, name, "out")
            if not find_spec(package):
                continue
            if tool:
                out.parent.mkdir()
                tool(model, text, TOKENS, out)
            result = score(model, out if tool else model, flores, language)
            tokenizer = Tokenizer.from_file(str((out if tool else model) / "tokenizer.json"))
            result["held_out"] = round(bytes_per_token(tokenizer, lines), 3)
            print(language, name, result, file=sys.stderr)
            yield {"language": language, "tool": name, "version": package_version(package)} | result


def main(model: str, flores: str, *corpora: str) -> None:
    for corpus in corpora:
        language, path = corpus.split("=", 1)
        kept = [row for row in rows_of(SCRIPTS) if row["language"] != language] if SCRIPTS.exists() else []
        write([*kept, *measure(Path(model), Path(flores), language, Path(path))], SCRIPTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
