"""transformers: loads the tokenizer with `AutoTokenizer`, and a model with tables of `vocab_size` rows.

Checked with transformers 5.22.
"""

from collections.abc import Iterator

from tokengraft.check.finding import Finding
from tokengraft.check.serving.model import model_findings
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.checkpoint.ids import MAIN
from tokengraft.tokenizer.settings import SETTINGS


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What transformers makes of the folder."""
    yield folder.auto_tokenizer
    yield code(folder)
    yield from model_findings(folder)


def code(folder: ModelFolder) -> Finding:
    """Whether the folder needs its own code to be executed."""
    files = [name for name, part in ((MAIN, folder.config), (SETTINGS, folder.settings)) if "auto_map" in part]
    if not files:
        return Finding("code", "pass", "the folder needs no code of its own")
    fix = "pass trust_remote_code=True only if you trust it, and check what its tokenizer makes of the new tokens"
    return Finding("code", "note", f"`auto_map` in {' and '.join(files)} names code, which is not checked", (), fix)
