"""Texts on which tokenizers are compared: prose, code, odd Unicode, joined tokens, added tokens."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tokengraft import Tokenizer

PROSE = [
    "the cat sat on the mat and the other cat sat on that mat; it's I'LL don't WE'RE",
    "kass istus matil ja teine kass istus teisel matil, õhtu õdus, öö külm",
    "kissa istui matolla ja toinen kissa istui toisella matolla",
    "кот сидел на коврике, а другой кот сидел на другом коврике",
    "猫はマットの上に座った。もう一匹の猫も座った。 猫坐在垫子上，另一只猫也坐在垫子上。",
    "고양이가 매트 위에 앉아 있었다. 다른 고양이도 앉아 있었다.",
    "بالعالم مرحبا القط جلس على السجادة והחתול ישב על השטיח",
    "मैं हिन्दी में लिखता हूँ। बिल्ली चटाई पर बैठी थी।",
    "แมวนั่งอยู่บนเสื่อ ชาវកម្ពុជា ქართული ენა Ἑλληνικὴ γλῶσσα",
]
CODE = [
    "def f(x):\n\treturn {'a': x ** 2}  # ok\n\n\n",
    "for (int i = 0; i < 10; ++i) {\n    std::cout << v[i] << '\\n';\n}\n",
    "x = {'a': 1, 'b': 22, 'c': 333}\r\n\r\nfor i in range(10):\r\n        print(i)\r\n",
    "SELECT * FROM t WHERE a<>b AND c>=1000000 -- 1,234.56 0x1F 3e-10",
]
ODD = [
    "",
    " ",
    "   ",
    "  \t\n\r\n  x",
    "x  ",
    "a\n\n\n\nb \n c\t\t\td",
    " " * 40 + "y" + " " * 17,
    "naïve café — “quotes” … 🙂‍↔️ ﬁ Å Å ㍿ ½ ² Ⅷ ①",
    "e\u0301 o\u0303 \u200d \ufeff \u00a0 \u3000 \u2028 \u0085",
    "1 12 123 1234 12345678901234567890 ١٢٣ १२३ 一二三",
    "\0\x07\x7f\u00ad\U000e0041\U0010ffff\ue000",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 8,
    "!!!???...,,,---===+++///\\\\\\***___```~~~",
    "▁x ▁▁ Ġ Ċ <0x41> </w> ##ing",
    "👩‍👩‍👧‍👦🇪🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿",
]
LANGUAGES = [
    *("eng_Latn", "est_Latn", "fin_Latn", "deu_Latn", "fra_Latn", "tur_Latn", "vie_Latn", "rus_Cyrl", "ell_Grek"),
    *("kat_Geor", "hye_Armn", "heb_Hebr", "arb_Arab", "hin_Deva", "ben_Beng", "tam_Taml", "tha_Thai", "khm_Khmr"),
    *("zho_Hans", "jpn_Jpan", "kor_Hang"),
]
"""Of FLORES-200."""
LEARNED = ("est_Latn", "hin_Deva", "jpn_Jpan")
"""The languages that new tokens are learned from."""


class Texts(NamedTuple):
    """What a tokenizer is compared on, and what it learns from."""

    compared: list[str]
    learned: list[str]
    """Documents to count and to learn new tokens from."""
    n_edited: int
    """How many tokens are pruned and learned."""


def built_in() -> Texts:
    """The texts of this file. Few words, so few new tokens."""
    return Texts([*PROSE, *CODE, *ODD], [f"{text} {n}" for n in range(5) for text in PROSE], 20)


def flores(folder: Path, lines: int = 8) -> Texts:
    """The texts of this file, and FLORES-200 in 21 languages."""
    read = {name: (folder / f"{name}.devtest").read_text(encoding="utf-8").splitlines() for name in LANGUAGES}
    compared = [line for found in read.values() for line in found[:lines]]
    return Texts([*PROSE, *CODE, *ODD, *compared], [line for name in LEARNED for line in read[name][:200]], 300)


def drawn(tokenizer: Tokenizer, n: int) -> list[str]:
    """Texts of random tokens, which have merges in competition that ordinary text never has."""
    generator = random.Random(0)
    added = {token.id for token in tokenizer.added}
    tokens = [token.bytes for token in tokenizer.tokens if token.id not in added and len(token.bytes) <= 64]
    chosen = (b"".join(generator.choices(tokens, k=generator.randint(1, 10))) for _ in range(n))
    return [text.decode(errors="replace") for text in chosen]


def with_added(tokenizer: Tokenizer, most: int = 100) -> Iterator[str]:
    """Texts with added tokens: alone, between words, inside a word, beside white space."""
    for token in [*tokenizer.added][:most]:
        yield token.content
        yield f"the {token.content} cat{token.content}sat  {token.content}\n{token.content} "
