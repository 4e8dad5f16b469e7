"""How many tokens are pruned: by coverage of held-out text, or by rows; and the curve of costs and savings."""

import json

import builders
import pytest
import rank_files
from checkpoints import ENGLISH, ESTONIAN, checkpoint, set_config, write_texts

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.table import model_rows
from tokengraft.pruning.cost import prune_curve

pytestmark = pytest.mark.usefixtures("transformers_running")
TEXT = ["the cat sat on the mat", "kass istus matil"] * 3


@pytest.fixture
def texts(tmp_path):
    """A folder with texts and a model."""
    checkpoint(tmp_path / "model")
    return write_texts(tmp_path, tiny=["the"], empty=[""])


def pruned(texts, tokengraft, options, source="model"):
    """What `prune --json` prints, by the corpus `en.txt`."""
    command = ["prune", str(texts / source), "--corpus", str(texts / "en.txt"), "--out", str(texts / "out"), "--force"]
    named = options.format(**{path.stem: path for path in texts.glob("*.txt")}).split()
    return tokengraft(*command, *named, "--json", "--quiet").json


@pytest.mark.parametrize("share", [1, 0.999, 0.9, 0.5])
def test_as_many_tokens_are_removed_as_every_held_out_text_can_do_without(base, counts, share):
    order, texts = tg.prune_order(base, counts), [tg.count(base, iter(text)) for text in (ESTONIAN[:9], ENGLISH[:9])]
    n = len(order.covering(base, share, *texts))

    def kept(n, text):
        gone = {removal.id for removal in order.removals[:n]}
        found = text.tokens(base)
        return sum(count for token, count in found.items() if token not in gone) / sum(found.values())

    assert all(kept(n, text) >= share for text in texts)
    assert n == len(order) or any(kept(n + 1, text) < share for text in texts)


def test_one_document_of_many_does_not_decide_how_many_tokens_are_removed(base, tmp_path, tokengraft):
    order = tg.prune_order(base, tg.count(base, iter(ENGLISH)))
    odd, usual = " ".join(ESTONIAN), ENGLISH[:60]
    without = order.covering(base, 0.99, usual)
    assert len(order.covering(base, 0.99, tg.count(base, iter([odd, *usual])))) < len(without) / 2
    found = order.covering(base, 0.99, [*usual, odd])
    gone, tokens = {removal.id for removal in found.removals}, base.encode(odd)
    assert len(found) >= len(without)
    assert found.left_out == ((odd[:40], sum(token in gone for token in tokens)),)
    assert without.left_out == ()
    twice = order.covering(base, 0.99, [*usual, odd, odd])
    assert len(twice) < len(without) / 2
    few = order.covering(base, 0.99, [odd, *usual[:18]])
    assert few == order.covering(base, 0.99, tg.count(base, iter([odd, *usual[:18]])))
    folder = tg.save(base, tmp_path / "base", verify=False)
    for name, lines in {"corpus": ENGLISH, "held_out": [*usual, odd]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    given = f"--corpus {tmp_path}/corpus.txt --held-out {tmp_path}/held_out.txt --documents lines --keep-coverage 0.99"
    command = ["prune", str(folder), *given.split(), "--remove", "auto", "--out", str(tmp_path / "out")]
    shown = tokengraft(*command).out
    assert f"{len(found):,} removed" in shown
    assert f"left out: `{odd[:40]}…`, where {found.left_out[0][1]:,} tokens change" in " ".join(shown.split())


@pytest.mark.parametrize("share", [0.999, 0.98, 0.9])
def test_all_documents_but_the_one_that_loses_most_keep_the_share(base, share):
    order, texts = tg.prune_order(base, tg.count(base, iter(ENGLISH))), [*ENGLISH[:30], " ".join(ESTONIAN[:9])]
    encoded = [base.encode(text) for text in texts]

    def is_covered(n):
        gone = {removal.id for removal in order.removals[:n]}
        lost = sorted(sum(token in gone for token in tokens) for tokens in encoded)
        return sum(lost[:-1]) <= (1 - share) * (sum(map(len, encoded)) - max(map(len, encoded)))

    expected = max(n for n in range(len(order) + 1) if is_covered(n))
    assert all(len(order.covering(base, share, texts[at:] + texts[:at])) == expected for at in range(0, 31, 6))


@pytest.mark.parametrize("share", [0, -0.1, 1.5, "0.9", True])
def test_a_share_that_is_none_is_refused(base, counts, share):
    with pytest.raises(errors.OptionError, match="share"):
        tg.prune_order(base, counts).covering(base, share, counts)


def test_no_size_is_chosen_by_no_text_or_for_another_tokenizer(base, counts):
    order = tg.prune_order(base, counts)
    for texts in ((), (tg.count(base, iter([""])),), (counts, tg.count(base, iter([""])))):
        with pytest.raises(errors.OptionError, match=r"no text was given|has no tokens"):
            order.covering(base, 0.9, *texts)
    with pytest.raises(errors.InvalidTokenizerError, match="prune order was made for"):
        order.covering(order[:3].apply(base), 0.9, counts)


def test_a_tiny_held_out_text_does_not_cost_the_tokens_of_the_corpus(base, tmp_path, tokengraft):
    folder, text, tiny = tg.save(base, tmp_path / "base", verify=False), tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("\n".join(ENGLISH), encoding="utf-8")
    tiny.write_text("the", encoding="utf-8")
    arguments = ["prune", folder, "--corpus", text, "--remove", "auto", "--held-out", tiny, "--out", tmp_path / "out"]
    before, after = tokengraft(*arguments, "--json", "--quiet").json["tokens_in_text"]
    assert after <= before * 1.01


def test_the_command_chooses_a_size_by_coverage_or_by_rows(base, tmp_path, capsys):
    folder, text, other = tg.save(base, tmp_path / "base", verify=False), tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("\n".join(ENGLISH), encoding="utf-8")
    other.write_text("\n".join(ENGLISH[:5]), encoding="utf-8")
    common = ["prune", str(folder), "--corpus", str(text), "--json", "--quiet"]
    auto = ["--remove", "auto", "--held-out", f"en={other}", "--keep-coverage", "0.9"]
    assert cli.main([*common, *auto, "--out", str(tmp_path / "auto")]) == 0
    removed = json.loads(capsys.readouterr().out)["removed"]
    order = tg.prune_order(base, tg.count(base, text))
    assert removed == len(order.covering(base, 0.9, tg.count(base, other), tg.count(base, text))) > 0
    assert cli.main([*common, "--rows", str(len(base.tokens) - 7), "--out", str(tmp_path / "rows")]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(base.tokens) - 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--remove auto", "none was given"),
        ("--remove auto --held-out {text} --keep-coverage 0", "--keep-coverage is 0.0"),
        ("--remove auto --held-out {text} --keep-coverage nan", "--keep-coverage is nan"),
        ("--rows 9 --ids keep", "--rows and --ids keep do not go together"),
        ("--rows 99999", "--rows is 99,999; expected 1 to 396"),
    ],
)
def test_sizes_that_contradict_each_other_or_do_nothing_are_refused(base, tmp_path, tokengraft, options, message):
    folder, text = tg.save(base, tmp_path / "base", verify=False), tmp_path / "a.txt"
    text.write_text("the cat", encoding="utf-8")
    arguments = ["prune", folder, "--corpus", text, *options.format(text=text).split(), "--out", tmp_path / "out"]
    assert message in tokengraft(*arguments, code=2).err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("rows", "asked"), [(416, 390), (416, 384), (416, 400), (400, 395), (448, 447), (397, 380)])
def test_rows_are_those_of_the_model_with_its_padding(tmp_path, tokengraft, rows, asked):
    """The embedding has 397 tokens, and padding up to a multiple of 32, 16 or 64."""
    base = checkpoint(tmp_path / "model", rows=rows)
    texts = write_texts(tmp_path)
    found = pruned(texts, tokengraft, f"--rows {asked}")
    done = tg.transplant(tmp_path / "model", tmp_path / "out", tmp_path / "small")
    assert found["rows"] == done.rows_after <= asked
    step = 1 if rows == 397 else rows & -rows
    assert found["tokens"] == min(asked // step * step, len(base.tokens) - 1)
    command = ["prune", str(tmp_path / "model"), "--corpus", str(texts / "en.txt"), "--out", str(tmp_path / "again")]
    assert f"{rows} → {done.rows_after}" in tokengraft(*command, "--rows", asked).out


@pytest.mark.parametrize(("rows", "asked", "least", "most"), [(397, 0, 1, 396), (416, 0, 32, 415), (416, 416, 32, 415)])
def test_rows_that_no_pruning_gives_are_refused_with_those_that_do(tmp_path, tokengraft, rows, asked, least, most):
    checkpoint(tmp_path / "model", rows=rows)
    texts = write_texts(tmp_path)
    command = ["prune", str(tmp_path / "model"), "--corpus", str(texts / "en.txt"), "--out", str(tmp_path / "out")]
    assert f"--rows is {asked}; expected {least} to {most}" in tokengraft(*command, "--rows", asked, code=2).err


def folder_of(kind, folder):
    if kind == "byte-level":
        return builders.write(folder, builders.byte_level())
    return rank_files.explicit(folder) if kind == "ranks" else builders.write_pieces(folder)


@pytest.mark.parametrize("kind", ["byte-level", "pieces", "ranks"])
def test_the_curve_has_the_tokens_that_the_pruned_tokenizers_give(tmp_path, kind):
    base = tg.load(folder_of(kind, tmp_path / "base"))
    order = tg.prune_order(base, tg.count(base, iter(ENGLISH)))
    held_out = {"et": tg.count(base, iter(ESTONIAN[:9])), "en": tg.count(base, iter(ENGLISH[:9]))}
    curve = prune_curve(base, order, len(order), held_out)
    assert [point.removed for point in curve] == [len(order) * part // 8 for part in range(1, 9)]
    for point in curve:
        pruned = order[: point.removed].apply(base)
        for name, text in held_out.items():
            before, after = (sum(text.tokens(tokenizer).values()) for tokenizer in (base, pruned))
            assert point.cost[name] == after / before - 1
        assert point.rows == pruned.compact().n_rows
        assert point[3:] == (None, None)
    assert min(curve[-1].cost.values()) > 0
    kept_ids = prune_curve(base, order, len(order), held_out, compact=False)
    assert [point.rows for point in kept_ids] == [order[: point.removed].apply(base).n_rows for point in curve]


MODELS = {
    "untied": {},
    "tied": {"head": False, "dtype": "F32"},
    "tied, both stored": {"config": {"tie_word_embeddings": True}},
    "padded, with a bias": {"rows": 448, "bias": True},
    "in shards": {"shards": 3, "dtype": "F16"},
}


@pytest.mark.parametrize("model", MODELS)
def test_the_curve_saves_what_a_transplant_saves(tmp_path, tokengraft, model):
    checkpoint(tmp_path / "model", **MODELS[model])
    write_texts(tmp_path)
    for removed in (9, 70):
        found = pruned(tmp_path, tokengraft, f"--remove {removed} --held-out en={{en}} et={{et}}")
        point = next(point for point in found["curve"] if point["removed"] == removed)
        done = tg.transplant(tmp_path / "model", tmp_path / "out", None)
        assert (point["parameters"], point["bytes"]) == tuple(-change for change in done.growth)
        assert point["rows"] == done.rows_after


@pytest.mark.parametrize(
    ("config", "row"),
    [
        ({"dtype": "bfloat16", "tie_word_embeddings": True}, (16, 32)),
        ({"torch_dtype": "float32", "tie_word_embeddings": False}, (32, 128)),
        ({"torch_dtype": "float16", "tie_word_embeddings": None}, (32, 64)),
        ({"dtype": "int3"}, None),
        ({"dtype": "bfloat16", "hidden_size": "16"}, None),
        ({}, None),
    ],
)
def test_without_weights_the_config_says_what_a_row_takes(texts, config, row):
    (texts / "model" / "model.safetensors").unlink()
    set_config(texts / "model", **config)
    found = model_rows(texts / "model")
    assert (found and found[1:]) == row
    assert model_rows(texts) is None
    assert model_rows("some/hub-name") is None


def test_what_the_curve_does_not_know_about_a_model_it_leaves_out(texts, tokengraft):
    set_config(texts / "model", is_encoder_decoder=True)  # refused by `transplant`
    found = pruned(texts, tokengraft, "--remove 5 --held-out {et}")
    assert {point["bytes"] for point in found["curve"]} == {None}
    command = ["prune", texts / "model", "--method", "last-id-leaf", "--remove", "5", "--held-out", texts / "et.txt"]
    assert "saved" not in tokengraft(*command, "--out", texts / "shown").out


@pytest.mark.parametrize(
    "size", ["--remove 20", "--rows 370", "--remove auto --keep-coverage 0.9", "--method script-leaf --scripts Latin"]
)
def test_every_size_is_shown_among_others(texts, tokengraft, size):
    options = f"{size} --held-out et={{et}} {{lv}}"
    found = pruned(texts, tokengraft, options)
    assert found["removed"] in [point["removed"] for point in found["curve"]] or not found["removed"]
    assert all([*point["cost"]] == ["et", "lv"] for point in found["curve"])
    command = ["prune", texts / "model", "--corpus", texts / "en.txt", "--out", texts / "shown", "--quiet"]
    shown = tokengraft(*command, *options.format(et=texts / "et.txt", lv=texts / "lv.txt").split()).out
    if found["curve"]:
        assert shown.split("removed  rows")[1].split()[:6] == ["et", "lv", "parameters", "saved", "MB", "saved"]
        assert [line.split()[0] for line in shown.splitlines() if line.endswith("chosen")] == [str(found["removed"])]
    assert "measure held-out text" not in shown


def test_ids_that_are_kept_save_nothing(texts, tokengraft):
    found = pruned(texts, tokengraft, "--remove 20 --ids keep --held-out {et}")
    assert {(point["rows"], point["bytes"]) for point in found["curve"]} == {(tg.load(texts / "model").n_rows, 0)}


def test_without_held_out_text_there_is_no_curve(texts, tokengraft):
    assert pruned(texts, tokengraft, "--remove 20")["curve"] == []


def test_an_order_or_counts_of_before_are_measured_on_text_that_is_read_now(texts, capsys, tokengraft):
    whole = pruned(texts, tokengraft, "--remove auto --held-out {et} --keep-coverage 0.8 --documents lines")
    source, out = str(texts / "model"), ["--out", str(texts / "out"), "--force", "--json", "--quiet"]
    counts, order = str(tg.count(tg.load(source), texts / "en.txt").save(texts / "c.parquet")), str(texts / "o.json")
    auto = ["--remove", "auto", "--keep-coverage", "0.8", "--held-out", str(texts / "et.txt"), "--documents", "lines"]
    assert cli.main(["prune", source, "--counts", counts, "--order", order, *auto, *out]) == 0
    assert json.loads(capsys.readouterr().out)["curve"] == whole["curve"]
    assert cli.main(["prune", source, "--order", order, "--remove", str(whole["removed"]), *auto[4:], *out]) == 0
    assert json.loads(capsys.readouterr().out)["curve"] == whole["curve"]


@pytest.fixture
def renumbered(base, counts):
    """A tokenizer with holes, and the same without them: equal, and with other ids."""
    with_holes = tg.prune_order(base, counts)[:60].apply(base)
    compact = with_holes.compact()
    assert compact.content_hash == with_holes.content_hash
    assert compact.ids != with_holes.ids
    return with_holes, compact


def test_an_order_covers_as_much_of_an_equal_tokenizer_with_other_ids(renumbered):
    with_holes, compact = renumbered
    order, text = tg.prune_order(with_holes, None, "last-id"), ESTONIAN[:9]
    expected = order.covering(with_holes, 0.9, tg.count(with_holes, iter(text)))
    found = order.covering(compact, 0.9, tg.count(compact, iter(text)))
    assert found.tokens == expected.tokens
    assert [removal.id for removal in found.removals] == [compact.ids[token] for token in found]


def test_the_curve_has_the_rows_of_the_tokenizer_if_the_order_has_other_ids(renumbered):
    with_holes, compact = renumbered
    order = tg.prune_order(with_holes, None, "last-id")
    for point in prune_curve(compact, order, len(order), {"et": tg.count(compact, iter(ESTONIAN[:9]))}, compact=False):
        assert point.rows == order[: point.removed].apply(compact).n_rows


def test_a_file_of_an_order_removes_the_same_tokens_of_an_equal_tokenizer_with_other_ids(
    renumbered, tmp_path, tokengraft
):
    with_holes, compact = renumbered
    order = tg.prune_order(with_holes, None, "last-id")
    saved, found = order.save(tmp_path / "order.json"), []
    (tmp_path / "et.txt").write_text("\n".join(ESTONIAN[:9]), encoding="utf-8")
    for name, tokenizer in {"with-holes": with_holes, "compact": compact}.items():
        folder = tg.save(tokenizer, tmp_path / name, verify=False)
        command = ["prune", folder, "--order", saved, "--remove", "30", "--held-out", tmp_path / "et.txt"]
        data = tokengraft(*command, "--out", tmp_path / f"{name}-out", "--json", "--quiet").json
        found.append((data["removed_tokens"], data["curve"]))
    assert found[0] == found[1]


def test_a_reserved_token_of_held_out_text_is_kept(tmp_path, tokengraft):
    document = builders.specials_first()
    document["model"]["vocab"]["<unused1>"] = 9
    document["added_tokens"].append(builders.added(9, "<unused1>"))
    builders.write(tmp_path / "model", document)
    write_texts(tmp_path, reserved=["the cat <unused1>"])
    options = "--remove 30 --reuse-reserved --no-protect-defaults --held-out {reserved}"
    pruned(tmp_path, tokengraft, options)
    assert "<unused1>" in tg.load(tmp_path / "out").ids


def test_a_coverage_that_no_removal_leaves_is_a_warning(base, tmp_path, tokengraft):
    folder, text = tg.save(base, tmp_path / "base", verify=False), tmp_path / "all.txt"
    text.write_text(" ".join(token.bytes.decode(errors="ignore") for token in base.tokens), encoding="utf-8")
    command = ["prune", folder, "--corpus", text, "--remove", "auto", "--held-out", text, "--keep-coverage", "1"]
    command += ["--method", "last-id", "--out", tmp_path / "out", "--json"]
    shown, warned = tokengraft(*command)
    assert json.loads(shown)["removed"] == 0
    assert "no token is removed: without the first one" in warned


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--remove 3 --held-out {empty}", "the text `empty` is empty"),
        ("--remove 3 --held-out {et} {et}", "two texts of --held-out are called 'et'"),
        ("--remove 3 --held-out {et} --report {et} --force", "is the input"),
        ("--remove 3 --held-out missing.txt", "missing.txt"),
    ],
)
def test_held_out_text_that_cannot_be_measured_is_refused(texts, tokengraft, options, message):
    options = options.format(empty=texts / "empty.txt", et=texts / "et.txt").split()
    command = ["prune", str(texts / "model"), "--corpus", str(texts / "en.txt"), "--out", str(texts / "out")]
    assert message in tokengraft(*command, *options, code=2).err
    assert not (texts / "out").exists()


@pytest.mark.parametrize("command", ["prune {model} --remove auto", "extend {model} --add auto --documents lines"])
def test_held_out_text_that_is_in_the_corpus_gets_a_warning(texts, command, capsys):
    def warnings(name):
        given = command.format(model=texts / "model").split()
        more = ["--corpus", f"{texts / 'et.txt'}", "--held-out", f"x={texts / name}", "--out", f"{texts / 'out'}"]
        assert cli.main([*given, *more, "--force", "--json", "--quiet"]) == 0
        return [line for line in json.loads(capsys.readouterr().out)["warnings"] if "in --held-out" in line]

    assert warnings("et.txt") == [
        f"`{texts / 'et.txt'}` is in --corpus and in --held-out: the result looks better than on other text"
    ]
    assert not warnings("en.txt")


def test_the_curve_needs_an_order_that_keeps_the_added_tokens_of_the_text(tmp_path):
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    document["added_tokens"] = [builders.added(size + at, f"<unused{at}>") for at in range(3)]
    base = tg.load(builders.write(tmp_path / "model", document))
    order = tg.prune_order(base, None, "last-id-leaf", protection=tg.Protection(reuse_reserved=True))
    assert order.tokens[:3] == ("<unused2>", "<unused1>", "<unused0>")
    text = {"x": tg.count(base, iter(["the cat <unused1> sat"]))}
    assert [point.removed for point in prune_curve(base, order, 1, text)] == [1]
    with pytest.raises(errors.OptionError, match="has the added token '<unused1>', which is removed"):
        prune_curve(base, order, 2, text)


@pytest.mark.parametrize("limit", ["--max-bytes 7"])
def test_limits_of_a_corpus_are_refused_without_one(texts, limit, tokengraft):
    command = ["prune", str(texts / "model"), "--method", "last-id-leaf", "--remove", "5", "--out", str(texts / "out")]
    assert f"{limit.split()[0]} " in tokengraft(*command, "--held-out", texts / "et.txt", *limit.split(), code=2).err


@pytest.mark.parametrize("size", [0, -5])
def test_a_config_with_an_impossible_size_saves_nothing(tmp_path, size):
    config = {"vocab_size": size, "hidden_size": 16, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert model_rows(tmp_path) is None
    assert model_rows("x" * 5000) is None


def test_holes_of_the_base_are_no_padding(tmp_path, tokengraft):
    base = checkpoint(tmp_path / "model")
    texts = write_texts(tmp_path)
    holes = tg.prune_order(base, tg.count(base, texts / "en.txt"))[:5].apply(base)
    tg.transplant(tmp_path / "model", holes, tmp_path / "holes")
    found = pruned(texts, tokengraft, "--rows 385", source="holes")
    assert (found["rows"], found["tokens"], found["removed"]) == (385, 385, 7)
