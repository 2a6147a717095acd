"""What the rules of six languages beside English read, beyond the lines of `languages.jsonl`."""

from __future__ import annotations

import pytest

from realtime_tts.text import language_data
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.rules.local import local_rules

READ = [
    ("de", "1 €, 101 kg, 1 kWh, 0,99 €, 5,00 €",
     "ein Euro, einhundertein Kilogramm, 1 Kilowattstunde, neunundneunzig Cent, fünf Euro"),
    ("de", "der 3.5.24, 4.5. war", "der dritte Mai vierundzwanzig, 4.5. war"),
    ("de", "um 1:00 Uhr, 0:30", "um ein Uhr, null Uhr dreißig"),
    ("de", "Einst (-5) und 10-5", "Einst (minus 5) und 10-5"),
    ("de", "192.168.100.200 und 1.2.3", "192.168.100.200 und 1.2.3"),
    ("de", "12,50 CHF, 3 ¥, 5 USD, EUR 7", "zwölf Franken und fünfzig Rappen, drei Yen, fünf Dollar, sieben Euro"),
    ("de", "5–10 € und 3-4 %", "fünf bis zehn Euro und drei bis vier Prozent"),
    ("de", "Müller usw.", "Müller und so weiter."),
    ("de", "1 Mio. € und 5 Std.", "1 Million Euro und 5 Stunden."),
    ("de", "3,14159", "drei Komma eins vier eins fünf neun"),
    ("fr", "3,05 et 1,5", "trois virgule zéro cinq et un virgule cinq"),
    ("fr", "£5, 12 min, 1 m, 2 000 000 €, 1 000 000 $",
     "5 livres, 12 minutes, un mètre, deux millions d'euros, un million de dollars"),
    ("fr", "Il dit M. et 2er", "Il dit M. et 2er"),
    ("fr", "à 1h05, 21h30", "à une heure cinq, vingt et une heures trente"),
    ("es", "a las 21:00, la 1:00, 12:22", "a las veintiuna horas, la una hora, doce y veintidós"),
    ("es", "21 km, 31 €, 1 °C, ana & ivo", "veintiún kilómetros, treinta y un euros, un grado Celsius, ana e ivo"),
    ("es", "Viven en EE. UU. Pero no.", "Viven en Estados Unidos. Pero no."),
    ("it", "il 1° maggio a 45° e 1 °C", "il primo maggio a quarantacinque gradi e un grado Celsius"),
    ("it", "le 1:10, 21 €, il 01/05/2024", "le una e dieci, ventuno euro, il primo maggio duemilaventiquattro"),
    ("pt", "às 2:00 e 22:00, 1 €", "às duas horas e vinte e duas horas, um euro"),
    ("nl", "€ 1.234,56 om 15:30 uur op 03-05-2024",
     "duizendtweehonderdvierendertig euro en zesenvijftig cent om vijftien uur dertig op drie mei "
     "tweeduizendvierentwintig"),
    ("nl", "dhr. Jansen, bijv. nr. 5, 1e, 2de, 20ste, 80 km/u",
     "de heer Jansen, bijvoorbeeld nummer 5, eerste, tweede, twintigste, tachtig kilometer per uur"),
    ("nl", "€ 1 miljoen, € 2,5 mln. En $ 5-6 miljard, 1 miljoen EUR, € 1.000",
     "één miljoen euro, twee komma vijf miljoen euro. En vijf tot zes miljard dollar, één miljoen euro, duizend euro"),
    ("de", "€ 1 Million, $ 2 Mrd., 1 Mio. €, € 1,5 Mio.",
     "1 Million Euro, 2 Milliarden Dollar, 1 Million Euro, eins Komma fünf Millionen Euro."),
    ("fr", "$ 1 million, 2 millions €, 3 M€, $1,5 million",
     "un million de dollars, deux millions d'euros, trois millions d'euros, un virgule cinq million de dollars"),
    ("es", "$ 1 millón, 1 millón €, US$ 3 mil millones, $ 5 mil",
     "un millón de dólares, un millón de euros, tres mil millones de dólares, cinco mil dólares"),
    ("it", "€ 1 milione, 2,5 mln €, $ 3 miliardi",
     "un milione di euro, due virgola cinque milioni di euro, tre miliardi di dollari"),
    ("pt", "R$ 1 milhão, R$ 2,5 bi, R$ 5 mil, R$ 1 mil, 2 milhões €",
     "um milhão de reais, dois vírgula cinco bilhões de reais, cinco mil reais, mil reais, dois milhões de euros"),
    ("ru", "25 ₽ и 3,5 %", "25 ₽ и 3,5 %"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "written", "spoken"), READ)
def test_a_model_that_reads_digits_gets_words_where_a_rule_is_sure(language: str, written: str, spoken: str) -> None:
    assert Normalizer(language).normalize(written).text == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("de", "1.200 Stühle, 5 kWh, 25 €", "eintausendzweihundert Stuhle, funf Kilowattstunden, funfundzwanzig Euro"),
        ("fr", "2 500 pages, 50 %", "deux mille cinq cents pages, cinquante pour cent"),
        (
            "de",
            "1 Mio. €, 1 Mrd. Euro, 1 Million Euro, 1–2 Mio. €, 21 Mrd. €",
            "eine Million Euro, eine Milliarde Euro, eine Million Euro, eins bis zwei Millionen Euro, "
            "einundzwanzig Milliarden Euro",
        ),
        (
            "de",
            "1 kWh, 101 kWh, 1 kg, 5 Mio.",
            "eine Kilowattstunde, einhundertein Kilowattstunden, ein Kilogramm, funf Millionen.",
        ),
        ("fr", "1 million d'euros, £1, £21", "un million d'euros, une livre, vingt et une livres"),
        (
            "es",
            "1 millón de euros, 21 millones, £1, £21, 1 kg",
            "un millon de euros, veintiun millones, una libra, veintiuna libras, un kilogramo",
        ),
        (
            "it",
            "1 milione di euro, 1 miliardo, 21 milioni, £1, 21 km",
            "un milione di euro, un miliardo, ventuno milioni, una sterlina, ventuno chilometri",
        ),
        ("pt", "1 milhão de euros, £1, £21", "um milhao de euros, uma libra, vinte e uma libras"),
        (
            "pt",
            "£2, £222, £2000, £2000002, £2 mil, 222 €",
            "duas libras, duzentas e vinte e duas libras, duas mil libras, dois milhoes e duas libras, duas mil "
            "libras, duzentos e vinte e dois euros",
        ),
        (
            "es",
            "£200, £521, £21000, £200 mil, £200000000, 21000 €, 200 km",
            "doscientas libras, quinientas veintiuna libras, veintiuna mil libras, doscientas mil libras, "
            "doscientos millones de libras, veintiun mil euros, doscientos kilometros",
        ),
        ("fr", "£200, £81, £1 million", "deux cents livres, quatre-vingt-une livres, un million de livres"),
        ("nl", "£2, € 1 miljoen, £ 1 mln", "twee pond, een miljoen euro, een miljoen pond"),
        ("it", "£200, £1 milione", "duecento sterline, un milione di sterline"),
        ("de", "£1, £ 1 Million, 1 Mio £", "ein Pfund, eine Million Pfund, eine Million Pfund"),
    ],
)
def test_a_model_without_digits_gets_words_for_all(language: str, written: str, spoken: str) -> None:
    letters = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
    assert Normalizer(language, letters).normalize(written).text == spoken


def test_a_language_may_have_a_part_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {
        "point": "celá",
        "minus": "minus",
        "to": "až",
        "cents_joint": "a",
        "hour": "hodina|hodin",
        "hour_words": "h",
    }
    known = language_data._data
    monkeypatch.setattr(
        language_data, "_data", lambda language: {"forms": forms} if language == "cs" else known(language)
    )
    local_rules.cache_clear()
    try:
        read = Normalizer("cs").normalize("Ahoj, světe! 3,5 a -4. 1.2.2024, 5 € & § 6, £7, 2º, např. 8 km").text
    finally:
        local_rules.cache_clear()
    assert read.startswith("Ahoj, světe! tři celá pět a minus 4. ")
