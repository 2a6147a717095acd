"""Text of languages without rules of their own reaches a model that reads any character as it is written."""

from __future__ import annotations

import unicodedata

import pytest
import regex as re
from hypothesis import example, given, settings
from hypothesis import strategies as st

from realtime_tts.text.characters import is_mark
from realtime_tts.text.folding import as_written
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.normalizer import Normalization, Normalizer
from realtime_tts.text.planner import Planner
from realtime_tts.text.segmenter import Segmenter, SegmenterConfig
from realtime_tts.text.skipped import DROPPED, SKIPPED

UNCHANGED = [
    ("xx", "25 € und 50 % weniger"),
    ("xx", "„Ja“, sagte er (leise) – und ging."),
    ("xx", "»Hallo«, ‚so‘ 5 °C; §5: a+b=c @x #y &z <5"),
    ("xx", "¿Qué tal? ¡Hola! «Bien»"),
    ("xx", "C’est « bien » !"),
    ("xx", "„Ja…“ ...und (»so«)"),
    ("xx", "Leser*innen max_len info@firma.de https://a.de/x?y=1"),
    ("en", "안녕하세요, 저는 25살입니다. (웃음) ㅋㅋ"),
    ("en", "مرحبا، كيف حالك؟ لدي ٢٥ كتابًا؛"),
    ("en", "می‌خواهم ۲۵ کتاب؟ بله."),
    ("en", "नमस्ते। मेरे पास 25 किताबें हैं! क्‍या"),
    ("en", "မင်္ဂလာပါ။ နေကောင်းလား၊ မြွှေ"),
    ("en", "សួស្តី។ ២៥ ៛ ស្ត្រី"),
    ("en", "ทำงานที่กรุงเทพฯ 25 บาท ๆ ฿5"),
    ("en", "ສະບາຍດີ ຂ້ອຍຢູ່ນຳເຈົ້າ"),
    ("en", "他说：“好！”（笑）￥25，《书》——50%。"),
    ("en", "「はい」と言った。3月5日（笑）"),
    ("en", "Τι κάνεις; Καλά, 25 €."),
    ("en", "Он сказал: «Да» — 25 ₽, № 5."),
    ("en", "שלום, מה שלומך? צה״ל"),
]


@pytest.mark.parametrize(("language", "text"), UNCHANGED)
def test_words_signs_and_punctuation_stay_as_they_are(language: str, text: str) -> None:
    normalized = Normalizer(language).normalize(text)
    assert (normalized.text, normalized.ranges(SKIPPED), normalized.ranges(DROPPED)) == (text, [], [])


CHANGED = [
    ("**Fett:** und _so_ `x` ~~y~~", "Fett: und so x ~~y~~"),
    ("[Hier](https://a.de)s <b>so</b>. :)", "Hiers so."),
    ("そう──はい", "そう──はい"),
    ("# Titel\n- eins\n  - zwei\n> drei", "Titel. eins. zwei. drei"),
    ("標題\n- 一\n二", "標題。一。二"),
    ("a\tb\u00a0c\u200b\u00add", "a b cd"),
    ("... ja", "ja"),
    ("так 😀 да", "так да"),
    ("| a | b |", "a, b,"),
    ("25℃ ㈱ﬁ 三㎏ ＡＢ３！", "25°C (株)fi 三㎏ AB3！"),
    ("e" + "\u0301" * 20, "é" + "\u0301" * 2),
    ("a\u200db", "ab"),
    ("你 好 「世 界」 ！OK", "你好「世界」！OK"),
    ("ok （", "ok"),
    ("(a) (", "(a)"),
    ("ja »nein« \n»doch«", "ja »nein« »doch«"),
]


@pytest.mark.parametrize(("written", "given_to_model"), CHANGED)
def test_markup_and_what_has_no_shape_is_left_out(written: str, given_to_model: str) -> None:
    assert Normalizer("xx").normalize(written).text == given_to_model


def test_a_pictograph_is_reported() -> None:
    normalized = Normalizer("xx").normalize("так 😀 да")
    assert [normalized.source[start:end] for start, end in normalized.ranges(SKIPPED)] == ["😀"]


def test_a_respelling_keeps_the_punctuation_around_it() -> None:
    normalizer = Normalizer("xx").with_lexicons([Lexicon([("nginx", "engine x")])])
    assert normalizer.normalize("(nginx), nginx-so so-nginx!").text == "(engine x), engine x so so engine x!"


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ("ทำงาน", ["ทำ", "ทำง", "ทำงา"]),
        ("เก่งไหม", ["เก่", "เก่ง", "เก่งไห"]),
        ("ស្ត្រី ក", ["ស្ត្រី"]),
        ("안녕하 세요 ", ["안녕하", "안녕하 세요"]),
        ("er „so“ ja ", ["er", "er „so", "er „so“ ja"]),
        ("5 αβ γ", ["5", "5 αβ"]),
    ],
)
def test_an_open_text_is_read_by_words_or_graphemes(text: str, early: list[str]) -> None:
    normalization, found = Normalization(Normalizer("xx")), [""]
    for grapheme in re.findall(r"\X", text):
        list(normalization.extending(grapheme))
        if normalization.spoken().text != found[-1]:
            found.append(normalization.spoken().text)
    assert found[1:] == early


@pytest.mark.parametrize(
    ("text", "first"),
    [("我有三个苹果", "我有三个"), ("สวัสดีครับ", "สวัสดี"), ("안녕하세요 저는 여기", "안녕하세요 저는")],
)
def test_live_text_of_scripts_without_spaces_begins_after_four_graphemes(text: str, first: str) -> None:
    planner = Planner(Normalizer("xx"), live=True)
    found = [segment for at, char in enumerate(text) for segment in planner.push(char, at / 1e6)]
    assert found[0].text == first


SIGNS = "$%€₹+=§&°.,;:!?¿¡«»„“”‘’()[]{}-–—…·،؛؟۔।॥၊။។៖、。，！？「」『』（）《》'\""
SCRIPTS = st.text(
    st.sampled_from(SIGNS + "     \n")
    | st.characters(categories=("L", "N", "M"))
    | st.sampled_from("กเำ漢かカ한अ्ঙမ្កសعא")
)


def shape(text: str) -> str:
    """The letters and digits of a text, however they are composed."""
    folded = unicodedata.normalize("NFKD", text)
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LN")


@given(text=SCRIPTS, language=st.sampled_from(["xx", "ko", "ja", "zh"]))
@example(text="ำa", language="xx")
@example(text="ꙮ҈҉ \u0e33\u0e33" * 9, language="xx")
@settings(max_examples=1000, deadline=None)
def test_no_letter_or_number_of_any_script_disappears_without_a_report(text: str, language: str) -> None:
    """Each is in the text for the model, or in what is reported as skipped."""
    normalized = Normalizer(language).normalize(text)
    told = [*normalized.ranges(SKIPPED), *normalized.ranges(DROPPED)]
    said = "".join(char for at, char in enumerate(text) if not any(start <= at < end for start, end in told))
    assert shape(normalized.text) == shape(as_written(said))


@given(text=SCRIPTS)
@settings(max_examples=500, deadline=None)
def test_with_the_default_language_none_of_another_script_disappears_either(text: str) -> None:
    normalized = Normalizer("en").normalize(text)
    told = {at for start, end in [*normalized.ranges(SKIPPED), *normalized.ranges(DROPPED)] for at in range(start, end)}
    spans = {at for span in normalized.spans for at in range(span.source_start, span.source_end)}
    missing = [char for at, char in enumerate(text) if char.isalnum() and not is_mark(char) and at not in told | spans]
    assert not missing


CUTS = [
    ("ko", "안녕하세요. |저는 민수예요."),
    ("ar", "مرحبا، |كيف حالك؟ |لدي كتاب؛ |نعم."),
    ("ur", "یہ کتاب ہے۔ |وہ قلم ہے۔"),
    ("hi", "नमस्ते। |आप कैसे हैं? |ठीक है।|हाँ"),
    ("my", "မင်္ဂလာပါ။ |နေကောင်းလား၊ |ကောင်းပါတယ်။"),
    ("km", "សួស្តី។ |អ្នកសុខសប្បាយទេ? |ចាស"),
    ("th", "สวัสดีครับ |ผมชื่อสมชาย |ทำงานที่ API กรุงเทพฯ"),
    ("lo", "ສະບາຍດີ |ຂ້ອຍຢູ່ນີ້"),
    ("zh", "他说：|“好！”|（笑）好。|「是。」|走"),
    ("hy", "Բարեւ։ |Ինչպես ես"),
    ("am", "ሰላም። |እንዴት ነህ"),
    ("el", "Τι κάνεις; |Καλά, |εσύ;"),
    ("fr", "Il dit : |« C’est bien ! » |Puis il part. |Quoi ? |Oui."),
    ("fr", "Avec M. Petit et p. ex. Jean. |Fin"),
    ("de", "Am 3. Mai kam Dr. Weiß. |Z. B. Herr Groß. |»Ja.« |Er sagte: |„Nein.“ |Dann"),
    ("de", "Es kostet 5 Mio. Euro. |Tel. 030 12 ist besetzt. |Dann"),
    ("de", "Im Jahr 2024. |Dann"),
    ("es", "¿Qué tal? |¡Hola, |Sr. García! |«Bien.» |Vale"),
    ("es", "En los EE. UU., |en EE.UU. y en EE. UU. |Vale"),
    ("fr", "Page 3. |Puis"),
    ("ru", "Он живёт на ул. Мира, |д. 5. |Да"),
    ("ar", "١،٢"),
    ("xx", "Really⁉ |Yes‽ |No"),
]


@pytest.mark.parametrize(("language", "marked"), CUTS)
def test_segments_end_at_the_stops_and_commas_of_every_script(language: str, marked: str) -> None:
    text = marked.replace("|", "")
    config = SegmenterConfig(first_min_chars=1, min_chars=1, clause_chars=1)
    for step in (len(text), 1):
        segmenter = Segmenter(config, language)
        found = [each for at in range(0, len(text), step) for each in segmenter.push(text[at : at + step])]
        assert "|".join(each.text for each in [*found, *segmenter.flush()]) == marked


def test_a_long_text_without_spaces_is_cut_between_graphemes() -> None:
    text = "กำเก่" * 100
    segmenter = Segmenter(SegmenterConfig(max_chars=50), "th")
    found = [*segmenter.push(text), *segmenter.flush()]
    assert len(found) > 8
    assert all(each.text[0] in "กเ" and each.text[-1] in "ำ่" for each in found)


def test_words_of_scripts_without_spaces_are_graphemes_and_korean_ones_are_words() -> None:
    planner = Planner(Normalizer("xx"))
    words = [
        word.text
        for each in [*planner.push("ทำ5เก่ง 안녕하세요, 좋아요!", 0.0), *planner.end(0.0)]
        for word in each.words
    ]
    assert words == ["ทำ", "5", "เก่", "ง", "안녕하세요,", "좋아요!"]
