"""Names of languages: the short names of corpora, and the codes of FLORES-200 and FineWeb-2."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    code: str
    """The name of the corpus: a short name, or a code of FineWeb-2 or FLORES-200."""
    name: str
    flores: str
    fineweb: str
    """The configuration of FineWeb-2; that of English is one of FineWeb."""
    averaged: bool = True
    """Whether it is one of the paper's 70 languages, over which its averages are taken. English is not."""

    @property
    def script(self) -> str:
        """The groups of the paper's table by script."""
        script = self.fineweb.rpartition("_")[2]
        return script if script in ("Latn", "Cyrl", "Arab", "Jpan", "Hani") else "Other"


ENGLISH = "en"
_SHORT = (
    Language("et", "Estonian", "est_Latn", "ekk_Latn"),
    Language("en", "English", "eng_Latn", "eng_Latn", averaged=False),
    Language("de", "German", "deu_Latn", "deu_Latn"),
    Language("fi", "Finnish", "fin_Latn", "fin_Latn"),
    Language("ru", "Russian", "rus_Cyrl", "rus_Cyrl"),
    Language("ar", "Arabic", "arb_Arab", "arb_Arab"),
    Language("ja", "Japanese", "jpn_Jpan", "jpn_Jpan"),
    Language("zh", "Chinese", "zho_Hans", "cmn_Hani"),
    Language("hi", "Hindi", "hin_Deva", "hin_Deva"),
    Language("medical_en", "English, medical", "eng_Latn", "eng_Latn", averaged=False),
)
_BY_CODE = {language.code: language for language in _SHORT}
_FLORES = {"ekk_Latn": "est_Latn", "cmn_Hani": "zho_Hans", "fas_Arab": "pes_Arab"}
"""Languages that FLORES-200 and FineWeb-2 name differently."""
PAPER_70 = tuple(
    """
    rus_Cyrl cmn_Hani deu_Latn jpn_Jpan spa_Latn fra_Latn ita_Latn por_Latn pol_Latn
    nld_Latn ind_Latn tur_Latn vie_Latn ces_Latn arb_Arab kor_Hang fas_Arab hun_Latn
    swe_Latn ron_Latn ukr_Cyrl nob_Latn ell_Grek tha_Thai dan_Latn fin_Latn bul_Cyrl
    slk_Latn hin_Deva lit_Latn bos_Latn heb_Hebr ben_Beng slv_Latn cat_Latn ekk_Latn
    hrv_Latn lvs_Latn zsm_Latn azj_Latn tam_Taml srp_Cyrl als_Latn urd_Arab kaz_Cyrl
    kat_Geor npi_Deva mar_Deva mal_Mlym mkd_Cyrl isl_Latn bel_Cyrl tel_Telu afr_Latn
    kan_Knda guj_Gujr glg_Latn mya_Mymr ary_Arab khk_Cyrl hye_Armn khm_Khmr uzn_Latn
    eus_Latn sin_Sinh pan_Guru kir_Cyrl swh_Latn nno_Latn ory_Orya
    """.split()  # noqa: SIM905
)
"""The languages of the paper's Table "Languages in training data", as FineWeb-2 names them."""


def language_of(code: str) -> Language:
    """A language by a short name, or by a code of FineWeb-2 or FLORES-200.

    >>> language_of("et").flores, language_of("cmn_Hani").flores, language_of("fra_Latn").script
    ('est_Latn', 'zho_Hans', 'Latn')
    """
    if code in _BY_CODE:
        return _BY_CODE[code]
    fineweb = {flores: name for name, flores in _FLORES.items()}.get(code, code)
    return Language(code, code, _FLORES.get(code, code), fineweb, averaged=fineweb in PAPER_70)
