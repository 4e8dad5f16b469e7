"""Tokens whose ids programs compute with: no edit gives other tokens ids that are taken for theirs."""

import json

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint, set_config, write_texts

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.known_tokens import KINDS
from tokengraft.verify.check import numbered

TIMES = [f"<|{n / 50:.2f}|>" for n in range(6)]
WHISPER = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
SERIES = {
    "whisper": [*WHISPER, *TIMES],
    "glm-4-voice": ["<|user|>", *(f"<|audio_{n}|>" for n in range(8))],
    "orpheus": ["<|eot_id|>", *(f"<custom_token_{n}>" for n in range(8))],
    "t5": [f"<extra_id_{n}>" for n in reversed(range(8))],
    "paligemma": [*(f"<loc{n:04}>" for n in range(8)), *(f"<seg{n:03}>" for n in range(8)), "<image>"],
    "emu3": [*(f"<|visual token {n:06}|>" for n in range(8)), "<|image end|>"],
}
"""The added tokens of families, in the order of their ids."""
OPEN = ["whisper", "glm-4-voice", "orpheus"]
"""Families that take every later id for one of theirs."""


def document(family, *more):
    """A tokenizer with the added tokens of a family after its vocabulary, and perhaps more after these."""
    plain = builders.byte_level()
    names = [*SERIES[family], *more]
    first = len(plain["model"]["vocab"])
    tokens = [builders.added(first + at, name, special=name not in TIMES) for at, name in enumerate(names)]
    return plain | {"added_tokens": tokens}


def tokenizer(tmp_path, family, *more, name="base"):
    return tg.load(builders.write(tmp_path / name, document(family, *more)))


def counted(base, lines=ESTONIAN):
    return tg.count(base, iter(lines))


def swapped(base, n=6):
    pruned = tg.prune_order(base, counted(base, ENGLISH))[:n].apply(base)
    return tg.extend(pruned, counted(pruned), n).apply(pruned)


def failure(new, base=None):
    """What the check of numbered tokens finds, without all other checks."""
    found = numbered(new, base)
    return found if found.outcome == "fail" else None


def test_every_kind_of_numbered_tokens_has_a_family_that_is_tested():
    import re

    names = [name for family in SERIES.values() for name in family]
    assert all(any(re.fullmatch(kind.pattern, name) for name in names) for kind in KINDS)


@pytest.mark.parametrize("family", OPEN)
def test_new_tokens_after_ids_that_have_no_end_are_refused(tmp_path, family):
    base = tokenizer(tmp_path, family)
    with pytest.raises(errors.UnsupportedTokenizerError, match=r"every id from .* on is taken for one") as caught:
        tg.extend(base, counted(base), 6)
    assert "--swap" in caught.value.hint


@pytest.mark.parametrize("family", SERIES)
def test_a_swap_gives_ids_below_and_moves_no_numbered_token(tmp_path, family):
    base = tokenizer(tmp_path, family)
    new = swapped(base)
    assert all(new.ids[name] == base.ids[name] for name in SERIES[family])
    assert max(new.ids.values()) == max(base.ids.values())
    assert not failure(new, base)


@pytest.mark.parametrize("family", SERIES)
def test_numbered_tokens_move_together_when_ids_are_renumbered(tmp_path, family):
    base = tokenizer(tmp_path, family)
    new = tg.prune_order(base, counted(base, ENGLISH))[:6].apply(base).compact()
    assert {base.ids[name] - new.ids[name] for name in SERIES[family]} == {6}
    assert not failure(new, base)


@pytest.mark.parametrize("family", OPEN)
def test_a_token_that_was_added_by_hand_after_them_fails_the_check_by_name(tmp_path, family):
    base, new = tokenizer(tmp_path, family), tokenizer(tmp_path, family, "kassid", name="new")
    found = failure(new, base)
    assert "'kassid' has the id" in found.evidence[0]


def test_a_whisper_with_a_word_after_its_timestamps_fails_without_a_base_too(tmp_path):
    by_hand = tg.check(tokenizer(tmp_path, "whisper", "kassid"))
    assert [one.name for one in by_hand.failures] == ["numbered tokens"]
    assert not failure(tokenizer(tmp_path, "whisper", name="plain"))
    plain = tg.load(builders.write(tmp_path / "other", builders.byte_level()))
    assert "numbered tokens" not in [one.name for one in tg.check(plain).findings]


@pytest.mark.parametrize("family", SERIES)
def test_numbered_tokens_in_another_order_fail_the_check(tmp_path, family):
    base, other = tokenizer(tmp_path, family), document(family)
    tokens = other["added_tokens"]
    at = len(tokens) - 3
    tokens[at - 1]["content"], tokens[at]["content"] = tokens[at]["content"], tokens[at - 1]["content"]
    assert "it must be" in failure(tg.load(builders.write(tmp_path / "new", other)), base).evidence[0]


@pytest.mark.parametrize("family", SERIES)
def test_a_removed_numbered_token_fails_the_check(tmp_path, family):
    base, other = tokenizer(tmp_path, family), document(family)
    other["added_tokens"].pop(-2 if family in ("paligemma", "emu3") else -1)
    assert "was removed" in failure(tg.load(builders.write(tmp_path / "new", other)), base).evidence[0]


@pytest.mark.parametrize("family", ["t5", "orpheus"])
def test_a_tokenizer_of_another_model_has_no_numbered_tokens_to_keep(tmp_path, family):
    with_series(tmp_path / "model", family, eos_token_id=0, bos_token_id=0)
    set_config(tmp_path / "model", "generation_config.json", eos_token_id=[0], suppress_tokens=[])
    other = tg.load(builders.write(tmp_path / "other", builders.byte_level()))
    assert tg.transplant(tmp_path / "model", other, None).rows_after == other.n_rows
    assert "special tokens" in [one.name for one in tg.check(other, tg.load(tmp_path / "model")).failures]


def test_a_tokenizer_in_which_other_tokens_follow_already_may_be_extended(tmp_path):
    """Then the ids of the codes have an end."""
    base = tokenizer(tmp_path, "glm-4-voice", "<|more|>")
    new = tg.extend(base, counted(base), 6).apply(base)
    assert not failure(new, base)


def test_new_tokens_may_take_free_ids_below(tmp_path):
    base = tokenizer(tmp_path, "whisper")
    pruned = tg.prune_order(base, counted(base, ENGLISH))[:6].apply(base)
    assert len(tg.extend(pruned, counted(pruned), 6)) == 6
    with pytest.raises(errors.UnsupportedTokenizerError, match="7 new tokens need ids below, where 6 are free"):
        tg.extend(pruned, counted(pruned), 7)


def test_timestamps_that_have_rows_and_no_tokens_count_too(tmp_path):
    """Older folders of Whisper end at `<|notimestamps|>`."""
    plain = document("whisper")
    plain["added_tokens"] = [token for token in plain["added_tokens"] if token["content"] not in TIMES]
    base = tg.load(builders.write(tmp_path / "base", plain))
    with pytest.raises(errors.UnsupportedTokenizerError, match="timestamps of Whisper"):
        tg.extend(base, counted(base), 6)


@pytest.mark.parametrize("family", ["whisper", "orpheus"])
def test_adapt_refuses_before_text_is_read_and_swaps(tmp_path, family):
    base, texts = tokenizer(tmp_path, family), write_texts(tmp_path)
    missing = {"target": str(texts / "et.txt"), "keep": str(texts / "en.txt")}
    with pytest.raises(errors.UnsupportedTokenizerError, match="every id from"):
        tg.adapt(tmp_path / "base", add=6, out=tmp_path / "out", **missing)
    with pytest.raises(errors.UnsupportedTokenizerError, match="8 new tokens need ids below, where 2 are free"):
        tg.adapt(tmp_path / "base", add=8, remove=2, out=tmp_path / "out", **missing)
    done = tg.adapt(tmp_path / "base", swap=6, out=tmp_path / "out", **missing)
    assert done.tokenizer.n_rows == base.n_rows


def test_a_warning_says_that_new_tokens_follow_the_sentinels_of_t5(tmp_path, tokengraft):
    tokenizer(tmp_path, "t5")
    texts = write_texts(tmp_path)
    done = tg.adapt(tmp_path / "base", target=texts / "et.txt", add=6, out=tmp_path / "out")
    assert any("new tokens follow `<extra_id_0>`" in warning for warning in done.warnings)
    ran = tokengraft(
        "extend", tmp_path / "base", "--corpus", texts / "et.txt", "--add", 6, "--out", tmp_path / "extended"
    )
    assert "new tokens follow `<extra_id_0>`" in ran.err
    swap = tg.adapt(tmp_path / "base", target=texts / "et.txt", keep=texts / "en.txt", swap=6, out=tmp_path / "swapped")
    assert not any("extra_id" in warning for warning in swap.warnings)


def with_series(folder, family, *more, **config):
    """A checkpoint whose tokenizer has the added tokens of a family."""
    builders.write(folder, document(family))
    rows = tg.load(folder).n_rows
    checkpoint(folder, rows=rows, config=config)
    return tg.load(builders.write(folder, document(family, *more)))


@pytest.mark.parametrize("family", OPEN)
def test_a_transplant_refuses_a_tokenizer_that_was_extended_by_hand(tmp_path, family):
    with_series(tmp_path / "model", family)
    set_config(tmp_path / "model", eos_token_id=0, bos_token_id=0)
    set_config(tmp_path / "model", "generation_config.json", eos_token_id=[0], suppress_tokens=[])
    new = tokenizer(tmp_path, family, "kassid", name="new")
    with pytest.raises(errors.CheckpointError, match=r"'kassid' has the id .* and every id from"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_new_words_of_whisper_are_no_timestamps_to_transformers(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    base = tokenizer(tmp_path, "whisper")
    new = swapped(base)
    config = transformers.GenerationConfig(
        no_timestamps_token_id=new.ids["<|notimestamps|>"], eos_token_id=new.ids["<|endoftext|>"], max_length=9
    )
    words = sorted(new.ids[string] for string in new.ids.keys() - base.ids.keys())
    processor = transformers.WhisperTimeStampLogitsProcessor(config, begin_index=1)
    # After two timestamps, only text may follow.
    said = torch.tensor([[1, new.ids["<|0.02|>"], new.ids["<|0.04|>"]]])
    scores = processor(said, torch.zeros(1, new.n_rows))[0]
    assert scores[words].isfinite().all()
    assert scores[[new.ids[time] for time in TIMES]].isinf().all()
    by_hand = tokenizer(tmp_path, "whisper", "kassid", name="new")
    scores = processor(said, torch.zeros(1, by_hand.n_rows))[0]
    assert scores[by_hand.ids["kassid"]].isinf()  # what the check finds


def test_new_words_of_whisper_are_decoded_as_words(tmp_path):
    transformers = pytest.importorskip("transformers")
    base = tokenizer(tmp_path, "whisper")
    folder = tg.save(swapped(base), tmp_path / "new", base=base)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "WhisperTokenizer"}))
    special = [name for name in WHISPER if name != "<|endoftext|>"]
    loaded = transformers.WhisperTokenizerFast.from_pretrained(folder, additional_special_tokens=special)
    ids = loaded("põdrad kassid", add_special_tokens=False)["input_ids"]
    new = tg.load(folder)
    assert {new.strings[i] for i in ids} - base.ids.keys()
    times = [new.ids["<|0.00|>"], *ids, new.ids["<|0.08|>"]]
    assert loaded.decode(times, decode_with_timestamps=True) == "<|0.00|>põdrad kassid<|0.08|>"
