"""Rank files (tiktoken and tekken): reading, writing, editing, and a rank file beside a tokenizer.json."""

import json
import random

import builders
import pytest
import tiktoken
import tiktoken_ext.openai_public as public
from checkpoints import ESTONIAN
from rank_files import (
    SPECIALS,
    assert_library_agrees,
    both,
    counts_of,
    explicit,
    following,
    plain_file,
    tiny_ranks,
    write_tekken,
)

import tokengraft as tg
from tokengraft import _core, cli, errors
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.kind import spell
from tokengraft.tokenizer.rank_file import ENCODING, ENCODINGS, FAMILIES, PATTERNS, TEKKEN

FORMATS = {"explicit": explicit, "following": following, "tekken": write_tekken}


@pytest.fixture(params=FORMATS)
def folder(request, tmp_path):
    return FORMATS[request.param](tmp_path / request.param)


def tekken_of(folder, *tokens):
    (write_tekken(folder) / "tekken.json").write_bytes(builders.tekken_file([*tokens], SPECIALS, TEKKEN))
    return tg.load(folder)


def test_an_untouched_rank_file_is_written_back_byte_for_byte(folder, tmp_path):
    tokenizer = tg.load(folder)
    out = tg.save(tokenizer, tmp_path / "out")
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}
    assert tg.load(out) == tokenizer
    assert_library_agrees(out, tokenizer)


def test_the_format_is_decided_by_the_content_not_by_the_name(tmp_path):
    tekken, model = write_tekken(tmp_path / "a"), following(tmp_path / "b")
    (tmp_path / "x.bin").write_bytes((tekken / "tekken.json").read_bytes())
    (tmp_path / "y.bin").write_bytes((model / "tokenizer.model").read_bytes())
    assert tg.load(tmp_path / "x.bin").ids == tg.load(tekken).ids
    other = tg.load(tmp_path / "y.bin", pattern="cl100k_base", special_tokens=SPECIALS)
    assert other.ids == tg.load(model).ids
    assert other.main == "tokenizer.tiktoken"
    assert tg.load(tg.save(other, tmp_path / "out", verify=False)) == other


@pytest.mark.parametrize("seed", range(30))
def test_any_vocabulary_encodes_as_tiktoken_does(seed, tmp_path):
    """Random tokens with random ranks: most cannot be reached, and pairs of one token are many."""
    generator = random.Random(seed)
    tokens = {"".join(generator.choices("aab ", k=generator.randint(2, 6))).encode() for _ in range(40)}
    ordered = [bytes([byte]) for byte in range(256)] + sorted(tokens)
    generator.shuffle(ordered)
    ranks = {token: 3 * rank for rank, token in enumerate(ordered)}
    (tmp_path / "x.tiktoken").write_bytes(builders.tiktoken_file(ranks))
    tokenizer = tg.load(tmp_path / "x.tiktoken", pattern="[^q]+")
    encoding = tiktoken.Encoding("x", pat_str="[^q]+", mergeable_ranks=ranks, special_tokens={})
    for _ in range(300):
        text = "".join(generator.choices("aaabb qé", k=generator.randint(0, 24)))
        assert tokenizer.encode(text) == encoding.encode(text), text


def test_merges_are_all_pairs_that_make_a_token_as_in_the_slow_version(tmp_path):
    tokenizer = tg.load(explicit(tmp_path))
    ranks = {spell(token, "byte-level"): rank for token, rank in tiny_ranks().items()}
    assert [[*pair] for pair in tokenizer.merge_strings()] == builders.merges_by_rank(ranks, ranks)
    apart = _core.Vocabulary.by_products({"a": 0, "b": 5, "ab": 7, "aba": 9}, [7])
    assert (apart.merge_strings(), len(apart)) == ([], 4)


def test_pruned_extended_and_both_are_valid_for_the_library(folder, tmp_path):
    base = tg.load(folder)
    counts = counts_of(base)
    pruned = tg.prune_order(base, counts)[:30].apply(base)
    for name, new in {"holes": pruned, "compact": pruned.compact()}.items():
        out = tg.save(new, tmp_path / name, base=base)
        assert tg.load(out) == new
        assert_library_agrees(out, new)
        tg.check(new, base=base).raise_for_failures()
    if folder.name == "following":
        return
    for name, start in {"extended": base, "both": pruned.compact()}.items():
        new = tg.extend(start, counts, 30).apply(start)
        out = tg.save(new, tmp_path / name, base=start)
        assert len(new.ids) == len(start.ids) + 30
        assert tg.load(out) == new
        assert_library_agrees(out, new)
        tg.check(new, base=start).raise_for_failures()


def test_a_second_extension_of_a_written_one_equals_one_in_memory(tmp_path):
    base = tg.load(write_tekken(tmp_path / "base"))
    once = tg.extend(base, counts_of(base), 10).apply(base)
    again = tg.load(tg.save(once, tmp_path / "once", verify=False))
    for start in (once, again):
        twice = tg.extend(start, counts_of(start), 10).apply(start)
        assert twice.ids == tg.extend(base, counts_of(base), 20).apply(base).ids


def test_a_new_token_makes_an_old_one_reachable_as_in_the_library(tmp_path):
    """`abcd` has a rank and no pair. When `abc` is learned, every text with `abc` and `d` merges to it at its rank."""
    base = tekken_of(tmp_path / "base", b"abcd", b"ab", b"dd")
    assert [base.strings[i] for i in base.structure.unreachable] == ["abcd"]
    extension = tg.extend(base, tg.count(base, iter(["abc abc abc abcdd xabcd abcab"])), 2)
    assert extension.tokens[0] == "abc"
    new = extension.apply(base)
    out = tg.save(new, tmp_path / "out", base=base)
    assert not new.structure.unreachable
    assert_library_agrees(out, new, ["abcdd", "xabcd", "abcdabcd", "xabcdd", "abcabcd"])


def test_a_new_token_on_a_low_id_is_refused_before_training(tmp_path):
    base = tg.load(write_tekken(tmp_path))
    pruned = tg.prune_order(base, counts_of(base), protection=tg.Protection(defaults=False))[:5].apply(base)
    with pytest.raises(errors.UnsupportedTokenizerError, match="cannot take a lower one") as caught:
        tg.extend(pruned, counts_of(base), 5)
    assert "compact" in caught.value.hint
    assert len(tg.extend(pruned.compact(), counts_of(base), 5)) == 5


def test_an_extension_that_would_move_special_tokens_is_refused(tmp_path):
    base = tg.load(following(tmp_path))
    with pytest.raises(errors.UnsupportedTokenizerError, match="which have the ids after all ranks there") as e:
        tg.extend(base, counts_of(base), 5)
    assert "--renumber" in e.value.hint


def test_the_alternative_to_moving_special_tokens_works(tmp_path):
    base = tg.load(following(tmp_path / "base"))
    plain = tg.convert(base, "huggingface")
    extended = tg.extend(plain, counts_of(plain), 20).apply(plain)
    assert [token.id for token in extended.added] == [token.id for token in base.added]
    with pytest.raises(errors.OptionError, match="`renumber` is for tiktoken and tekken"):
        tg.convert(extended, "huggingface", renumber=True)
    moved = tg.convert(extended, "tiktoken", renumber=True)
    assert [token.id for token in moved.added] == [token.id + 20 for token in base.added]
    out = tg.save(moved, tmp_path / "out", verify=False)
    assert_library_agrees(out, moved)
    assert json.loads((out / ENCODING).read_bytes())["special_tokens"] == SPECIALS


def test_a_file_with_billions_of_unused_ranks_does_not_get_placeholders_for_them(tmp_path):
    base = tg.load(plain_file(tmp_path, far=2**31), pattern="gpt2", special_tokens=SPECIALS)
    assert base.n_rows == 2**31 + 1 + len(SPECIALS)
    with pytest.raises(errors.UnsupportedTokenizerError, match="ranks would have no token"):
        tg.prune_order(base, method="last-id")[:1].apply(base)
    assert base.compact().n_rows == len(tiny_ranks()) + 1 + len(SPECIALS)


def test_removed_special_tokens_are_refused_where_their_place_is_their_id(tmp_path):
    for make in (following, write_tekken):
        base = tg.load(make(tmp_path / make.__name__))
        ids = {token: token_id for token, token_id in base.ids.items() if token != "</s>"}
        with pytest.raises(errors.UnsupportedTokenizerError, match="'</s>' was removed"):
            base.edited(ids)
    base = tg.load(explicit(tmp_path / "explicit"))
    without = base.edited({token: token_id for token, token_id in base.ids.items() if token != "</s>"})
    assert tg.load(tg.save(without, tmp_path / "out", verify=False)) == without


def test_special_tokens_that_only_the_settings_list_have_the_ids_listed_there(tmp_path):
    """As Kimi has it: a tiktoken file, settings with ids that have gaps, and code that is not executed."""
    folder = following(tmp_path / "base")
    (folder / ENCODING).unlink()
    end = len(tiny_ranks())
    entries = {
        end: builders.added(0, "[BOS]"),
        end + 9: builders.added(0, "<|end|>"),
        end + 4: builders.added(0, "<x>"),
    }
    listing = {str(token_id): {k: v for k, v in entry.items() if k != "id"} for token_id, entry in entries.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listing}))
    base = tg.load(folder, pattern="o200k_base")
    assert {token.content: token.id for token in base.added} == {"[BOS]": end, "<x>": end + 4, "<|end|>": end + 9}
    extended = tg.extend(base, counts_of(base), 12).apply(base)
    assert {t.content: t.id for t in extended.added} == {t.content: t.id for t in base.added}
    out = tg.save(extended, tmp_path / "out", base=base)
    assert tg.load(out) == extended
    assert_library_agrees(out, extended)


def test_a_new_token_may_bring_another_pair_to_an_old_one(tmp_path):
    """`xd` and `us` make `xdus`. When `dus` is learned, so do `x` and `dus`, with the rank of `xdus`."""
    base = tekken_of(tmp_path / "base", b"us", b"xd", b"xdus", b"zz")
    new = tg.extend(base, tg.count(base, iter(["dus dus dus"])), 1).apply(base)
    assert ("x", "dus") in new.merge_strings()[: len(base.merges)]
    assert tg.check(new, base=base).passed
    behind = new.merge_strings()
    assert behind.index(("x", "dus")) < behind.index(("z", "z"))


def test_a_rank_file_beside_a_tokenizer_json_changes_with_it(tmp_path):
    folder = both(tmp_path / "base", write_tekken)
    base = tg.load(folder)
    assert (base.main, base.rank_file) == ("tokenizer.json", "tekken.json")
    counts = counts_of(base)
    pruned = tg.prune_order(base, counts)[:20].apply(base)
    for name, new in {
        "extended": tg.extend(base, counts, 20).apply(base),
        "pruned": pruned,
        "both": tg.extend(pruned.compact(), counts, 20).apply(pruned.compact()),
    }.items():
        out = tg.save(new, tmp_path / name, base=base)
        assert tg.load(out) == new
        assert left_out(base, new) == {}
        tekken = tg.load(out / "tekken.json")
        assert tekken.ids == new.ids
        assert_library_agrees(out, new)


def test_a_rank_file_that_cannot_express_the_change_is_left_out_with_the_reason(tmp_path, capsys):
    folder = both(tmp_path / "base", following)
    base = tg.load(folder)
    extended = tg.extend(base, counts_of(base), 5).apply(base)
    assert "tokenizer.model" not in extended.files
    assert "after the special tokens" in left_out(base, extended)["tokenizer.model"]
    pruned = tg.prune_order(base, counts_of(base))[:5].apply(base)
    assert tg.load(tg.save(pruned, tmp_path / "pruned", base=base)) == pruned
    assert "tokenizer.model" in pruned.files
    text = tmp_path / "t.txt"
    text.write_text("\n".join([*builders.TEXT, *ESTONIAN]), encoding="utf-8")
    out = tmp_path / "out"
    assert cli.main(["extend", str(folder), "--corpus", str(text), "--add", "5", "--out", str(out)]) == 0
    assert "left out `tokenizer.model`: the id" in capsys.readouterr().out
    done = tg.adapt(folder, target=text, add=5, out=tmp_path / "adapted")
    assert any("left out `tokenizer.model`" in warning for warning in done.warnings)
    assert not [path for path in (out, tmp_path / "adapted") if (path / "tokenizer.model").exists()]


def test_a_swap_leaves_a_tekken_file_out_with_the_reason(tmp_path):
    base = tg.load(both(tmp_path, write_tekken))
    pruned = tg.prune_order(base, counts_of(base), protection=tg.Protection(defaults=False))[:5].apply(base)
    swapped = tg.extend(pruned, counts_of(base), 5).apply(pruned)
    assert "tekken.json" not in swapped.files
    assert "cannot take a lower one" in left_out(base, swapped)["tekken.json"]


def test_the_file_in_the_folder_original_changes_too(tmp_path):
    folder = both(tmp_path / "base", following)
    (folder / "original").mkdir()
    (folder / "tokenizer.model").rename(folder / "original" / "tokenizer.model")
    base = tg.load(folder)
    pruned = tg.prune_order(base, counts_of(base))[:5].apply(base).compact()
    out = tg.save(pruned, tmp_path / "out", base=base)
    assert len((out / "original" / "tokenizer.model").read_bytes().splitlines()) == len(tiny_ranks()) - 5


@pytest.mark.filterwarnings("ignore")
def test_known_families_are_those_of_tiktoken(monkeypatch):
    """The hashes, special tokens and patterns are those of the installed library; its files are not downloaded."""
    hashes = {}

    def load(url, expected_hash):
        hashes[url.rsplit("/")[-1].split(".")[0]] = expected_hash
        return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load)
    for sha256, name in FAMILIES.items():
        if name.startswith("llama"):
            continue
        theirs = getattr(public, name)()
        assert sha256 == hashes[name]
        assert ENCODINGS[name].special_ids(0) == theirs["special_tokens"]
        ours = tiktoken.Encoding("x", pat_str=PATTERNS[name], mergeable_ranks=tiny_ranks(), special_tokens={})
        other = tiktoken.Encoding("x", pat_str=theirs["pat_str"], mergeable_ranks=tiny_ranks(), special_tokens={})
        generator = random.Random(1)
        for _ in range(2000):
            text = "".join(generator.choices("aAb1'sSdlL \n\r\t.,/é猫\u0301ſ\u3000", k=12))
            assert ours.encode(text) == other.encode(text), text
