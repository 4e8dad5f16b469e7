"""Encoders and encoder-decoders: kept tokens keep their logits, or hidden states without a head. Needs torch."""

import json
from functools import cache

import builders
import pytest
from checkpoints import changed, set_config

import tokengraft as tg
from tokengraft import cli, errors

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
transformers = pytest.importorskip("transformers")
import tiny_models  # noqa: E402, F401 (one thread)
from safetensors.torch import load_file, save_file  # noqa: E402

SPECIAL = {"WordPiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "Unigram": ["<s>", "<pad>", "</s>", "<unk>"]}
LANGUAGES = ["en_XX", "et_EE", "<mask>"]
"""Added after the vocabulary, as mBART and NLLB have them."""
GENERATION = "generation_config.json"
BODY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
BODY |= {"max_position_embeddings": 64}
LAYERS = {f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in (("layers", 1), ("attention_heads", 4))}
SEQ2SEQ = LAYERS | {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
SPEECH = {name: size for name, size in SEQ2SEQ.items() if name != "max_position_embeddings"}
SPEECH |= {"max_source_positions": 16, "max_target_positions": 64, "num_mel_bins": 8}

MODELS = {
    **{
        f"bert-{head}": (f"Bert{head}", "Bert", "WordPiece", BODY)
        for head in ("Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel", "ForSequenceClassification")
    },
    "distilbert": ("DistilBertForMaskedLM", "DistilBert", "WordPiece", {"dim": 32, "hidden_dim": 48, "n_heads": 4}),
    "electra": ("ElectraForMaskedLM", "Electra", "WordPiece", BODY | {"embedding_size": 16}),
    "electra-discriminator": ("ElectraForPreTraining", "Electra", "WordPiece", BODY | {"embedding_size": 16}),
    "mpnet": ("MPNetForMaskedLM", "MPNet", "WordPiece", BODY),
    "mpnet-without-head": ("MPNetModel", "MPNet", "WordPiece", BODY),
    "albert": ("AlbertForMaskedLM", "Albert", "Unigram", BODY | {"embedding_size": 16}),
    "roberta": ("RobertaForMaskedLM", "Roberta", "BPE", BODY),
    "camembert": ("CamembertForMaskedLM", "Camembert", "Unigram", BODY),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRoberta", "Unigram", BODY),
    "xlm-roberta-without-head": ("XLMRobertaModel", "XLMRoberta", "Unigram", BODY),
    "deberta": ("DebertaForMaskedLM", "Deberta", "BPE", BODY),
    "deberta-v2": ("DebertaV2ForMaskedLM", "DebertaV2", "Unigram", BODY | {"relative_attention": True}),
    "deberta-v3": ("DebertaV2ForMaskedLM", "DebertaV2", "Unigram", BODY | {"legacy": False}),
    "deberta-v3-without-head": ("DebertaV2Model", "DebertaV2", "Unigram", BODY),
    "modernbert": ("ModernBertForMaskedLM", "ModernBert", "BPE", BODY),
    "modernbert-without-head": ("ModernBertModel", "ModernBert", "BPE", BODY),
    "t5": ("T5ForConditionalGeneration", "T5", "Unigram", T5),
    "t5-encoder": ("T5EncoderModel", "T5", "Unigram", T5),
    "mt5": ("MT5ForConditionalGeneration", "MT5", "Unigram", T5 | {"tie_word_embeddings": False}),
    "bart": ("BartForConditionalGeneration", "Bart", "BPE", SEQ2SEQ),
    "bart-without-head": ("BartModel", "Bart", "BPE", SEQ2SEQ),
    "bart-decoder": ("BartForCausalLM", "Bart", "BPE", SEQ2SEQ | {"is_encoder_decoder": False}),
    "mbart": ("MBartForConditionalGeneration", "MBart", "Unigram", SEQ2SEQ),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100", "Unigram", SEQ2SEQ),
    "marian": ("MarianMTModel", "Marian", "Unigram", SEQ2SEQ),
    "pegasus": ("PegasusForConditionalGeneration", "Pegasus", "Unigram", SEQ2SEQ),
    "whisper": ("WhisperForConditionalGeneration", "Whisper", "BPE", SPEECH),
}
"""The classes of model and config, the algorithm of the tokenizer, and the config."""


@cache
def tokenizer_json(algorithm):
    """A tokenizer of one of the algorithms, trained on a few sentences."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

    special = SPECIAL.get(algorithm, SPECIAL["Unigram"])
    tokenizer = Tokenizer(getattr(models, algorithm)(**{"unk_token": "[UNK]"} if algorithm == "WordPiece" else {}))
    if algorithm == "WordPiece":
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    elif algorithm == "Unigram":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        options = {"vocab_size": 200, "unk_token": "<unk>", "show_progress": False}
        trainer = trainers.UnigramTrainer(special_tokens=special, **options)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        options = {"vocab_size": 420, "initial_alphabet": builders.byte_alphabet(), "show_progress": False}
        trainer = trainers.BpeTrainer(special_tokens=special, **options)
    tokenizer.train_from_iterator(builders.TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in LANGUAGES])
    return tokenizer.to_str()


def listed(document):
    """The tokenizer with all added tokens in the list of its vocabulary, as T5 and XLM-R have them."""
    vocab = document["model"]["vocab"]
    for token in document["added_tokens"][-len(LANGUAGES) :]:
        if isinstance(vocab, dict):
            vocab[token["content"]] = token["id"]
        else:
            vocab.append([token["content"], 0.0])
    return document


def model_folder(folder, name, change=lambda document: document, **settings):
    """A folder with a tiny random model and its tokenizer; returns the tokenizer and the class of the model."""
    model_class, config_class, algorithm, config = MODELS[name]
    base = tg.load(builders.write(folder, change(json.loads(tokenizer_json(algorithm)))))
    pad, end = (base.ids[token] for token in (("[PAD]", "[SEP]") if algorithm == "WordPiece" else ("<pad>", "</s>")))
    ids = {"pad_token_id": pad, "bos_token_id": end, "eos_token_id": end, "cls_token_id": end, "sep_token_id": end}
    # Languages are tokens after the vocabulary, whose ids change.
    ids |= {"decoder_start_token_id": base.ids["en_XX"]}
    config = getattr(transformers, f"{config_class}Config")(**config | ids | {"vocab_size": base.n_rows} | settings)
    kind = getattr(transformers, model_class)
    torch.manual_seed(11)
    model = kind(config)
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for n, b in model.named_buffers() if n == "final_logits_bias")):
            tensor.normal_(0, 0.2)
    model.save_pretrained(folder)
    if config.is_encoder_decoder and model.can_generate():
        set_config(folder, GENERATION, forced_bos_token_id=base.ids["et_EE"], bad_words_ids=[[base.ids["en_XX"]]])
    return base, kind


def pruned(base, n=12):
    """The tokenizer without its rarest tokens, and with new ids."""
    return changed(base, remove=n, compact=True)


def output(kind, folder, ids, rows):
    """Logits of some tokens for a text, or its hidden states."""
    model, text = kind.from_pretrained(folder).eval(), torch.tensor([ids])
    inputs = {"input_ids": text}
    if model.config.model_type == "whisper":
        inputs = {"input_features": torch.linspace(-1, 1, 8 * 32).reshape(1, 8, 32), "decoder_input_ids": text}
    elif model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = text.flip(1)
    with torch.no_grad():
        done = model(**inputs)
    found = next(done[name] for name in ("prediction_logits", "logits", "last_hidden_state") if name in done)
    return found[..., rows] if found.shape[-1] == model.config.vocab_size else found


def assert_says_the_same(folder, base, new, kind):
    """The models in `model` and `out` give kept tokens the same numbers: bit for bit, without a head for tokens.

    With one, a product with a smaller table may be rounded differently: its columns are split otherwise among threads.
    """
    moved = tg.plan(base, new).moved
    kept = sorted(moved)
    text = [i for i in kept if i > 5][::4][:40]
    before = output(kind, folder / "model", text, kept)
    after = output(kind, folder / "out", [moved[i] for i in text], [moved[i] for i in kept])
    if before.shape[-1] == len(kept):
        assert torch.allclose(before, after, rtol=0, atol=1e-5)
    else:
        assert torch.equal(before, after)


@pytest.mark.parametrize("name", MODELS)
def test_kept_tokens_have_the_logits_or_hidden_states_that_they_had(name, tmp_path):
    base, kind = model_folder(tmp_path / "model", name)
    new = pruned(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.found_by == f"the names of {MODELS[name][0]}"
    assert_says_the_same(tmp_path, base, new, kind)
    before, config = (kind.from_pretrained(tmp_path / part).config for part in ("model", "out"))
    assert config.vocab_size == done.rows_after == new.n_rows == base.n_rows - 12
    assert config.pad_token_id == new.ids[base.strings[before.pad_token_id]]
    if config.is_encoder_decoder:
        assert config.decoder_start_token_id == new.ids["en_XX"] != base.ids["en_XX"]
    if config.is_encoder_decoder and kind.can_generate():
        generation = json.loads((tmp_path / "out" / GENERATION).read_text())
        assert generation["decoder_start_token_id"] == new.ids["en_XX"]
        assert generation["forced_bos_token_id"] == new.ids["et_EE"]
        assert generation["bad_words_ids"] == [[new.ids["en_XX"]]]


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][2] != "BPE"])
def test_new_tokens_change_nothing_for_the_others(name, tmp_path):
    base, kind = model_folder(tmp_path / "model", name, listed)
    joined = [text.replace(" ", "")[:60] for text in builders.TEXT] * 2
    new = tg.extend(base, tg.count(base, iter(joined)), 6).apply(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert (done.rows_after, done.plan.summary.moved) == (base.n_rows + 6, 0)
    assert_says_the_same(tmp_path, base, new, kind)


@pytest.mark.parametrize("name", ["bert-Model", "bert-ForMaskedLM", "t5", "t5-encoder", "bart-without-head", "whisper"])
def test_both_models_can_be_run_and_compared(name, tmp_path):
    base, _ = model_folder(tmp_path / "model", name)
    done = tg.transplant(tmp_path / "model", pruned(base), tmp_path / "out", options=tg.TransplantOptions(verify=True))
    assert done.behaviour.worst < 1e-6


@pytest.mark.parametrize(("name", "suppressed"), [("bert-ForMaskedLM", 0), ("bart-without-head", 0), ("bart", 12)])
def test_ids_without_a_token_are_suppressed_only_if_the_model_generates_text(name, suppressed, tmp_path):
    base, _ = model_folder(tmp_path / "model", name)
    holes = changed(base, remove=12)
    assert tg.transplant(tmp_path / "model", holes, tmp_path / "out").suppressed == suppressed
    assert (tmp_path / "out" / GENERATION).exists() == bool(suppressed)


@pytest.mark.parametrize("name", ["roberta", "bart", "whisper", "t5", "bert-Model"])
def test_adapt_prints_the_class_of_the_config_and_no_command_for_causal_training(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "model", name, listed)
    (tmp_path / "text.txt").write_text("\n".join(text.replace(" ", "") for text in builders.TEXT), encoding="utf-8")
    command = ["adapt", "model", "--target", "text.txt", "--swap", "3", "--no-report", "--out", "out"]
    assert cli.main(command) == 0
    err = capsys.readouterr().err
    assert f"load it: `{MODELS[name][0]}.from_pretrained('out')`" in err
    assert "CausalLM" not in err
    assert "continue_pretraining" not in err
    assert "task_type" not in json.loads((tmp_path / "out" / "training.json").read_text())["lora"]


COPIES = {
    "bert-ForMaskedLM": {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "xlm-roberta": {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    "t5": {f"{part}.weight": "shared.weight" for part in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
    "mbart": {
        f"{part}.weight": "model.shared.weight"
        for part in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    },
    "whisper": {"proj_out.weight": "model.decoder.embed_tokens.weight"},
}


@pytest.mark.parametrize("name", COPIES)
def test_tied_tables_that_are_stored_twice_stay_equal(name, tmp_path):
    """As transformers before 5 wrote them."""
    base, kind = model_folder(tmp_path / "model", name)
    path, copies = tmp_path / "model" / "model.safetensors", COPIES[name]
    tensors = load_file(path)
    save_file(tensors | {copy: tensors[of].clone() for copy, of in copies.items()}, path, {"format": "pt"})
    new = pruned(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.tied
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(after[copy], after[of]) and len(after[of]) == new.n_rows for copy, of in copies.items())
    assert_says_the_same(tmp_path, base, new, kind)


@pytest.mark.parametrize("name", ["mt5", "t5"])
def test_an_output_that_is_not_tied_keeps_its_own_rows(name, tmp_path):
    base, kind = model_folder(tmp_path / "model", name)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"lm_head.weight": torch.randn_like(tensors["shared.weight"])}, path, {"format": "pt"})
    set_config(tmp_path / "model", tie_word_embeddings=False)
    new = pruned(base)
    assert not tg.transplant(tmp_path / "model", new, tmp_path / "out").tied
    assert_says_the_same(tmp_path, base, new, kind)
    model = kind.from_pretrained(tmp_path / "out")
    assert not torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)


@pytest.mark.parametrize("name", ["bert-ForMaskedLM", "m2m100", "deberta-v3"])
def test_without_the_name_of_a_class_the_type_says_which_tables_there_are(name, tmp_path):
    base, _ = model_folder(tmp_path / "model", name)
    set_config(tmp_path / "model", architectures=None)
    done = tg.transplant(tmp_path / "model", pruned(base), None)
    assert done.found_by in ("the names of bert", "the names of m2m_100", "the names of deberta-v2")


def refuse(folder, new, match):
    with pytest.raises(errors.CheckpointError, match=match) as caught:
        tg.transplant(folder / "model", new, folder / "out")
    assert not (folder / "out").exists()
    return caught.value.hint


def test_a_model_with_two_vocabularies_is_refused(tmp_path):
    settings = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 50, "tie_word_embeddings": False}
    base, _ = model_folder(tmp_path / "model", "marian", **settings)
    refuse(tmp_path, pruned(base), "MarianMTModel has two vocabularies, of 86 and 50 tokens")


@pytest.mark.parametrize("with_json", [True, False])
def test_a_tokenizer_of_marian_is_refused_by_name(with_json, tmp_path):
    base, _ = model_folder(tmp_path / "model", "marian")
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / "model" / name).write_bytes(b"{}")
    if not with_json:
        (tmp_path / "model" / "tokenizer.json").unlink()
    refuse(tmp_path, pruned(base), r"has a tokenizer of Marian \(`source.spm`\)")


@pytest.mark.parametrize(("name", "file"), [("xlm-roberta", "sentencepiece.bpe.model"), ("t5", "spiece.model")])
def test_pieces_whose_ids_only_a_class_of_transformers_knows_are_refused(name, file, tmp_path):
    base, _ = model_folder(tmp_path / "model", name)
    pieces = [("<unk>", 0.0, builders.UNKNOWN), ("<s>", 0.0, builders.CONTROL), ("</s>", 0.0, builders.CONTROL)]
    pieces += [(piece, -1.0, builders.NORMAL) for piece in ("▁", "a", "b", "▁a")]
    (tmp_path / "model" / "tokenizer.json").unlink()
    raw = builders.piece_model(pieces, model_type=1, byte_fallback=False)
    (tmp_path / "model" / file).write_bytes(raw)
    with pytest.raises(errors.UnsupportedTokenizerError, match=f"has `{file}` and no `tokenizer.json`") as caught:
        tg.transplant(tmp_path / "model", pruned(base), tmp_path / "out")
    assert "save_pretrained" in caught.value.hint


def whisper(folder, times=4):
    """A tiny Whisper whose last tokens are a language, a task, and timestamps."""
    base, kind = model_folder(folder, "whisper")
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    names = [
        "<|startoftranscript|>",
        "<|en|>",
        "<|transcribe|>",
        "<|notimestamps|>",
        *(f"<|{n}.00|>" for n in range(times)),
    ]
    document["added_tokens"] += [builders.added(base.n_rows + at, name) for at, name in enumerate(names)]
    builders.write(folder, document)
    base = tg.load(folder)
    model = kind.from_pretrained(folder)
    model.resize_token_embeddings(base.n_rows, mean_resizing=False)
    model.save_pretrained(folder)
    start = {"decoder_start_token_id": base.ids["<|startoftranscript|>"]}
    set_config(folder, **start)
    set_config(
        folder,
        GENERATION,
        **start,
        lang_to_id={"<|en|>": base.ids["<|en|>"]},
        task_to_id={"transcribe": base.ids["<|transcribe|>"]},
        no_timestamps_token_id=base.ids["<|notimestamps|>"],
        alignment_heads=[[0, 1]],
        _from_model_config=False,
    )
    return base, kind


def test_languages_tasks_and_timestamps_of_whisper_have_the_new_ids(tmp_path):
    base, kind = whisper(tmp_path / "model")
    new = pruned(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert_says_the_same(tmp_path, base, new, kind)
    config = json.loads((tmp_path / "out" / GENERATION).read_text())
    assert config["lang_to_id"] == {"<|en|>": new.ids["<|en|>"]}
    assert config["task_to_id"] == {"transcribe": new.ids["<|transcribe|>"]}
    assert config["no_timestamps_token_id"] == new.ids["<|0.00|>"] - 1 == base.ids["<|0.00|>"] - 13
    assert config["alignment_heads"] == [[0, 1]]
    model = kind.from_pretrained(tmp_path / "model")
    tg.transplant_model(model, tg.plan(base, new))
    assert model.generation_config.lang_to_id == config["lang_to_id"]


def test_timestamps_of_whisper_without_tokens_are_not_lost(tmp_path):
    """Older folders have rows for timestamps, and no tokens."""
    base, kind = whisper(tmp_path / "model")
    model = kind.from_pretrained(tmp_path / "model")
    model.resize_token_embeddings(base.n_rows + 3, mean_resizing=False)
    model.save_pretrained(tmp_path / "model")
    hint = refuse(tmp_path, pruned(base), "whisper use the ids from .* for languages, tasks and timestamps")
    assert "--ids keep" in hint
    same = changed(base, remove=12)
    tg.transplant(tmp_path / "model", same, tmp_path / "out")
    assert_says_the_same(tmp_path, base, same, kind)


def test_a_plan_that_adds_tokens_after_the_timestamps_of_whisper_is_refused_in_memory_too(tmp_path):
    base, kind = whisper(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "tokenizer.json").read_text(encoding="utf-8"))
    document["added_tokens"].append(builders.added(base.n_rows, "kassid"))
    plan = tg.plan(base, tg.load(builders.write(tmp_path / "new", document)))
    with pytest.raises(errors.CheckpointError, match="the plan adds tokens there"):
        tg.transplant_model(kind.from_pretrained(tmp_path / "model"), plan)


def test_a_swap_of_whisper_keeps_its_timestamps_and_logits(tmp_path):
    base, kind = whisper(tmp_path / "model")
    pruned_ids = changed(base, remove=12)
    text = ["kassid koerad kassid koerad"] * 9
    new = tg.extend(pruned_ids, tg.count(pruned_ids, iter(text)), 4).apply(pruned_ids)
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert_says_the_same(tmp_path, base, new, kind)
    config = json.loads((tmp_path / "out" / GENERATION).read_text())
    assert config["no_timestamps_token_id"] == base.ids["<|notimestamps|>"]
    assert max(new.ids[token] for token in new.ids.keys() - base.ids.keys()) < config["no_timestamps_token_id"]
