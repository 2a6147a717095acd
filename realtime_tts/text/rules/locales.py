"""Spoken forms of units, currencies, months, abbreviations and signs by language.

A table is a string of entries ``name, name=spoken; …``. A noun is ``singular|plural``, or one form in which ``+``
stands for the s of the plural; ``(f)`` marks a feminine noun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Noun(NamedTuple):
    """Singular and plural of a noun.

    `is_feminine`: numbers before it may take another form than before a masculine or neuter noun.
    """

    one: str
    many: str
    is_feminine: bool = False

    def after(self, number: str) -> str:
        """Return the form that follows a number, which is written in digits."""
        return self.one if number == "1" else self.many


class Currency(NamedTuple):
    """Names of the unit, and of its hundredth, if it has one."""

    unit: Noun
    cent: Noun | None


def word_table(text: str) -> dict[str, str]:
    """Return the spoken form of each name in the table."""
    entries = (entry.partition("=") for entry in text.split(";"))
    return {name.strip(): spoken.strip() for names, _, spoken in entries for name in names.split(",")}


def noun(written: str) -> Noun:
    forms = written.removesuffix("(f)").strip()
    one, _, many = forms.partition("|")
    return Noun(one.replace("+", ""), many or one.replace("+", "s"), written.endswith("(f)"))


def _nouns(text: str) -> dict[str, Noun]:
    return {name: noun(spoken) for name, spoken in word_table(text).items()}


def _currencies(text: str) -> dict[str, Currency]:
    parts = ((name, spoken.partition(" / ")) for name, spoken in word_table(text).items())
    return {name: Currency(noun(unit), noun(cent) if cent else None) for name, (unit, _, cent) in parts}


UNITS = {
    "de": _nouns("""
        %=Prozent; °C=Grad Celsius; °=Grad; km/h=Kilometer pro Stunde; km=Kilometer; m=Meter; cm=Zentimeter;
        mm=Millimeter; kg=Kilogramm; g=Gramm; mg=Milligramm; l=Liter; ml=Milliliter; m²=Quadratmeter;
        km²=Quadratkilometer; m³=Kubikmeter; GB=Gigabyte; MB=Megabyte; kWh=Kilowattstunde|Kilowattstunden (f);
        kW=Kilowatt; W=Watt; Hz=Hertz; Std.=Stunde|Stunden (f); Min.=Minute|Minuten (f)"""),
    "en": _nouns("""
        km=kilometer+; cm=centimeter+; mm=millimeter+; µm, μm=micrometer+; nm=nanometer+; m=meter+; mi=mile+;
        ft=foot|feet; yd=yard+; kg=kilogram+; mg=milligram+; µg, μg=microgram+; g=gram+; lb, lbs=pound+; oz=ounce+;
        l, L=liter+; ml, mL=milliliter+; cl=centiliter+; dl=deciliter+; KB, kB=kilobyte+; MB=megabyte+; GB=gigabyte+;
        TB=terabyte+; PB=petabyte+; KiB=kibibyte+; MiB=mebibyte+; GiB=gibibyte+; Mb=megabit+; Gb=gigabit+; kb=kilobit+;
        kbps=kilobit+ per second; Mbps=megabit+ per second; Gbps=gigabit+ per second; mph=mile+ per hour;
        kph=kilometer+ per hour; Hz=hertz; kHz=kilohertz; MHz=megahertz; GHz=gigahertz; V=volt+; kV=kilovolt+;
        mV=millivolt+; mA=milliamp+; mAh=milliamp hour+; W=watt+; kW=kilowatt+; MW=megawatt+; GW=gigawatt+;
        kWh=kilowatt hour+; MWh=megawatt hour+; J=joule+; kJ=kilojoule+; kcal=kilocalorie+; cal=calorie+; Pa=pascal+;
        kPa=kilopascal+; hPa=hectopascal+; psi=P S I; dB=decibel+; px=pixel+; dpi=dots per inch; fps=frame+ per second;
        rpm=R P M; bpm=beat+ per minute; ms=millisecond+; µs, μs=microsecond+; ns=nanosecond+; s, sec, secs=second+;
        min, mins=minute+; h, hr, hrs=hour+; ha=hectare+; °C=degree+ Celsius; °F=degree+ Fahrenheit; °=degree+; K=K;
        %=percent; ‰=per mille; tsp=teaspoon+; tbsp=tablespoon+; sqft, sq ft=square foot|square feet"""),
    "es": _nouns("""
        %=por ciento; °C=grado+ Celsius; °=grado+; km/h=kilómetro+ por hora; km=kilómetro+; m=metro+; cm=centímetro+;
        mm=milímetro+; kg=kilogramo+; g=gramo+; mg=miligramo+; l=litro+; ml=mililitro+; m²=metro+ cuadrado+;
        km²=kilómetro+ cuadrado+; m³=metro+ cúbico+; GB=gigabyte+; MB=megabyte+; kWh=kilovatio+ hora; kW=kilovatio+;
        W=vatio+; Hz=hercio+; min=minuto+"""),
    "fr": _nouns("""
        %=pour cent; °C=degré+ Celsius; °=degré+; km/h=kilomètre+ par heure; km=kilomètre+; m=mètre+; cm=centimètre+;
        mm=millimètre+; kg=kilogramme+; g=gramme+; mg=milligramme+; l, L=litre+; ml=millilitre+; m²=mètre+ carré+;
        km²=kilomètre+ carré+; m³=mètre+ cube+; Go=gigaoctet+; Mo=mégaoctet+; kWh=kilowattheure+; kW=kilowatt+;
        W=watt+; Hz=hertz; min=minute+ (f)"""),
    "it": _nouns("""
        %=per cento; °C=grado Celsius|gradi Celsius; °=grado|gradi; km/h=chilometro orario|chilometri orari;
        km=chilometro|chilometri; m=metro|metri; cm=centimetro|centimetri; mm=millimetro|millimetri;
        kg=chilogrammo|chilogrammi; g=grammo|grammi; mg=milligrammo|milligrammi; l=litro|litri;
        ml=millilitro|millilitri; m²=metro quadrato|metri quadrati; km²=chilometro quadrato|chilometri quadrati;
        m³=metro cubo|metri cubi; GB=gigabyte; MB=megabyte; kWh=chilowattora; kW=chilowatt; W=watt; Hz=hertz;
        min=minuto|minuti"""),
    "nl": _nouns("""
        %=procent; °C=graad Celsius|graden Celsius; °=graad|graden; km/h, km/u=kilometer per uur; km=kilometer; m=meter;
        cm=centimeter; mm=millimeter; kg=kilogram; g=gram; mg=milligram; l=liter; ml=milliliter; m²=vierkante meter;
        km²=vierkante kilometer; m³=kubieke meter; GB=gigabyte; MB=megabyte; kWh=kilowattuur; kW=kilowatt; W=watt;
        Hz=hertz; min=minuut|minuten"""),
    "pt": _nouns("""
        %=por cento; °C=grau+ Celsius; °=grau+; km/h=quilômetro+ por hora; km=quilômetro+; m=metro+; cm=centímetro+;
        mm=milímetro+; kg=quilograma+; g=grama+; mg=miligrama+; l=litro+; ml=mililitro+; m²=metro+ quadrado+;
        km²=quilômetro+ quadrado+; m³=metro+ cúbico+; GB=gigabyte+; MB=megabyte+; kWh=quilowatt+-hora; kW=quilowatt+;
        W=watt+; Hz=hertz; min=minuto+"""),
}  # fmt: skip

CURRENCIES = {
    "de": _currencies("""€, EUR=Euro / Cent; $, USD, US$=Dollar / Cent; £, GBP=Pfund / Penny|Pence;
        CHF=Franken / Rappen; ¥, JPY=Yen"""),
    "en": _currencies("""$, USD, US$=dollar+ / cent+; €, EUR=euro+ / cent+; £, GBP=pound+ / penny|pence; ¥, JPY=yen;
        ₹, INR=rupee+ / paisa|paise; ₩=won; ₽=ruble+ / kopeck+; CHF=Swiss franc+ / cent+; CNY, RMB=yuan;
        CAD, C$, CA$=Canadian dollar+ / cent+; AUD, A$, AU$=Australian dollar+ / cent+"""),
    "es": _currencies("""€, EUR=euro+ / céntimo+; $, USD, US$=dólar|dólares / centavo+; £, GBP=libra+ (f) / penique+;
        CHF=franco+ suizo+ / céntimo+; ¥, JPY=yen|yenes"""),
    "fr": _currencies("""€, EUR=euro+ / centime+; $, USD, US$=dollar+ / cent+; £, GBP=livre+ (f) / penny|pence;
        CHF=franc+ suisse+ / centime+; ¥, JPY=yen+"""),
    "it": _currencies("""€, EUR=euro / centesimo|centesimi; $, USD, US$=dollaro|dollari / centesimo|centesimi;
        £, GBP=sterlina|sterline (f) / penny; CHF=franco svizzero|franchi svizzeri / centesimo|centesimi;
        ¥, JPY=yen"""),
    "nl": _currencies("""€, EUR=euro / cent; $, USD, US$=dollar / cent; £, GBP=pond / penny|pence;
        CHF=frank / rappen; ¥, JPY=yen"""),
    "pt": _currencies("""R$=real|reais / centavo+; €, EUR=euro+ / cêntimo+; $, USD, US$=dólar|dólares / centavo+;
        £, GBP=libra+ (f) / centavo+; CHF=franco+ suíço+ / cêntimo+; ¥, JPY=iene+"""),
}  # fmt: skip

MONTHS = {language: tuple(names.split()) for language, names in {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "en": "January February March April May June July August September October November December",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
}.items()}  # fmt: skip

ABBREVIATIONS = {
    "de": word_table("""z. B.=zum Beispiel; d. h.=das heißt; u. a.=unter anderem; usw.=und so weiter;
        bzw.=beziehungsweise; ca.=circa; Dr.=Doktor; Prof.=Professor; Hr.=Herr; vgl.=vergleiche; evtl.=eventuell;
        ggf.=gegebenenfalls; inkl.=inklusive; etc.=et cetera; Mio.=Millionen; Mrd.=Milliarden; Str.=Straße;
        i. d. R.=in der Regel"""),
    "es": word_table("""Sr.=señor; Sra.=señora; Srta.=señorita; Dr.=doctor; Dra.=doctora; p. ej.=por ejemplo;
        etc.=etcétera; EE. UU.=Estados Unidos; Ud.=usted; Uds.=ustedes; Av., Avda.=avenida"""),
    "fr": word_table("""MM.=Messieurs; Mme=Madame; Mlle=Mademoiselle; Mmes=Mesdames; Dr=Docteur; p. ex.=par exemple;
        c.-à-d.=c'est-à-dire; etc.=et cetera; env.=environ; av.=avenue; bd=boulevard"""),
    "it": word_table("""Sig.=signor; Sig.ra=signora; Dott.=dottor; Dott.ssa=dottoressa; Prof.=professor; ecc.=eccetera;
        p. es.=per esempio; Ing.=ingegner; Avv.=avvocato"""),
    "nl": word_table("""dhr.=de heer; mevr.=mevrouw; bijv., bv.=bijvoorbeeld; d.w.z.=dat wil zeggen; enz.=enzovoort;
        ca.=circa; o.a.=onder andere; prof.=professor; m.a.w.=met andere woorden; t.o.v.=ten opzichte van;
        i.p.v.=in plaats van"""),
    "pt": word_table("""Sr.=senhor; Sra.=senhora; Dr.=doutor; Dra.=doutora; Prof.=professor; p. ex.=por exemplo;
        etc.=et cetera; Av.=avenida"""),
}  # fmt: skip
ABBREVIATIONS_BEFORE_NUMBERS = {language: word_table(table) for language, table in {
    "de": "Nr.=Nummer; S.=Seite; Abs.=Absatz; Art.=Artikel; Tel.=Telefon",
    "es": "núm., n.º, nº=número; pág.=página; tel.=teléfono",
    "fr": "n°, N°=numéro; p.=page; tél.=téléphone",
    "it": "n.=numero; pag.=pagina; tel.=telefono",
    "nl": "nr.=nummer; blz.=bladzijde; tel.=telefoon",
    "pt": "n.º, nº=número; pág.=página; tel.=telefone",
}.items()}  # fmt: skip
FINAL_ABBREVIATIONS = frozenset(
    {"usw.", "etc.", "Str.", "EE.UU.", "Ud.", "Uds.", "ecc.", "enz."}
)  # may end a sentence; without spaces


@dataclass(frozen=True, slots=True)
class Locale:
    """Other words and forms of one language. Decimals have a comma in all of these languages.

    Attributes:
        point: word for the comma.
        to: word between the ends of a range.
        cents_joint: word between the whole units of an amount and its cents.
        hour: noun after the number of a clock's hour.
        hour_words: pattern of the written hour after a time.
        group: separator of the thousands of a number.
        of: word between a round number of millions and its noun.
        month_joint: word before a month and before a year.
        first: word for the first day of a month, if it is not the cardinal.
        and_minutes: word between hour and minutes.
        one: form of a number's last word before a masculine noun, by what num2words gives for it.
        ordinals: by the letters that follow the digits, old and new ending of num2words' masculine form.
        signs: words for signs.
        reads_digits: decimals are said digit by digit.
    """

    point: str
    minus: str
    to: str
    cents_joint: str
    hour: Noun
    hour_words: str
    signs: dict[str, str]
    group: str = "."
    of: str = ""
    month_joint: str = ""
    first: str = ""
    and_minutes: str = ""
    one: dict[str, str] = field(default_factory=dict)
    ordinals: dict[str, str] = field(default_factory=dict)
    reads_digits: bool = False


LOCALES = {
    "de": Locale(
        point="Komma", minus="minus", to="bis", cents_joint="und", hour=noun("Uhr"), hour_words="Uhr",
        signs={"§": "Paragraf", "&": "und"}, one={"eins": "ein"}, reads_digits=True,
    ),
    "es": Locale(
        point="coma", minus="menos", to="a", cents_joint="con", hour=noun("hora+ (f)"), hour_words="h(?:oras?)?",
        signs={"§": "párrafo", "&": "y"}, of="de ", month_joint="de ", and_minutes="y ",
        one={"veintiuno": "veintiún", "uno": "un"}, ordinals=word_table("º, .º=; ª, .ª=o|a"),
    ),
    "fr": Locale(
        point="virgule", minus="moins", to="à", cents_joint="et", hour=noun("heure+ (f)"), hour_words="h(?:eures?)?",
        signs={"§": "paragraphe", "&": "et"}, group=" ", of="d'", first="premier",
        ordinals=word_table("er, e, ème=; re, ère=premier|première"),
    ),
    "it": Locale(
        point="virgola", minus="meno", to="a", cents_joint="e", hour=noun("(f)"), hour_words="h",
        signs={"§": "paragrafo", "&": "e"}, of="di ", first="primo", and_minutes="e ", one={"uno": "un"},
        ordinals=word_table("º, °=; ª=o|a"),
    ),
    "nl": Locale(
        point="komma", minus="min", to="tot", cents_joint="en", hour=noun("uur"), hour_words="u(?:ur)?",
        signs={"§": "paragraaf", "&": "en"}, ordinals=word_table("e, ste, de="),
    ),
    "pt": Locale(
        point="vírgula", minus="menos", to="a", cents_joint="e", hour=noun("hora+ (f)"), hour_words="h(?:oras?)?",
        signs={"§": "parágrafo", "&": "e"}, of="de ", month_joint="de ", first="primeiro", and_minutes="e ",
        ordinals=word_table("º, .º=; ª, .ª=o|a"),
    ),
}  # fmt: skip
