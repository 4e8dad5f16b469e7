"""Small corpora: documents of random words in five languages, Parquet, and a slow pipe."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq

SYLLABLES = {
    "et": "põ dra ma kas si õu nas ta le ga tu li ko er jä ük si te",
    "en": "the cat ing on tion er an ma ter pro con all re st",
    "ar": "كتا ب مد رس ة بي ت شم س قم ر نو ر ال",
    "hi": "न म स् ते घ र पा नी कि ता ब लो ग",
    "de": "der haus schn ell ung ver ge ten aus lich keit",
}
FLORES = {"et": "est_Latn", "en": "eng_Latn", "ar": "arb_Arab", "hi": "hin_Deva", "de": "deu_Latn"}


def documents(language, n=160, seed=0):
    """Documents of random words; frequent words are the same in all of them."""
    choice = random.Random(f"{language}{seed}")
    parts = SYLLABLES[language].split()
    lexicon = ["".join(random.Random(f"{language}{i}").choices(parts, k=1 + i % 4)) for i in range(150)]
    return [" ".join(choice.choices(lexicon, weights=range(150, 0, -1), k=30)) + f" {i}" for i in range(n)]


def parquet(values, kind=None):
    """The bytes of a file with a column of texts."""
    raw = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(values, kind)}), raw, row_group_size=2)
    return raw.getvalue()


class Trickle(io.BytesIO):
    """A pipe whose writer is slow: a read gives what is there, and a signal is seen only between reads."""

    def read1(self, size=-1):
        return super().read1(min(size, 3))

    def read(self, *_):
        raise AssertionError("waits for the whole size, deaf to signals")
