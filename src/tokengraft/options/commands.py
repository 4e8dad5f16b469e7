"""`COMMANDS`: every command, its help, and its arguments without a flag. Those with one are in `table.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Positional(NamedTuple):
    """An argument without a flag."""

    name: str
    metavar: str
    help: str
    nargs: str | None = None
    type: Callable[[str], Any] = str


class Command(NamedTuple):
    """A command, or a group of commands if it has no module."""

    module: str
    """The module of `cli` with its function, such as `run_adapt`."""
    help: str
    """A line in the list of commands."""
    description: str
    positional: tuple[Positional, ...] = ()
    first: str = ""
    """The options of `--help`; by default all."""


_SOURCE = Positional("source", "SOURCE", "model folder, tokenizer.json, tokenizer.model or hub name")

# fmt: off
COMMANDS = {
    "adapt": Command(
        "adapt", "adapt a model to text: prune, extend, check, measure, transplant",
        "The complete pipeline: count the text, prune tokens that it rarely uses, learn new ones, check the result, "
        "measure it on held-out documents, and transplant the checkpoint. After an interruption, the same command uses "
        "the counts of large texts again.",
        (Positional("model", "MODEL", "model folder with weights, or a tokenizer", "?"),),
        "--target --keep --test --swap --add --remove --special --for --text-field --recipe --dry-run --out --force "
        "--json"),
    "train": Command(
        "train", "train an adapted model, and blend it (needs torch)",
        "Train an adapted model on text of its new language, with a share of text to keep, and blend the result with "
        "the weights before training. `training.json` of the model has the settings. Several GPUs: `torchrun "
        "--nproc-per-node N -m tokengraft train ...`. After an interruption, the same command goes on.",
        (Positional("adapted", "ADAPTED", "folder of the model, from `tokengraft adapt`", type=Path),),
        "--text --keep --held-out --out --passes --max-bytes --learning-rate --blend --trainer"),
    "blend": Command(
        "train", "mix the weights of a trained model with those before training",
        "Write the weighted mean of a model after and before training, file by file, without loading it. It gives back "
        "most of what other languages lost in training. Rows of new tokens are the trained ones. `tokengraft train` "
        "does it by itself; this command is for models that were trained elsewhere.",
        (Positional("trained", "TRAINED", "folder of the model after training, or a LoRA", type=Path),
         Positional("adapted", "ADAPTED", "folder of the model before training", type=Path))),
    "inspect": Command(
        "inspect", "show what is in a tokenizer",
        "Show the kind, sizes and id layout of a tokenizer, its unreachable tokens, and known problems.", (_SOURCE,)),
    "count": Command(
        "count", "count the pretokens of a corpus; all other steps work from the counts",
        "Count the pretokens of a corpus into a Parquet file. Extension, pruning and evaluation work from it and do "
        "not read the corpus again.",
        (_SOURCE, Positional("corpus", "CORPUS", "file (.txt, .jsonl, .parquet; plain, .gz or .zst), folder, glob, URL "
                             "of these (s3://, hf://, https://), or - for stdin", "+"))),
    "counts": Command("", "work with files of counts", "Work with files of counts."),
    "counts merge": Command(
        "count", "add up files of counts",
        "Add up files of counts, for example those of the shards of one corpus. With --tokenizer, add up partial "
        "counts, which `tg.distributed.BatchCounter` makes inside other engines such as Spark.",
        (Positional("counts", "COUNTS", "files of counts, or folders of partial counts", "+"),)),
    "prune": Command(
        "edit", "remove tokens that a deployment does not need",
        "Remove tokens, by default the rarest leaves of the merge tree, so that every kept token stays reachable. "
        "Special and added tokens, bytes and, unless bytes spell them, characters are kept; by default also white "
        "space, digits, ASCII punctuation, names of source code and text of chat templates. Ids are renumbered without "
        "holes unless --ids keep.", (_SOURCE,),
        "--counts --corpus --remove --rows --held-out --method --scripts --protect --no-protect-defaults --ids "
        "--report --out --force --json"),
    "extend": Command(
        "edit", "learn new tokens by continuing BPE training",
        "Learn new tokens by continuing BPE training on new text, so that every new token is reachable. Kept ids do "
        "not move. The written folder is loaded again with other libraries and compared.", (_SOURCE,),
        "--counts --corpus --add --held-out --curve --scripts --preserve --include --special --text-field --report "
        "--out --force --json"),
    "check": Command(
        "check", "verify a tokenizer, alone or against its base",
        "Verify any tokenizer, including one that another tool made. With --base, also verify the edit: kept ids, "
        "merges and added tokens, and everything else in the files that the edit does not explain. What can change "
        "ids, segmentation or decoding is a failure, other changes are notes. Exits with 1 if a check fails.",
        (_SOURCE,)),
    "evaluate": Command(
        "evaluate", "measure tokenizers and models on texts",
        "Measure every tokenizer on every text: bytes per token, fertility, Rényi efficiency, vocabulary use, and the "
        "differences from a base tokenizer. With --bits also the models: bits per byte.",
        (Positional("tokenizers", "TOKENIZER", "folder, file or hub name, or NAME=SOURCE", "+"),)),
    "report": Command(
        "evaluate", "write a page that compares two tokenizers",
        "Write one HTML page about two tokenizers, whatever made them: what changed, the effect on every text, all "
        "tokens, and a reader in which both tokenizers split any text. The page needs no network.",
        (Positional("base", "BASE", "tokenizer to compare with: folder, file, or hub name"),
         Positional("new", "NEW", "the other tokenizer: folder, file, or hub name"))),
    "transplant": Command(
        "transplant", "give a checkpoint the vocabulary of another tokenizer",
        "Write a checkpoint whose embeddings and configs fit another tokenizer, without loading the model. Kept rows "
        "are copied bit for bit, new rows are initialised, and ids in configs are rewritten. The result is compared "
        "with the source, then renamed into place.",
        (Positional("model", "MODEL", "folder with safetensors and the old tokenizer, a GGUF file, or an adapter",
                    type=Path),
         Positional("tokenizer", "NEW_TOKENIZER",
                    "new tokenizer: folder, file, or hub name; for an adapter: the new model"))),
    "draft": Command(
        "draft", "choose the ids of a smaller head for speculative decoding",
        "Choose the ids that the head of a draft model predicts, by the text that the target will write: special "
        "tokens, those of chat templates and bytes, then the most frequent. Writes them as a JSON list and as the maps "
        "of EAGLE-3, and with --cut the draft with its head cut to them. The target verifies what a draft proposes, so "
        "no choice changes the text.", (_SOURCE,)),
    "convert": Command(
        "convert", "write a tokenizer in another file format",
        "Write a tokenizer in another file format, if it can express the tokenizer exactly, and prove that both "
        "encode alike: on the text of every token, on text of random tokens, and with the library of the format.",
        (_SOURCE,)),
}
"""In the order of `--help`."""
