"""Splits running text into sentences."""

import sentencex

# ISO 639-1, and the longer codes for which sentencex names a related language.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz
    ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln
    lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi
    pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
    ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    abs ace ady aeb aln als alt ami anp arn arq ary arz ast atj avk awa azb ban bar bbc bcc bgn bjn
    bpy bqi btm bug bxr cbk cdo crh csb dsb dtp dty egl eml ext fit frc frp frr fur gag gan gcr glk
    gom gor gsw guc hak hif hrx hsb hyw inh jam jut kaa kab kbd kbp khw kiu kjp koi krc krl ksh kum
    lad lbe lez lij liv lki lld lmo lrc ltg luz lzh lzz mad mai mdf mhr min mnw mrj mwl myv mzn nah
    nan nap nds nia nrm olo pcd pdc pdt pfl pih pms pnt qug rgn rmy rue rup ruq sah scn sco sdc sdh
    ses sgs shi shy skr sli smn srn stq sty szl szy tay tcy tet trv tyv udm vec vep vls vmf vot vro
    wuu xal xmf yue zea zgh
    """.split()
)


def check_language(language: str) -> None:
    """Raises a ValueError that lists the known languages if `language` is not among them.

    A region or script may follow the code of the language, as in "pt-br".
    """
    if language.split("-")[0] not in _LANGUAGES:
        known = ", ".join(sorted(_LANGUAGES, key=lambda code: (len(code), code)))
        raise ValueError(
            f"--language={language} is not known: give an ISO 639 code, such as de for German. "
            f"Known are {known}"
        )


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Returns the sentences of a text, each on one line with single spaces.

    The rules and abbreviations are those of Wikimedia's `sentencex`, which supports some 300
    languages. A language without rules of its own has those of a related one, or of English.

    Args:
        text: one or more paragraphs. A blank line always ends a sentence, a single line break does
            not.
        language: an ISO 639 code, such as "de".
    """
    check_language(language)
    sentences = (" ".join(sentence.split()) for sentence in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]
