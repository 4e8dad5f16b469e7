"""`TABLE`: every option of every command. `options_of`: those of one command.

An option that two commands describe differently has two rows. Rows of `recipe` are options of `adapt` that few need:
they are not on its command line, but in recipes and in Python.
"""

from dataclasses import replace
from pathlib import Path

from tokengraft.options.option import Kind, Option
from tokengraft.options.values import ALL, AUTO, float_or_auto, number, number_or, rule, setting, shard, size

N, SIZE, SHARE, X = Kind("N", number), Kind("SIZE", size), Kind("SHARE", float), Kind("X", float)
AUTO_X = Kind("X", float_or_auto)
AUTO_N, PRUNED = Kind(f"{AUTO}|N", number_or(AUTO)), Kind("N", number_or(ALL, AUTO))
FILE, PATH, REGEX, NAME = Kind("FILE", Path), Kind("PATH"), Kind("REGEX"), Kind("NAME")
TEXTS, NAMED, NAMES = Kind("TEXT", action="extend"), Kind("NAME=FILES", action="extend"), Kind("NAME", action="extend")
FLAG, SWITCH = Kind(action="flag"), Kind(action="switch")
STACK = Kind("STACK", action="append", choices="verify.finding:STACKS")
INIT = Kind(choices="checkpoint.rows:INITIALISERS")


def _one_of(*choices: str) -> Kind:
    return Kind(choices=choices)


LEARNS = "--add or --swap"
SIZED = "--add or --swap or --remove"
NEW_ROWS = "--add or --swap or --special or --include"
READS = "--corpus or --held-out or --preserve or --parity-text or --target or --text"
PRUNES = "--swap or --remove or --method"
"""`prune` always has a method."""
ALL_COMMANDS = "adapt train blend inspect count merge prune extend draft check evaluate report transplant convert"
READERS = "adapt train count prune extend draft check evaluate report"
_O = Option

# fmt: off
_TEXTS = (
    _O("target", "adapt", Kind("TEXT", action="groups"), "text to learn from: FILES, or NAME=FILES:WEIGHT; repeat it "
       "for several. Each gets a share of the mix by its WEIGHT (default: 1), not by its size", needs=SIZED),
    _O("keep", "adapt", TEXTS, "text whose tokens should be kept: FILES, or NAME=FILES for several; all together have "
       "the same weight as all targets together", needs=SIZED),
    _O("test", "adapt", NAMED, "text to measure the result on, besides held-out documents of the corpora"),
    _O("text", "evaluate report", NAMED, "text: everything that `tokengraft count` reads, or counts; without a "
       "name, that of the file", required=True),
    _O("counts", "extend prune draft", Kind("FILE", Path, "extend"), "counts from `tokengraft count`",
       excludes="--corpus"),
    _O("corpus", "extend prune draft", Kind("CORPUS", action="extend"),
       "text to count, in any form that `tokengraft count` reads"),
    _O("weight", "extend prune count draft", Kind("W", action="append"), "weight of one text, such as 2 or 1/3; give "
       "one for each. Counts are multiplied by the smallest whole numbers with this ratio: 1 and 1/3 are 3 and 1",
       needs="--counts or --corpus", excludes="--balance parity"),
)
_SIZES = (
    _O("swap", "adapt", AUTO_N, "replace N tokens: prune N, learn N new ones, which take their ids; no shape changes. "
       f"`{AUTO}` chooses N: as many as the text supports and held-out documents gain from"),
    _O("add", "adapt", AUTO_N, f"learn N tokens; `{AUTO}` chooses N as for --swap", excludes="--swap"),
    _O("add", "extend", AUTO_N, f"number of new tokens, or `{AUTO}` to choose it on --held-out"),
    _O("remove", "adapt", AUTO_N, "prune N tokens; ids are renumbered without holes if fewer are added. "
       f"`{AUTO}`: as many as held-out documents can do without", excludes="--swap"),
    _O("remove", "prune", PRUNED, f"number of tokens to remove; `{AUTO}`: as many as --held-out can do without; "
       f"`{ALL}`: the whole order, which is the default for the script and unreachable methods"),
    _O("rows", "prune", N, "remove tokens until at most N embedding rows are left, padding included: a model "
       "whose rows are a multiple of 64 keeps such a multiple", excludes="--remove; --ids keep"),
    _O("held_out", "prune", NAMED, "text that the order is not made from, one for each language, to show what other "
       "sizes cost"),
    _O("held_out", "extend", TEXTS, f"text that is not learned from, to choose the size on with --add {AUTO}, or for "
       "--curve", needs=f"--add {AUTO} or --curve"),
    _O("size", "draft", AUTO_N, f"number of ids; `{AUTO}`: the smallest multiple of 1,024 of which twice as many would "
       "cover less than 1 % more of every text of --held-out", excludes="--coverage; --ids"),
    _O("coverage", "draft", SHARE, "choose the number by the share of the tokens of every held-out text that it "
       "covers, such as 0.98", needs="--held-out", excludes="--ids"),
    _O("held_out", "draft", NAMED, "text that is not counted, to measure coverage on"),
    _O("ids", "draft", PATH, "take ids that were chosen before: a JSON list, or a folder of this command",
       excludes="--counts; --corpus"),
    _O("keep_coverage", "adapt prune", SHARE, "with --remove auto: the share of the tokens of the corpus and of every "
       "held-out text that stay", 0.9995, "keep_coverage", f"--remove {AUTO}"),
    _O("curve", "extend", FLAG, "show the gain on --held-out by number of new tokens, up to --add, and write nothing",
       needs="--held-out", excludes=f"--out; --force; --extension; --report; --add {AUTO}"),
    _O("max_add", "adapt extend", N, f"largest number of new tokens that `{AUTO}` may choose", 32_000, "max_add",
       f"--add {AUTO} or --swap {AUTO}"),
    _O("min_support", "recipe", N, "a new token that occurs fewer than N times in the training text is rare", 100,
       "size.min_support", f"--add {AUTO} or --swap {AUTO}"),
    _O("max_rare", "recipe", SHARE, "largest share of rare tokens among the new ones", 0.25, "size.max_rare",
       f"--add {AUTO} or --swap {AUTO}"),
    _O("multiple", "recipe", N, f"`{AUTO}` rounds the number down to a multiple of N", 64, "size.multiple"),
    _O("training_text", "adapt extend", SIZE, "how much such text the model will be trained on: occurrences are scaled "
       "to it; by default, the counted text", None, "size.training_text", LEARNS, "--weight"),
)
_LEARNING = (
    _O("method", "extend", Kind(choices="learn.naive:EXTEND_METHODS"), "continued training, or a baseline that adds "
       "tokens of a newly trained vocabulary", "continued"),
    _O("character_coverage", "extend", SHARE, "not byte-level: add missing characters first, until the vocabulary "
       "covers this share of the text's characters; 0 adds none", 0.9995,
       needs="a tokenizer that is not byte-level"),
    _O("min_count", "adapt extend", N, "merge only pairs that occur at least N times; with weights or several "
       "targets, N times in the text that counts least", 2, "limits.min_count", LEARNS),
    _O("max_token_bytes", "extend recipe", N, "maximum length of a new token", None, "limits.max_token_bytes", LEARNS),
    _O("deny", "adapt extend", FILE, "texts that must not become tokens, one per line", None, "limits.deny", LEARNS),
    _O("deny_pattern", "extend recipe", REGEX, "no new token may match this pattern anywhere", None,
       "limits.deny_pattern", LEARNS),
    _O("scripts", "adapt extend", NAMES, "new tokens may have only characters of these Unicode scripts, such as "
       "Arabic; a leading space and combining marks are allowed", None, "limits.scripts", LEARNS),
    _O("preserve", "adapt extend", TEXTS, "text, or counts of it, that must keep its tokens and ids: pairs of tokens "
       "that are neighbours in it are never merged. Words in a script of the text to learn from are not preserved if "
       "they have less than 1 % of its letters", None, "preserve"),
    _O("preserve_keep", "adapt", FLAG, "preserve the text of --keep too, as by --preserve. Tokens of preserved text "
       "are not pruned; its ids change if more tokens are removed than added", None, "preserve_keep", "--keep"),
    _O("preserve_exactly", "adapt extend", FLAG, "preserve every word of the text to preserve, even if hardly any new "
       "token can be learned then", None, "preserve_exactly", "--preserve or --preserve-keep"),
    _O("include", "adapt extend", FILE, "words, one per line, that become tokens before any is learned, with and "
       "without a leading space; without --add, nothing else is learned, and no text is needed", None,
       "include.words"),
    _O("include_exact", "recipe", FLAG, "take the lines of --include as they are", None, "include.exact", "--include"),
    _O("include_added", "adapt", FLAG, "words of --include that the pre-tokenizer splits, such as COVID-19, "
       "become added tokens, which are found whole before the text is split", None, "include_added", "--include"),
    _O("max_helpers", "extend recipe", N, "without --add: at most N tokens that words of --include are merged from; "
       "words that cost the most are left out", None, "max_helpers", "--include; BPE", "--add; --swap"),
    _O("special", "adapt extend", Kind("TOKEN", action="extend"), "special tokens, or a file with one per line, each "
       "with a description after a tab: its row begins as the mean of the description's rows. Reserved tokens are "
       "renamed first, then rows of padding are used", None, "special"),
    _O("like", "adapt", Kind("TOKEN"), "token whose row special tokens without a description begin as; by default the "
       "mean of all rows", None, "like", "--special; weights"),
    _O("eos", "adapt", Kind("TOKEN"), "token that ends a text from now on, in every config", None, "eos", "",
       "--as-adapter"),
    _O("pad", "adapt", Kind("TOKEN"), "token for padding from now on, in every config", None, "pad", "",
       "--as-adapter"),
    _O("keep_llama_cpp_hash", "adapt extend", SWITCH, "the stock converter of llama.cpp recognises the result: its "
       "check text keeps its tokens and ids; by default for `adapt --swap`", None, "keep_llama_cpp_hash"),
    _O("join_marks", "adapt extend", Kind("SCRIPT", action="extend"), "do not cut words of these Unicode scripts at "
       "combining marks, such as Devanagari for Hindi: new tokens may then have marks inside. llama.cpp and Ollama "
       "cannot use the result", None, "join_marks", LEARNS),
    _O("join_marks", "count", Kind("SCRIPT", action="extend"), "do not cut words of these Unicode scripts at combining "
       "marks, for `tokengraft extend --join-marks`"),
    _O("balance", "adapt extend", _one_of("weights", "parity"), "several texts: add up their counts by weight, or "
       "learn every next token for the text with the smallest gain", "weights", "balance", LEARNS),
    _O("parity_text", "extend recipe", Kind("NAME=FILE", action="extend"), "--balance parity: the same sentences in "
       "every language, and in one more, the reference; every next token is learned for the language that needs the "
       "most tokens for them", None, "parity_text", "--balance parity"),
    _O("max_share", "adapt extend", SHARE, "--balance parity: no language gets more than this share of the new "
       "tokens, such as 0.5", 1, "max_share", "--balance parity"),
    _O("extension", "extend", FILE, "also write the learned tokens and merges as JSON"),
)
_PRUNING = (
    _O("method", "prune", Kind(choices="pruning.methods:METHODS"), "which tokens are removed first. With --by-merges "
       "and --no-protect-defaults, leaf-frequency is the order of the paper", "leaf-expected"),
    _O("by_merges", "prune recipe", FLAG, "count tokens with merge skipping (ignore_merges) off, as the paper does; by "
       "default, as the tokenizer encodes", None, "by_merges", PRUNES),
    _O("scripts", "prune", NAMES, "for the script methods: the Unicode scripts to keep, such as Latin",
       needs="--method script|script-leaf"),
    _O("protect", "adapt prune", FILE, "tokens that are not removed, one per line", None, "protection.tokens",
       PRUNES),
    _O("protect_pattern", "adapt prune", REGEX, "do not remove tokens whose text matches it anywhere", None,
       "protection.pattern", PRUNES),
    _O("no_protect_defaults", "adapt prune", FLAG, "also remove tokens that cleaned text lacks and that are kept "
       "otherwise: white space, digits, punctuation, names of source code, and text of chat templates", None,
       "protection.defaults", PRUNES),
    _O("prune_characters", "prune recipe", FLAG, "remove single characters too, where byte fallback can spell them; of "
       "Unigram and WordPiece, all that the text lacks", None, "protection.characters"),
    _O("reuse_reserved", "prune recipe", FLAG, "remove reserved tokens that nothing uses, before all others", None,
       "protection.reuse_reserved"),
    _O("ids", "prune", _one_of("compact", "keep"), "compact: renumber without holes; keep: no id moves, a later extend "
       "fills the holes, and the token with the highest id is kept so that the number of embedding rows does not "
       "change; for BPE only", "compact"),
    _O("keep_llama_cpp_hash", "prune", FLAG, "the tokens of the check text of llama.cpp's converter are kept, so that "
       "it recognises the result", needs="--ids keep"),
    _O("order", "prune", FILE, "with text or --method: also write the complete order as JSON; without: remove the "
       "first tokens of an order that was written before, as many as --remove says"),
)
_CHECKPOINT = (
    _O("for", "adapt", STACK, "serving stack that should be able to use the result: {choices}; may be repeated", None,
       "stacks"),
    _O("for", "check", STACK, "also check what a serving stack needs, with fixes: {choices}; may be repeated"),
    _O("init", "adapt", INIT, "initialiser for new embedding rows", "fvt-rare", "init", f"{NEW_ROWS}; weights"),
    _O("init", "transplant", INIT, "initialiser for new embedding rows", "fvt-rare; for an adapter: as its model"),
    _O("output_init", "recipe", INIT, "initialiser for new rows of an untied output; by default that of --init", None,
       "output_init", f"{NEW_ROWS}; weights"),
    _O("output_init", "transplant", INIT, "initialiser for new rows of an untied output; by default that of --init"),
    _O("hole_rows", "transplant recipe", _one_of("keep", "zero", "lowest"), "rows whose ids have no token. lowest: a "
       "row that is never the most likely; zero: zeros; both with the ids suppressed in the generation config; keep: "
       "the row that they had", "lowest", "hole_rows", "weights"),
    _O("seed", "transplant recipe", Kind("N", int), "seed for random initialisers", 0, "seed",
       "a random initialiser"),
    _O("as_adapter", "adapt", FLAG, "write the tokenizer and a PEFT adapter with the new rows, not the model", None,
       "as_adapter", "--swap or --special or --include; weights", "--for"),
    _O("as_adapter", "transplant", FLAG, "write the tokenizer and a PEFT adapter with the new rows, not the model; the "
       "number of rows must stay the same"),
    _O("base", "transplant", Kind("TOKENIZER"), "for a GGUF file, an adapter or a draft: its old tokenizer; if it "
       "has one itself, both must agree"),
    _O("pad_multiple", "transplant", Kind("N", number_or("keep")), "make the number of rows a multiple of N; keep: "
       "keep the current padding", "keep"),
    _O("hard_link", "transplant", FLAG, "hard-link unchanged files to the source; writing to them in place then "
       "changes both"),
    _O("cut", "draft", Kind("FOLDER"), "EAGLE-3 or MTP draft to write with its head cut to the ids; without a head of "
       "its own, with rows of the target's"),
    _O("pt", "draft", FLAG, "also write the token map of SGLang and the mapping of SpecForge, which are pickled (needs "
       "torch)"),
    _O("verify", "transplant", FLAG, "also run both models and compare logits (needs torch)"),
)
_TRAINING = (
    _O("text", "train", Kind("FILES", action="extend"), "text to learn, or NAME=FILES", required=True),
    _O("keep", "train", Kind("FILES", action="extend"), "text in the languages to keep, or NAME=FILES: a tenth of the "
       "training"),
    _O("held_out", "train", NAMED, "text to score, with the name of a text of --text or of --keep, which must not "
       "get worse. By default, documents of both are held out"),
    _O("passes", "train", AUTO_X, "how often the text is read; auto: as often as costs the tokens of one pass with the "
       "old tokenizer, at most 3", AUTO),
    _O("max_bytes", "train", SIZE, "train on this much text: for a short run"),
    _O("learning_rate", "train", X, "highest rate; by default that of training.json"),
    _O("blend", "train", AUTO_X, "share of the weights before training in the result; auto: the smallest of 0 to 0.5 "
       "with which kept text is at most 1 % worse than before", AUTO),
    _O("trainer", "train", Kind("NAME=VALUE", setting, "extend"), "more arguments of transformers' Trainer, such as "
       "report_to=wandb or gradient_checkpointing=true"),
    _O("kept_share", "train", X, "share of kept text; by default that of training.json"),
    _O("new_rows_factor", "train", X, "new rows learn so much faster than layers; by default as training.json says"),
    _O("old_rows_factor", "train", X, "the same of old rows: 0.1 is a tenth as fast; by default as training.json says"),
    _O("step_bytes", "train", SIZE, "text of each step; by default 89 kB, or less if there is little text"),
    _O("length", "train", N, "tokens of a sequence; by default up to 1024"),
    _O("batch", "train", N, "sequences in memory at once; by default what fits"),
    _O("seed", "train", Kind("N", int), "order of the text", 0),
    _O("share", "blend", X, "share of the weights before training, such as 0.2", required=True),
)
_SINGLE = (
    _O("min_count", "count merge", N, "drop pretokens that occur less often", 1),
    _O("tokenizer", "merge", Kind("SOURCE"), "the inputs are partial counts (Parquet) that were made with this "
       "tokenizer"),
    _O("base", "check", Kind("SOURCE"), "tokenizer that SOURCE was made from; for a draft: the folder of its target"),
    _O("preserve", "check", TEXTS, "text, or counts of it, that must have the same tokens as with the base; other ids "
       "after renumbering are a note, and so are other tokens of words in scripts with less than 1 % of its letters",
       needs="--base"),
    _O("preserve_exactly", "check", FLAG, "other tokens of any word are a failure", needs="--preserve"),
    _O("base", "evaluate", NAME, "tokenizer to compare the others with; by default the first"),
    _O("examples", "evaluate", FLAG, "also show the documents that changed most, side by side, the new tokens that "
       "save the most, and new tokens that are not used", needs="two tokenizers"),
    _O("bits", "evaluate", FLAG, "folders of models: also run them, and show their bits per byte, which can be "
       "compared across vocabularies (needs torch)"),
    _O("csv", "evaluate", FLAG, "print the result as CSV", excludes="--json; --examples"),
    _O("title", "report", Kind("TEXT"), "title of the page"),
    _O("to", "convert", Kind(choices="formats.convert:TARGETS"), "the format", required=True),
    _O("renumber", "convert", FLAG, "for tiktoken and tekken: give tokens new ids in the order in which they merge, "
       "and special tokens those that the format has for them"),
    _O("pattern", "convert", REGEX, "split pattern of a tiktoken file that is not known, or the name of a known one: "
       "cl100k_base, gpt2, llama3, o200k_base, p50k_base, qwen2 and others"),
    _O("special_tokens", "convert", FILE, "special tokens of a tiktoken file, as a JSON object of texts and ids, or a "
       "list if they have the ids after the ranks"),
)
_OUTPUT = (
    _O("report", "extend prune", FILE, "also write a page about the result, as `tokengraft report` does"),
    _O("report", "evaluate", FILE, "also write a page about the result, as `tokengraft report` does",
       needs="two tokenizers"),
    _O("no_report", "adapt", FLAG, "do not write report.html, a page about the result", None, "report"),
    _O("recipe", "adapt", FILE, "take options from a TOML or JSON file, or from the tokengraft.json of an adapted "
       "model; options that are given besides win"),
    _O("dry_run", "adapt", FLAG, "check everything, show an estimate, write nothing"),
    _O("dry_run", "transplant", FLAG, "show what would be done, write nothing; MODEL may be only a tokenizer"),
    _O("out", "adapt", PATH, "output: folder for the adapted model; must not exist", required=True),
    _O("out", "extend", PATH, "output: folder for the extended tokenizer; must not exist"),
    _O("out", "prune", PATH, "output: folder for the pruned tokenizer; must not exist", required=True),
    _O("out", "draft", PATH, "output: folder for the ids, or for the draft; must not exist", required=True),
    _O("out", "train blend", Kind("PATH", Path), "output: folder for the model; must not exist", required=True),
    _O("out", "count merge", PATH, "output: Parquet file for the counts; must not exist", required=True),
    _O("out", "report", PATH, "output: HTML file; must not exist", required=True),
    _O("out", "convert", PATH, "output: folder for the converted tokenizer; must not exist", required=True),
    _O("out", "transplant", Kind("PATH", Path), "output: folder, or GGUF file; must not exist"),
    _O("force", "adapt blend count merge prune extend report transplant convert draft", FLAG,
       "replace an existing output", None, "force"),
    _O("wide", "evaluate", FLAG, "show all measures, not only the five that matter most"),
    _O("json", ALL_COMMANDS, FLAG, "print the result as JSON"),
    _O("quiet", ALL_COMMANDS, FLAG, "print only the result, warnings and errors: no progress, no notes",
       None, "quiet"),
)
_READING = (
    _O("text_field", READERS, NAME, "JSON field or Parquet column with the text", "text", "read_options.text_field",
       READS),
    _O("documents", "adapt train evaluate report", _one_of("files", "lines"), "whether a text file is one document, or "
       "each of its lines is one", "lines", "read_options.documents"),
    _O("documents", "count prune extend draft check", _one_of("files", "lines"), "whether a text file is one document, "
       "or each of its lines is one", "files", "read_options.documents", READS),
    _O("format", "train count prune draft check evaluate report recipe", _one_of("text", "jsonl", "parquet"), "format "
       "of all inputs; by default by file name. With text or jsonl, binary files are not refused", None,
       "read_options.format", READS),
    _O("skip_bad", READERS, FLAG, "skip files and documents that cannot be read, and report how many", None,
       "read_options.skip_bad", READS),
    _O("shard", "count recipe", Kind("I/N", shard), "read only shard I of N of the inputs; I starts at 0", None,
       "read_options.shard"),
    _O("normalize", "count recipe", _one_of("nfkc"), "normalize text before the tokenizer's own normalizer", None,
       "read_options.normalize"),
    _O("rule", "count recipe", Kind("NAME=VALUE", rule, "append"), "SentencePiece types: a field of trainer_spec that "
       "decides which pieces may be made, such as split_digits=false or max_sentencepiece_length=20, in place of the "
       "model's own or Llama's"),
    _O("max_bytes", "adapt count prune extend draft", SIZE, "stop after this much text; of several files of one text, "
       "the first are read", None, "count_options.max_bytes", "--corpus or --target"),
    _O("max_documents", "count recipe", N, "stop after N documents", None, "count_options.max_documents"),
    _O("workers", "adapt count", Kind("N", int), "threads, by default one per core; on Ray, tasks at once",
       None, "count_options.workers"),
    _O("memory", "count merge recipe", SIZE, "memory for counting: half for tables of pretokens, which are written to "
       "disk beyond it, and half for documents; longer documents are refused. On Ray: for each task", "4GiB",
       "count_options.memory"),
    _O("engine", "adapt count", _one_of("local", "ray"), "where to count: in this process, or on Ray, for corpora that "
       "one machine cannot read", "local", "count_options.engine"),
    _O("address", "adapt count", Kind("ADDRESS"), "Ray cluster to use: auto, or HOST:PORT; by default Ray is started "
       "on this machine", None, "count_options.address"),
)
# fmt: on

TABLE: tuple[Option, ...] = (
    *_TEXTS,
    *_SIZES,
    *(replace(option, group="which tokens are learned") for option in _LEARNING),
    *(replace(option, group="which tokens are removed") for option in _PRUNING),
    *_CHECKPOINT,
    *_TRAINING,
    *_SINGLE,
    *_OUTPUT,
    *(replace(option, group="reading the text") for option in _READING),
)


def options_of(command: str) -> list[Option]:
    """The options of a command, in the order of its help. `recipe` stands for all that a recipe of `adapt` may have."""
    commands = {"adapt", "recipe"} if command == "recipe" else {command}
    return [option for option in TABLE if commands & {*option.commands.split()}]
