"""The same task with each tool, as a user would write it: a checkpoint with new tokens that are learned from text.

Each function gets the folder of a model, a parquet file with a column `text`, the number of new tokens and the folder
to write. The lines of a function and of the helpers that it calls are the lines of code in the table.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def documents(text: Path) -> list[str]:
    import pyarrow.parquet as pq

    return pq.read_table(text)["text"].to_pylist()


def missing_tokens(tokenizer, text: Path, tokens: int) -> Iterator[str]:
    fresh = tokenizer.train_new_from_iterator(documents(text), vocab_size=2 * tokens)
    known = tokenizer.get_vocab()
    return (token for token in sorted(fresh.get_vocab(), key=fresh.get_vocab().get) if token not in known)


def tokengraft(model: Path, text: Path, tokens: int, out: Path) -> None:
    import tokengraft as tg

    base = tg.load(model)
    counts = tg.count(base, text)
    new = tg.extend(base, counts, tokens).apply(base)
    tg.transplant(model, new, out)


def tokenizer_extension(model: Path, text: Path, tokens: int, out: Path) -> None:
    from tokenizer_extension.extension import extend_tokenizer
    from tokenizer_extension.models import modify_embeddings
    from tokenizer_extension.train_vocab_extension import train_vocab_extension
    from transformers import AutoModelForCausalLM, AutoTokenizer

    old, new = (AutoTokenizer.from_pretrained(model) for _ in range(2))
    learned = train_vocab_extension(tokenizer=old, corpus=documents(text), extension_size=tokens)
    extend_tokenizer(new, new_vocab=learned["vocab"], new_merges=learned["merges"], n_tokens=tokens)
    network = AutoModelForCausalLM.from_pretrained(model)
    modify_embeddings(network, old_tokenizer=old, new_tokenizer=new)
    network.save_pretrained(out)
    new.save_pretrained(out)


def frequent_words(tokenizer, text: Path) -> list[str]:
    from collections import Counter

    split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    words = Counter(word for document in documents(text) for word, _ in split(document))
    known = tokenizer.get_vocab()
    return [word for word, _ in words.most_common() if word not in known]


def add_as_text(model: Path, tokenizer, found: Iterable[str], tokens: int, out: Path) -> None:
    from transformers import AutoModelForCausalLM

    texts = dict.fromkeys(tokenizer.convert_tokens_to_string([token]) for token in found)
    tokenizer.add_tokens([text for text in texts if "\ufffd" not in text][:tokens])
    network = AutoModelForCausalLM.from_pretrained(model)
    network.resize_token_embeddings(len(tokenizer))
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)


def add_tokens(model: Path, text: Path, tokens: int, out: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    add_as_text(model, tokenizer, missing_tokens(tokenizer, text, tokens), tokens, out)


def add_words(model: Path, text: Path, tokens: int, out: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    add_as_text(model, tokenizer, frequent_words(tokenizer, text), tokens, out)


def skeletoken(model: Path, text: Path, tokens: int, out: Path) -> None:
    from skeletoken import TokenizerModel
    from skeletoken.external.transformers import reshape_embeddings
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = TokenizerModel.from_pretrained(str(model))
    rows = tokenizer.vocabulary_size + tokens
    for token in missing_tokens(AutoTokenizer.from_pretrained(model), text, tokens):
        if tokenizer.vocabulary_size < rows and token not in tokenizer.vocabulary:
            tokenizer.model.add_token(token)  # and those that its merges need
    network = reshape_embeddings(AutoModelForCausalLM.from_pretrained(model), tokenizer)
    network.save_pretrained(out)
    tokenizer.to_transformers().save_pretrained(out)


def train_new(model: Path, text: Path, tokens: int, out: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    old = AutoTokenizer.from_pretrained(model)
    tokenizer = old.train_new_from_iterator(documents(text), vocab_size=len(old) + tokens)
    network = AutoModelForCausalLM.from_pretrained(model)
    network.resize_token_embeddings(len(tokenizer))
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)


def tokensurgeon(model: Path, text: Path, tokens: int, out: Path) -> None:
    donor = out.with_name("donor")
    train_new(model, text, tokens, donor)
    method = ["--approximation-method", "subword"]  # the others need a model that was trained with the new tokenizer
    subprocess.run(["mergekit-tokensurgeon", model, donor, out, *method], check=True)


TOOLS = {
    "tokengraft": tokengraft,
    "tokenizer_extension": tokenizer_extension,
    "skeletoken": skeletoken,
    "add_tokens": add_tokens,
    "add_words": add_words,
    "train_new": train_new,
    "tokensurgeon": tokensurgeon,
}

if __name__ == "__main__":
    name, model, text, tokens, out = sys.argv[1:]
    TOOLS[name](Path(model), Path(text), int(tokens), Path(out))
