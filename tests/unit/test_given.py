"""Given tokens: special tokens in every file, rows that exist, words without a text, and damage made by hand."""

import json
import warnings

import builders
import numpy as np
import pytest
from checkpoints import checkpoint, set_config, tables
from peft_models import UsesPeft

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.tokenizer.piece_model import USER_DEFINED

TOKENS = [f"<tool_{n}>\tcalls the cat number {n}" for n in range(10)] + [f"</tool_{n}>" for n in range(10)]
CONTENTS = [token.partition("\t")[0] for token in TOKENS]
WORDS = [f"{first}{second}" for first in ("kassi", "pro", "mato", "tele", "õhtu") for second in ("fen", "kaas", "lik")]
LINES = [*builders.TEXT[:4], "a  b\n\n c\t1234 don't é́ 猫 ▁", "", " x"]
RESERVED = {"gemma": "<unused{}>", "llama": "<|reserved_special_token_{}|>", "mistral": "<SPECIAL_{}>"}


def with_reserved(pattern, n=25, first=20):
    """A byte-level tokenizer with reserved special tokens after the others."""
    document = builders.byte_level()
    last = max(entry["id"] for entry in document["added_tokens"])
    for place in range(n):
        content = pattern.format(first + place)
        document["added_tokens"].append(builders.added(last + 1 + place, content))
    return document


def bert(n=25):
    """A WordPiece tokenizer whose vocabulary has reserved names, as BERT's has."""
    document = builders.word_piece()
    vocab = document["model"]["vocab"]
    for place in range(n):
        vocab[f"[unused{place}]"] = len(vocab)
    return document


SHAPES = builders.TINY | {"unigram": builders.unigram, "word-piece": builders.word_piece, "bert": bert}
SHAPES |= {name: lambda pattern=pattern: with_reserved(pattern) for name, pattern in RESERVED.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_loader_gives_special_tokens_one_id_and_other_text_is_split_as_before(shape, tmp_path):
    base = tg.load(builders.write(tmp_path / "base", SHAPES[shape]()))
    new = tg.add_special(base, TOKENS)
    folder = tg.save(new, tmp_path / "new", base=base)  # asks `tokenizers` and transformers, with text of all tokens
    again = tg.load(folder)
    transformers = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    for content in CONTENTS:
        ids = {one.ids[content] for one in (new, again)} | {transformers.convert_tokens_to_ids(content)}
        assert ids == {again.to_tokenizers().token_to_id(content)}
    assert {*CONTENTS} <= {*transformers.all_special_tokens}
    assert new.encode_batch(LINES) == base.encode_batch(LINES)
    kept = {string: i for string, i in base.ids.items() if string in new.ids}
    assert all(new.ids[string] == i for string, i in kept.items())
    assert len(new.ids) == len(kept) + 20
    assert tg.check(again, base=base).passed


@pytest.mark.parametrize("shape", ["unigram", "word-piece"])
def test_vocabularies_that_are_lists_get_special_tokens_after_the_text_was_learned(shape, tmp_path):
    base, text = builders.write(tmp_path / "base", SHAPES[shape]()), tmp_path / "et.txt"
    lines = (f"kassi kaas lugu õhtu kassike {n} aknal <tool>\n" for n in range(200))
    text.write_text("".join(lines), encoding="utf-8")
    special = tg.AdaptOptions(special=["<tool>"])
    with pytest.raises(errors.OptionError, match="cannot get given added tokens and learn from text in one run"):
        tg.adapt(base, target=text, add=5, out=tmp_path / "refused", options=special)
    assert not (tmp_path / "refused").exists()
    learned = tg.adapt(base, target=text, add=5, out=tmp_path / "learned").tokenizer
    done = tg.adapt(tmp_path / "learned", out=tmp_path / "both", options=special)
    assert done.tokenizer.ids.keys() == {*learned.ids, "<tool>"}


@pytest.mark.parametrize("shape", [*RESERVED, "bert"])
def test_reserved_tokens_are_renamed_in_all_files_and_no_row_is_new(shape, tmp_path):
    document = SHAPES[shape]()
    listed = {str(e["id"]): {k: v for k, v in e.items() if k != "id"} for e in document["added_tokens"]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": listed}
    folder = builders.write(tmp_path / "base", document, **{"special_tokens_map.json": "{}"})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if shape == "bert":
        vocab = document["model"]["vocab"]
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab), encoding="utf-8")
    base = tg.load(folder)
    new = tg.add_special(base, TOKENS)
    assert new.n_rows == base.n_rows
    renamed = [string for string in base.ids if string not in new.ids]
    assert sorted(base.ids[string] for string in renamed) == sorted(new.ids[content] for content in CONTENTS)
    written = tg.save(new, tmp_path / "new", base=base)
    for path in written.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not any(json.dumps(string) in text for string in renamed), path.name
        wanted = "\n<tool_0>\n" if path.name == "vocab.txt" else '"<tool_0>"'
        assert wanted in text, path.name


def test_a_reserved_token_that_anything_uses_is_not_renamed(tmp_path):
    folder = builders.write(tmp_path / "base", with_reserved("<unused{}>", n=4))
    content = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<unused20>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(content | {"chat_template": "{{ '<unused21>' }}"}))
    base = tg.load(folder)
    new = tg.add_special(base, ["<a>", "<b>"], keep=["<unused22>"])
    assert new.strings[base.ids["<unused23>"]] == "<a>"
    assert new.ids["<b>"] == base.n_rows
    assert {"<unused20>", "<unused21>", "<unused22>"} <= new.ids.keys()


def test_a_sentencepiece_model_has_the_tokens_and_finds_them_in_text(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    base = tg.load(builders.write_pieces(tmp_path / "base"))
    folder = tg.save(tg.add_special(base, TOKENS), tmp_path / "new", base=base)
    new, library = tg.load(folder), sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert [library.piece_to_id(content) for content in CONTENTS] == [new.ids[content] for content in CONTENTS]
    assert new.ids["<tool_3>"] in library.encode("the cat<tool_3>the")
    assert new.piece_model.pieces[new.ids["<tool_3>"]].type == USER_DEFINED
    for text in builders.TEXT[:2]:
        assert library.encode(text) == base.encode(text)


def test_rank_files_list_the_tokens_or_are_refused_with_the_reason(tmp_path):
    specials = ["<unk>", "<s>", "</s>", *(f"<SPECIAL_{n}>" for n in range(3, 30))]
    path = tmp_path / "tekken.json"
    path.write_bytes(builders.tekken_file([b"th", b"the"], specials, r"\p{L}+|\s|[^\p{L}\s]"))
    base = tg.load(path)
    new = tg.add_special(base, ["<a>", "<b>"])
    again = tg.load(tg.save(new, tmp_path / "tekken", base=base))
    assert [again.strings[i] for i in (20, 21, 22)] == ["<a>", "<b>", "<SPECIAL_22>"]
    assert again.encode("the<a>") == [base.ids["the"], 20]
    with pytest.raises(errors.UnsupportedTokenizerError, match="special tokens have the first 30 ids"):
        tg.add_special(base, [f"<a_{n}>" for n in range(11)])
    with pytest.raises(errors.OptionError, match=r"flags that `tekken\.json` has no place for"):
        tg.add_special(base, [tg.learn.SpecialToken("<a>", lstrip=True)])


def test_rows_begin_as_the_description_says_or_another_token_or_the_mean(tmp_path):
    base = checkpoint(tmp_path / "model", dtype="F32")
    options = tg.TransplantOptions(init="fvt")
    given = ["<said>\tthe cat", "<like>"]
    for like in ("the", None):
        new = tg.add_special(base, given, like=like)
        out = tmp_path / f"out-{like}"
        tg.transplant(tmp_path / "model", new, out, options=options)
        before, after = tables(tmp_path / "model"), tables(out)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            old, rows = before[name], after[name]
            said = [old[i] for i in base.encode("the cat")]
            other = old[base.ids["the"]] if like else old[: base.n_rows].mean(axis=0)
            np.testing.assert_allclose(rows[new.ids["<said>"]], np.mean(said, axis=0), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(rows[new.ids["<like>"]], other, rtol=1e-5, atol=1e-6)
            assert (rows[: base.n_rows] == old[: base.n_rows]).all()


def test_roles_are_set_in_every_file_and_config(tmp_path):
    base = checkpoint(tmp_path / "model")
    eos = base.added[-1].id
    special = ["<end>", "<pad>"]
    run = ["adapt", tmp_path / "model", "--special", *special, "--eos", "<end>", "--pad", "<pad>", "--no-report"]
    assert cli.main([*map(str, run), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    new = tg.load(tmp_path / "out")
    end, pad = (new.ids[token] for token in special)
    config, generation, settings = (
        json.loads((tmp_path / "out" / f"{name}.json").read_bytes())
        for name in ("config", "generation_config", "tokenizer_config")
    )
    assert (config["eos_token_id"], config["pad_token_id"], settings["eos_token"]) == (end, pad, "<end>")
    assert (generation["eos_token_id"], generation["pad_token_id"]) == ([end, eos], pad)  # it goes on to stop there too


def test_padding_rows_are_used_before_new_ones_and_the_output_says_which(tmp_path, tokengraft):
    base = checkpoint(tmp_path / "model", rows=400)
    free = 400 - base.n_rows
    lines = "".join(f"<act_{n:03}>\n" for n in range(free))
    (tmp_path / "acts.txt").write_text(lines)
    run = ["adapt", tmp_path / "model", "--special", tmp_path / "acts.txt", "--no-report", "--quiet", "--out"]
    assert f"{free} in rows without a token, ids {base.n_rows} to 399" in tokengraft(*run, tmp_path / "out").out
    assert len(tables(tmp_path / "out")["lm_head.weight"]) == 400
    (tmp_path / "acts.txt").write_text(f"{lines}<more>\n")
    assert "1 in new rows, ids 400" in tokengraft(*run, tmp_path / "more").out
    assert len(tables(tmp_path / "more")["lm_head.weight"]) == 416  # a multiple of 16, as 400 is


def test_a_config_keeps_the_reserved_token_that_it_names_by_id(tmp_path):
    model = tmp_path / "model"
    checkpoint(model, rows=512)
    builders.write(model, with_reserved("<unused{}>"))
    base = tg.load(model)
    set_config(model, pad_token_id=base.ids["<unused20>"])
    options = tg.AdaptOptions(special=("<a>",), report=False)
    done = tg.adapt(model, out=tmp_path / "out", options=options)
    assert done.tokenizer.ids["<a>"] == base.ids["<unused21>"]
    assert done.rows == (512, 512)


def test_a_template_that_writes_a_missing_token_is_a_warning(tmp_path, tokengraft):
    folder = builders.write(tmp_path / "base", builders.byte_level())
    template = "{{ '<|start|>' }}{{ '<|tool_call|>' + x }}<tools>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    run = ["extend", folder, "--special", "<a>", "--out"]
    assert "the chat template writes `<|tool_call|>`: no token of that text" in tokengraft(*run, tmp_path / "a").err
    run[3] = "<|tool_call|>"
    assert "the chat template writes" not in tokengraft(*run, tmp_path / "b").err


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "is blank"),
        ("  ", "is blank"),
        (" <a>", "begins or ends with white space"),
        ("a\x07b", r"the control character U\+0007"),
        ("a\u2028b", r"the control character U\+2028"),
        ("x" * 10_000, "has 10,000 characters; at most 256"),
        ("the", "is an ordinary token of the vocabulary already"),
        ("õ", "is an ordinary token of the vocabulary already"),
        ("<|start|>", "is an added token already, with the id"),
        ("<|start|>!", r"contains the added token '<\|start\|>'"),
        ("start", r"is a part of the added token '<\|start\|>'"),
    ],
)
def test_texts_that_cannot_be_special_tokens_are_refused(base, token, said):
    with pytest.raises(errors.OptionError, match=said):
        tg.add_special(base, ["<fine>", token])


@pytest.mark.parametrize("shape", ["byte-level", "ignore-merges", "unigram", "word-piece"])
def test_special_tokens_that_the_decoder_would_change_are_refused_and_others_are_decoded_as_they_are(shape, tmp_path):
    base = tg.load(builders.write(tmp_path / "base", SHAPES[shape]()))
    changed = {"word-piece": "##tool", "unigram": "<a▁tool>"}.get(shape, "<tööriist>")
    with pytest.raises(errors.OptionError, match=f"'{changed}' would be decoded as '.*'") as caught:
        tg.add_special(base, ["<fine>", changed])
    assert "choose a text in ASCII" in str(caught.value)
    contents = ["<fine>", "<a tool>"] + (["<tööriist>"] if shape in ("unigram", "word-piece") else [])
    new = tg.add_special(base, contents)
    assert all(content in new.decode(new.encode(f"a {content} b")) for content in contents)


def test_tokens_inside_each_other_and_two_descriptions_are_refused_and_repetitions_are_not(base):
    with pytest.raises(errors.OptionError, match="'act10' contains the added token 'act1'"):
        tg.add_special(base, ["act1", "act10"])
    with pytest.raises(errors.OptionError, match="'<a>' is listed twice, with different descriptions"):
        tg.add_special(base, ["<a>\tone", "<a>\ttwo"])
    assert len(tg.add_special(base, ["<a>", "<a>"])) == len(base) + 1
    with pytest.raises(errors.OptionError, match="is one text; expected a list"):
        tg.add_special(base, "<a>")


def test_added_tokens_of_transformers_keep_their_flags(base):
    token = pytest.importorskip("transformers").AddedToken("<a>", lstrip=True, normalized=False, special=False)
    new = tg.add_special(base, [token])
    found = next(each for each in new.added if each.content == "<a>")
    assert (found.lstrip, found.normalized, found.special, found.rstrip) == (True, False, False, False)
    assert [new.strings[i] for i in new.encode("the <a>")] == ["the", "<a>"]


@pytest.mark.parametrize("shape", ["byte-level", "sentencepiece", "unigram", "word-piece", "bert"])
def test_special_tokens_words_and_learned_tokens_go_together(shape, tmp_path, capsys):
    folder = builders.write(tmp_path / "base", SHAPES[shape]())
    (tmp_path / "words.txt").write_text("\n".join(WORDS[:6]), encoding="utf-8")
    (tmp_path / "et.txt").write_text("\n".join(builders.TEXT), encoding="utf-8")
    run = ["extend", folder, "--special", *CONTENTS, "--include", tmp_path / "words.txt"]
    learn = ["--corpus", tmp_path / "et.txt", "--add", 40, "--character-coverage", 0]
    learn = learn[: 4 if shape == "byte-level" else 6]
    for more, out in (([], "listed"), (learn, "learned")):
        assert cli.main([*map(str, [*run, *more]), "--out", str(tmp_path / out), "--json"]) == 0
        data, base, new = json.loads(capsys.readouterr().out), tg.load(folder), tg.load(tmp_path / out)
        assert data["special"] == {content: new.ids[content] for content in CONTENTS}
        words = {word["token"] for word in data["included"] if word["token"]}
        assert words <= new.ids.keys()
        assert words
        assert all(new.ids[string] == i for string, i in base.ids.items() if string in new.ids)
        assert tg.check(new, base=base).passed
    run = ["adapt", folder, "--special", *CONTENTS, "--eos", "</tool_1>", "--out", tmp_path / "role", "--quiet"]
    assert cli.main([*map(str, run)]) == 0
    assert json.loads((tmp_path / "role" / "tokenizer_config.json").read_text())["eos_token"] == "</tool_1>"


def test_an_adaptation_without_text_repeats_from_its_record(tmp_path):
    checkpoint(tmp_path / "model")
    (tmp_path / "words.txt").write_text("ibuprofen\nCOX-2\n")
    run = ["adapt", tmp_path / "model", "--include", tmp_path / "words.txt", "--include-added", "--special", "<a>\tthe"]
    assert cli.main([*map(str, run), "--out", str(tmp_path / "one"), "--quiet"]) == 0
    (tmp_path / "words.txt").unlink()
    record = tmp_path / "one" / "tokengraft.json"
    assert cli.main(["adapt", "--recipe", str(record), "--out", str(tmp_path / "two"), "--quiet"]) == 0
    for name in ("tokenizer.json", "model.safetensors", "config.json", "adaptation.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_text_without_a_size_is_refused(tmp_path, folder, capsys):
    (tmp_path / "words.txt").write_text("ibuprofen\n")
    text = ["--corpus", str(tmp_path / "words.txt"), "--include", str(tmp_path / "words.txt")]
    assert cli.main(["extend", str(folder), *text, "--out", str(tmp_path / "out")]) == 2
    assert "text to learn from was given, and no number of tokens" in capsys.readouterr().err
    assert cli.main(["extend", str(folder), "--special", "no.txt", "--out", str(tmp_path / "out")]) == 2
    assert "there is no file `no.txt`" in capsys.readouterr().err
    assert cli.main(["extend", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "no tokens were asked for" in capsys.readouterr().err


def test_a_gguf_file_gets_the_types_of_given_tokens(tmp_path):
    gguf = pytest.importorskip("gguf")
    from ggufs import CONTROL_TYPE, USER_TYPE, write_gguf

    base = tg.load(builders.write(tmp_path / "base", with_reserved("<unused{}>", n=3)))
    path = write_gguf(tmp_path / "model.gguf", base)
    tokens = ["<a>", tg.learn.SpecialToken("<b>", special=False), "<c>"]
    new = tg.add_special(base, tokens, keep=["<unused22>"])  # the file names the last one
    tg.transplant(path, new, tmp_path / "new.gguf", base=base)
    fields = gguf.GGUFReader(tmp_path / "new.gguf").fields
    tokens, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    assert [tokens[new.ids[token]] for token in ("<a>", "<b>", "<c>")] == ["<a>", "<b>", "<c>"]
    assert [types[new.ids[token]] for token in ("<a>", "<b>", "<c>")] == [CONTROL_TYPE, USER_TYPE, CONTROL_TYPE]


class TestModels(UsesPeft):
    """What transformers and PEFT make of the result."""

    @pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2", "qwen2", "gemma3", "bert"])
    def test_old_tokens_keep_every_logit(self, name, tmp_path):
        base, kind = self.tiny.tiny_model(name, tmp_path / "model", rows=448)
        options = tg.AdaptOptions(special=tuple(TOKENS), include=tg.learn.WordList(tuple(WORDS[:3])), report=False)
        done = tg.adapt(tmp_path / "model", out=tmp_path / "out", options=options)
        ids = self.torch.tensor([base.encode("the cat sat on the mat")])
        assert done.tokenizer.encode("the cat sat on the mat") == ids[0].tolist()
        with self.torch.no_grad():
            before, after = (
                kind.from_pretrained(tmp_path / folder).eval()(ids).logits[..., : base.n_rows]
                for folder in ("model", "out")
            )
        assert self.torch.equal(before, after)

    @pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
    def test_an_adapter_in_the_padding_loads_trains_and_merges(self, tied, tmp_path):
        self.tiny.tiny_llama(tmp_path / "model", tied=tied, vocab_size=448)
        options = tg.AdaptOptions(special=tuple(TOKENS), report=False)
        whole = tg.adapt(tmp_path / "model", out=tmp_path / "whole", options=options)
        tg.adapt(
            tmp_path / "model",
            out=tmp_path / "adapter",
            options=tg.AdaptOptions(special=tuple(TOKENS), report=False, as_adapter=True),
        )
        ids = self.torch.tensor([whole.tokenizer.encode("the<tool_1>cat</tool_1>")])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
            model = self.peft.PeftModel.from_pretrained(
                self.tiny.model_in(tmp_path / "model"), tmp_path / "adapter", is_trainable=True
            )
        wanted = self.tiny.model_in(tmp_path / "whole")(ids).logits
        assert self.torch.equal(model(ids).logits, wanted)
        optimiser = self.torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
        model(ids, labels=ids).loss.backward()
        optimiser.step()
        trained = model(ids).logits
        assert not self.torch.equal(trained, wanted)
        merged = model.merge_and_unload()
        self.torch.testing.assert_close(merged(ids).logits, trained)

    def test_more_tokens_than_rows_are_no_adapter(self, tmp_path):
        self.tiny.tiny_llama(tmp_path / "model")
        options = tg.AdaptOptions(special=("<a>",), as_adapter=True)
        with pytest.raises(errors.OptionError, match=r"an adapter .* can replace rows, but not change their number"):
            tg.adapt(tmp_path / "model", out=tmp_path / "out", options=options)


def test_special_tokens_and_words_of_real_tokenizers_change_no_other_text(shared_folder, shared_data, tmp_path):
    base = tg.load(shared_folder)
    special = tg.add_special(base, TOKENS)
    paths = sorted((shared_data / "devtest").glob("*.devtest"))
    texts = ["\n".join(path.read_text(encoding="utf-8").split("\n")[:100]) for path in paths]
    assert len(texts) == 204
    estonian = (shared_data / "devtest" / "est_Latn.devtest").read_text(encoding="utf-8")
    words = sorted({word for word in estonian.split() if word.isalpha() and len(word) > 9})[:200]
    extension = tg.learn.include_words(special, tg.learn.WordList(tuple(words)), tg.Limits())
    assert not [word for word in extension.included if word.token is None]
    new = extension.apply(special)
    again = tg.load(tg.save(new, tmp_path / "new", base=base))
    assert all(again.ids[content] == new.ids[content] for content in CONTENTS)
    assert all(len(again.encode(f" {word}")) <= 2 for word in words)  # a space of its own before it, in some types
    assert special.encode_batch(texts) == base.encode_batch(texts)
