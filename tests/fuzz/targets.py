"""The targets: which files are mutated, and what must hold for them."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from fuzz import checkpoint_checks, file_checks, seeds, tokenizer_checks
from fuzz.seeds import Seed

Check = Callable[[Path, Random], None]


@dataclass(frozen=True)
class Target:
    """A parser, or several parsers of one folder."""

    name: str
    seeds: Callable[[], Iterator[Seed]]
    mutated: tuple[str, ...]
    """Patterns of the names of the files that are mutated, one of them in each case, sometimes two."""
    check: Check

    def chosen(self, seed: Seed) -> list[str]:
        """The files of a seed that may be mutated."""
        return [name for name in seed if any(fnmatch(name, pattern) for pattern in self.mutated)]


_SETTINGS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
TARGETS = {
    target.name: target
    for target in (
        Target("tokenizer-json", seeds.tokenizer_json, ("tokenizer.json",), tokenizer_checks.check_json),
        Target("tokenizer-settings", seeds.tokenizer_folder, _SETTINGS, tokenizer_checks.check_folder),
        Target("sentencepiece", seeds.piece_model, ("*",), tokenizer_checks.check_pieces),
        Target("tiktoken", seeds.tiktoken_folder, ("*",), tokenizer_checks.check_ranks),
        Target("tekken", seeds.tekken_folder, ("*",), tokenizer_checks.check_ranks),
        Target("special-tokens", seeds.special_tokens, ("*",), file_checks.check_special),
        Target("safetensors", seeds.checkpoint, ("old/*.safetensors",), checkpoint_checks.check_checkpoint),
        Target("index", seeds.sharded_checkpoint, ("old/*.index.json",), checkpoint_checks.check_checkpoint),
        Target(
            "config",
            seeds.checkpoint,
            ("old/config.json", "old/generation_config.json"),
            checkpoint_checks.check_checkpoint,
        ),
        Target("gguf", seeds.gguf_file, ("model.gguf",), checkpoint_checks.check_gguf),
        Target("counts", seeds.counts_file, ("counts.parquet",), file_checks.check_counts),
        Target("partial-counts", seeds.partial_counts, ("partial.parquet",), file_checks.check_partial),
        Target("extension", seeds.extension_file, ("extension.json",), file_checks.check_extension),
        Target("prune-order", seeds.order_file, ("order.json",), file_checks.check_order),
        Target("plan", seeds.plan_file, ("plan.json",), file_checks.check_plan),
        Target("record", seeds.record_file, ("adaptation.json",), file_checks.check_record),
        Target("cache", seeds.cache_files, ("*",), checkpoint_checks.check_cache),
        Target("words", seeds.word_list, ("words.txt",), file_checks.check_words),
        Target("corpus", seeds.corpus, ("a.*",), file_checks.check_corpus),
    )
}


def _abort(_: Path, random: Random) -> None:
    """Ends the process in some cases, as a library may."""
    if random.random() < 0.2:
        os.abort()


SELF_TEST = Target("self-test", seeds.record_file, ("*",), _abort)
"""Not run by default: it shows that a process that dies is a finding, and that the run goes on."""
