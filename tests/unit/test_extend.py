"""Extending a tokenizer: the value, the files, and what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import builders
import pytest
from tokenizers import Tokenizer as Upstream
from tokenizers import models, pre_tokenizers, trainers

import tokengraft as tg
from tokengraft import _core, errors
from tokengraft.tokenizer.edit import add_tokens
from tokengraft.tokenizer.kind import token_bytes

TEXT = ["kassid ja koerad jooksevad, kassipojad ja kutsikad magavad"] * 3 + ["põdrad põõsas, õunad õues 12345"] * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    document = builders.byte_level()
    lines = "".join(f"{left} {right}\n" for left, right in document["model"]["merges"])
    others = {"tekken.json": "{}", "chat_template.jinja": "{{ x }}", "merges.txt": "#version: 0.2\n" + lines}
    others |= {"vocab.json": json.dumps(document["model"]["vocab"], ensure_ascii=False)}
    return builders.write(tmp_path_factory.mktemp("base"), document, **others)


@pytest.fixture(scope="module")
def base(folder):
    return tg.load(folder)


@pytest.fixture(scope="module")
def counts(base):
    return tg.count(base, iter(TEXT))


def test_from_the_bare_alphabet_it_equals_hugging_face_until_a_tie(tmp_path):
    bare = tg.load(builders.write(tmp_path, _bare()))
    texts = [word * (n % 5 + 1) for n, word in enumerate(" ".join(builders.TEXT).split()) for _ in range(n % 7 + 1)]
    ours = tg.extend(bare, tg.count(bare, iter(texts)), 60, limits=tg.Limits(min_count=1)).merges
    theirs = Upstream(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=316, initial_alphabet=list(bare.vocab), show_progress=False)
    theirs.train_from_iterator(texts, trainer)
    merges = [tuple(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]
    frequencies = [merge.frequency for merge in ours]
    tie = next((at for at in range(1, len(ours)) if frequencies[at] == frequencies[at - 1]), len(ours))
    assert tie > 5
    assert [(m.left, m.right) for m in ours[: tie - 1]] == merges[: tie - 1]


def test_an_extension_can_only_be_cut_at_its_end(base, counts):
    whole = tg.extend(base, counts, 40)
    assert [len(whole[:size]) for size in (0, 1, 7, 40)] == [0, 1, 7, 40]
    assert whole[:99] == whole
    for cut in (slice(3, 5), slice(None, "a"), slice(None, None, 2), "5"):
        with pytest.raises(errors.OptionError, match="can only be cut as"):
            whole[cut]


def test_a_prefix_of_an_extension_that_fell_short_ends_at_its_last_token(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"]["zq"] = 900  # exists, but no merge makes it
    base = tg.load(builders.write(tmp_path, document))
    counts = tg.count(base, iter(["xy"] * 3 + ["zq"] * 2))
    whole = tg.extend(base, counts, 100)
    assert [merge.new for merge in whole.merges] == [True, False]
    assert whole[:1].merges == tg.extend(base, counts, 1).merges
    assert whole[:2].merges == whole.merges == tg.extend(base, counts, 2).merges


def test_no_token_is_made_of_the_unknown_token(tmp_path):
    document = builders.byte_level(unk_token="<|start|>")
    vocab = document["model"]["vocab"]
    vocab["<|start|>"] = vocab.pop("ÿ")
    document["added_tokens"] = [builders.added(vocab["<|start|>"], "<|start|>")]
    base = tg.load(builders.write(tmp_path, document))
    key, offsets, frequency = "\u00ffx".encode("latin-1") * 2, (4).to_bytes(8, "little"), (9).to_bytes(8, "little")
    counts = replace(tg.count(base, iter(["q"])), table=_core.Counts(key, bytes(8) + offsets, frequency))
    assert tg.extend(base, counts, 5).tokens == ()


def test_an_added_word_that_its_id_would_bring_out_inside_others_is_refused(tmp_path):
    document = builders.byte_level(ignore_merges=True)
    document["added_tokens"][0] |= {"content": "foo", "single_word": True}
    base = tg.load(builders.write(tmp_path, document))
    with pytest.raises(errors.UnsupportedTokenizerError, match="must be a whole word"):
        tg.extend(base, tg.count(base, iter(TEXT)), 5)


def test_kept_ids_do_not_move_and_new_ones_come_after_the_highest(base, counts):
    extended = tg.extend(base, counts, 20).apply(base)
    assert extended.ids.items() >= base.ids.items()
    assert [t.id for t in extended.tokens[len(base.tokens) :]] == [*range(base.n_rows, base.n_rows + 20)]
    assert extended.added == base.added
    assert extended.merges[: len(base.merges)] == base.merges


def test_holes_among_the_ids_are_filled_first(tmp_path):
    base = tg.load(builders.write(tmp_path, builders.specials_first()))
    holes = [i for i in range(base.n_rows) if i not in base.strings]
    extension = tg.extend(base, tg.count(base, iter(TEXT)), 20)
    extended = extension.apply(base)
    assert [extended.vocab[token] for token in extension.tokens] == holes[:20]
    assert extended.n_rows == base.n_rows


def test_every_file_that_lists_tokens_or_merges_is_updated(base, counts, tmp_path):
    extension = tg.extend(base, counts, 20)
    extended = extension.apply(base)
    out = tg.save(extended, tmp_path / "out")
    vocab = json.loads((out / "vocab.json").read_bytes())
    assert {token: vocab[token] for token in extension.tokens} == {t: extended.vocab[t] for t in extension.tokens}
    lines = (out / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#version: 0.2"
    assert len(lines) == 1 + len(extended.merges)
    assert lines[-1] == " ".join(extension.merges[-1][:2])
    assert (out / "chat_template.jinja").read_text() == "{{ x }}"
    assert not (out / "tekken.json").exists()
    assert Upstream.from_file(str(out / "tokenizer.json")).get_vocab() == {t.string: t.id for t in extended.tokens}


def test_an_extension_survives_saving(base, counts, tmp_path):
    extension = tg.extend(base, counts, 20)
    assert tg.Extension.load(extension.save(tmp_path / "e.json")) == extension
    assert extension.provenance["counted"]["documents"] == len(TEXT)
    with pytest.raises(errors.OutputError, match="exists"):
        extension.save(tmp_path / "e.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(errors.CountsError, match="not a file of an extension"):
        tg.Extension.load(tmp_path / "bad.json")


def test_an_added_token_is_never_made_of_merges(tmp_path):
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    document["added_tokens"] = [builders.added(size, "zzz", single_word=True)]
    base = tg.load(builders.write(tmp_path, document))
    extension = tg.extend(base, tg.count(base, iter(["yzzz" * 9, "yzzzy"] * 9)), 5)
    assert "zzz" not in extension.tokens


def test_too_little_text_gives_fewer_tokens_and_says_why(base):
    extension = tg.extend(base, tg.count(base, iter(["xyzzy xyzzy"])), 1000)
    assert 0 < len(extension) < 1000
    assert extension.stopped == f"{len(extension)} new tokens, 1,000 asked: pairs seen at least 2 times ran out"
    assert extension.apply(base).encode("xyzzy")


def test_denied_texts_and_patterns_and_lengths(base, counts):
    free = tg.extend(base, counts, 40)
    texts = [token_bytes(token, "byte-level").decode(errors="replace") for token in free.tokens]
    denied = tg.extend(base, counts, 40, limits=tg.Limits(deny=texts[:3]))
    assert not set(free.tokens[:3]) & set(denied.tokens)
    spaceless = tg.extend(base, counts, 40, limits=tg.Limits(deny_pattern="^ "))
    assert not [token for token in spaceless.tokens if token.startswith("Ġ")]
    short = tg.extend(base, counts, 40, limits=tg.Limits(max_token_bytes=4))
    assert max(len(token_bytes(token, "byte-level")) for token in short.tokens) == 4


def test_an_error_in_a_judgement_reaches_the_caller(base, counts):
    def fail(_):
        raise RuntimeError("no judgement today")

    limits = {"min_count": 2, "max_token_bytes": 99, "forbidden": [], "max_candidates": 9}
    with pytest.raises(RuntimeError, match="no judgement today"):
        _core.extend(base.core_model, [counts.table], 5, **limits, rules=None, unreachable_ranks=[], allow=fail)


def test_what_cannot_be_done_is_refused(base, counts, tmp_path):
    for n in (0, -5):
        with pytest.raises(errors.OptionError, match=f"{n} new tokens were asked for"):
            tg.extend(base, counts, n)
    with pytest.raises(errors.CountsError, match="the counts are empty"):
        tg.extend(base, tg.count(base, set()), 5)
    for limits in ({"min_count": 0}, {"max_token_bytes": 0}, {"deny_pattern": "("}):
        with pytest.raises(errors.OptionError):
            tg.Limits(**limits)
    other = tg.load(builders.write(tmp_path / "other", builders.byte_level() | {"normalizer": {"type": "NFC"}}))
    with pytest.raises(errors.CountsError, match="normalizer"):
        tg.extend(other, counts, 5)
    extension = tg.extend(base, counts, 5)
    bare = tg.load(builders.write(tmp_path / "bare", _bare()))
    for other in (extension.apply(base), bare):
        with pytest.raises(errors.InvalidTokenizerError, match=f"{base.content_hash[:12]}.*{other.content_hash[:12]}"):
            extension[:3].apply(other)
    with pytest.raises(errors.InvalidTokenizerError, match="already"):
        add_tokens(base, [base.tokens[300].string], [])
    with pytest.raises(errors.InvalidTokenizerError, match="lacks"):
        add_tokens(bare, ["zzq"], [("zz", "q")])


def _bare():
    document = builders.byte_level()
    document["model"] |= {"vocab": {c: i for i, c in enumerate(sorted(builders.byte_alphabet()))}, "merges": []}
    return document | {"added_tokens": []}


def test_the_result_is_independent_of_threads_and_of_the_order_of_sets(folder, tmp_path):
    (tmp_path / "c.txt").write_text("\n".join(TEXT) * 20)
    code = "import sys, tokengraft as tg; base, options = tg.load(sys.argv[1]), tg.CountOptions(int(sys.argv[3]))\n"
    code += "counts, words = tg.count(base, sys.argv[2], count_options=options), ['ibuprofen', 'naproxen', 'the']\n"
    code += "extension = tg.extend(base, counts, 60, include=words)\n"
    code += "tg.save(extension.apply(base), sys.argv[3], verify=False)"
    for threads in ("1", "4"):
        command = [sys.executable, "-c", code, str(folder), "c.txt", threads]
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    one, four = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("1", "4"))
    assert one == four


def test_the_command_extends_verifies_and_reports(folder, tmp_path, tokengraft):
    (tmp_path / "c.txt").write_text("\n".join(TEXT))
    (tmp_path / "deny.txt").write_text("kass\n")
    arguments = ["extend", folder, "--corpus", tmp_path / "c.txt", "--add", 20, "--out", tmp_path / "out", "--quiet"]
    arguments += ["--deny", tmp_path / "deny.txt", "--extension", tmp_path / "e.json", "--max-token-bytes", 12]
    shown = tokengraft(*arguments)
    assert "20 new tokens\n" in shown.out
    assert "tokenizers, transformers: the same ids" in shown.out
    assert "left out `tekken.json`" in shown.out
    assert len(tg.Extension.load(tmp_path / "e.json")) == 20
    assert "exists" in tokengraft(*arguments, code=2).err


def test_the_command_works_from_weighted_counts(folder, base, tmp_path, tokengraft):
    for name, texts in (("a", TEXT), ("b", builders.TEXT)):
        tg.count(base, iter(texts)).save(tmp_path / f"{name}.parquet")
    arguments = ["extend", folder, "--counts", tmp_path / "a.parquet", tmp_path / "b.parquet", "--add", 10, "--json"]
    arguments += ["--weight", "3", "--weight", "1/2", "--out", tmp_path / "out"]
    assert tokengraft(*arguments).json["added"] == 10
    assert "1 weights were given for 2" in tokengraft(*arguments[:-4], "--out", tmp_path / "x", code=2).err
