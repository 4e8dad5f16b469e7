"""A real small model pruned by 10,000 tokens with kept ids never generates an id without a token. Opt-in.

    TOKENGRAFT_SMOLLM2=FOLDER TOKENGRAFT_DATA=FOLDER pytest -s tests/slow/test_smollm2_holes.py

The folders are those of `test_smollm2.py`. With `-s`, the numbers of ids without a token are shown.
"""

import os
from pathlib import Path

import pytest

import tokengraft as tg

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif("TOKENGRAFT_SMOLLM2" not in os.environ, reason="set TOKENGRAFT_SMOLLM2 to run this")

PRUNED, PROMPTS, GENERATED = 10_000, 24, 100
LOWEST = {"suppress_tokens": []}
"""Without the list of suppressed ids: what stacks do that do not read it."""


@pytest.fixture(scope="module")
def pruned(shared_data, tmp_path_factory):
    """The tokenizer, its holes, and a folder for each way to fill them."""
    source = Path(os.environ["TOKENGRAFT_SMOLLM2"])
    base, folder = tg.load(source), tmp_path_factory.mktemp("holes")
    english = (shared_data / "devtest" / "eng_Latn.devtest").read_text(encoding="utf-8").splitlines()
    highest = tg.Protection(tokens=[base.strings[base.n_rows - 1]])  # as `prune --ids keep` does
    small = tg.prune_order(base, tg.count(base, iter(english)), protection=highest)[:PRUNED].apply(base)
    for how in ("keep", "zero", "lowest"):
        tg.transplant(source, small, folder / how, options=tg.TransplantOptions(hole_rows=how))
    holes = {i for i in range(small.n_rows) if i not in small.strings}
    assert len(holes) == PRUNED
    return small, holes, folder, english


def emitted(pruned, how, **options):
    """How many of the generated ids have no token, of how many."""
    small, holes, folder, english = pruned
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / how, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    prompts = torch.tensor([small.encode(line)[:6] for line in english[:PROMPTS]])
    torch.manual_seed(0)
    lines = model.generate(prompts, max_new_tokens=GENERATED, pad_token_id=0, **options)[:, 6:].tolist()
    found = sum(token_id in holes for line in lines for token_id in line)
    print(f"{how} {options}: {found} of {sum(map(len, lines))}")
    return found


def test_greedy_generation_yields_no_hole(pruned):
    greedy = {"do_sample": False}
    emitted(pruned, "keep", **greedy)
    assert emitted(pruned, "lowest", **greedy, **LOWEST) == 0
    assert emitted(pruned, "lowest", **greedy) == 0


def test_samples_yield_no_hole(pruned):
    sampled = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
    kept = emitted(pruned, "keep", **sampled)
    assert kept > 10
    assert emitted(pruned, "lowest", **sampled, **LOWEST) < kept / 5
    assert emitted(pruned, "lowest", **sampled) == 0
    assert emitted(pruned, "zero", **sampled) == 0
