"""sentencepiece: reads a `.model`, merges by the score of the product, and knows no other file. Checked with 0.2.2."""

from collections.abc import Iterator

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.check.serving.model import not_checked
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.serving.tiktoken import compared, conversion_fix
from tokengraft.check.transformers_loader import summary
from tokengraft.check.verify import sample_texts
from tokengraft.tokenizer.tokenizer import Tokenizer

KEEP = "put the `.model` of the base into its folder before you change the tokenizer: both are then kept equal"


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What sentencepiece makes of the `.model`, compared with tokenizer.json."""
    tokenizer = folder.tokenizer
    if tokenizer.piece_file is None:
        fix = conversion_fix(tokenizer, "sentencepiece")
        more = f"; {KEEP}" if tokenizer.kind == "sentencepiece" else ""
        yield Finding("model", "fail", "there is no SentencePiece model", (), f"{fix}{more}")
        return
    yield Finding("model", "pass", f"`{tokenizer.piece_file}`")
    yield same_pieces(tokenizer)
    yield same_ids(tokenizer)


def same_pieces(tokenizer: Tokenizer) -> Finding:
    """Whether the model has all tokens, with the same ids."""
    model = tokenizer.piece_model
    places = {piece.string: place for place, piece in enumerate(model.pieces)} if model else {}
    added = {token.content for token in tokenizer.added}
    differing = [string for string, i in tokenizer.ids.items() if places.get(string) != i]
    learned = [f"{string!r} ({tokenizer.ids[string]:,})" for string in differing if string not in added]
    if learned:
        return Finding("pieces", "fail", f"{len(learned):,} tokens have no piece", tuple(learned[:EVIDENCE]), KEEP)
    if differing:
        shown = tuple(f"{string!r} ({tokenizer.ids[string]:,})" for string in differing[:EVIDENCE])
        fix = "sentencepiece splits their text; use transformers or `tokenizers` where text has them"
        return Finding("pieces", "note", f"{len(differing):,} added tokens have no piece", shown, fix)
    return Finding("pieces", "pass", f"{len(tokenizer.ids):,}, with the ids of the tokenizer")


def same_ids(tokenizer: Tokenizer) -> Finding:
    """Whether sentencepiece gives the same ids for sample texts, apart from spaces at the ends."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return not_checked("encoding", "sentencepiece is not installed: `pip install sentencepiece`")
    texts = [text.strip(" ") for text in sample_texts(tokenizer)]
    try:
        ids = SentencePieceProcessor(model_proto=tokenizer.files[tokenizer.piece_file or ""]).encode(texts)
    except Exception as error:  # its own errors are RuntimeError and whatever its parser raises
        return Finding("encoding", "fail", f"sentencepiece refuses the model: {summary(error)}", (), KEEP)
    return compared(tokenizer, texts, ids, "the two normalize differently; the base has the same difference")
