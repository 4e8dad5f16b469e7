"""The check text of llama.cpp's converter as counts: what `extend` must leave unchanged for its hash to stay."""

from tokengraft.counts.count import count
from tokengraft.counts.options import CountOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.tokenizer.llama_cpp import converter_table
from tokengraft.tokenizer.tokenizer import Tokenizer


def check_text_counts(tokenizer: Tokenizer) -> PretokenCounts:
    """The pretokens of the converter's check text, for ``extend(preserve=...)``.

    A merge that applies in none of them leaves the ids of the text, and so the converter's hash, as they are.
    """
    return count(tokenizer, iter([converter_table().check_text]), count_options=CountOptions(workers=1))
