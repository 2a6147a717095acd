"""Spoken forms of signs, units, amounts, dates and abbreviations in the languages that `local` has rules for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Unit(NamedTuple):
    """Names of one and of several.

    `is_feminine`: numbers before it may take another form than before a masculine or neuter noun.
    """

    one: str
    many: str
    is_feminine: bool = False


class Currency(NamedTuple):
    """Names of the unit, and of its hundredth; `cents` is empty if it has none."""

    unit: Unit
    cent: str = ""
    cents: str = ""


@dataclass(frozen=True, slots=True)
class Locale:
    """One language's forms. Decimals have a comma in all of them.

    Args:
        group: stands between the thousands of a number.
        point: is said for the comma; `reads_digits`: what follows it is said digit by digit.
        one: ends a number before a masculine noun, by what num2words gives for it.
        of: between a round number of millions and its noun.
        hour: of a clock, with its one-forms; `and_minutes`: between hour and minutes.
        ordinals: by the letters that follow the digits, what replaces the end of the masculine form.
        finals: abbreviations that may end a sentence.
    """

    group: str
    point: str
    minus: str
    to: str
    cents_joint: str
    one: dict[str, str]
    of: str
    months: tuple[str, ...]
    date: str
    first: str
    hour: Unit
    hour_words: str
    and_minutes: str
    units: dict[str, Unit]
    currencies: dict[str, Currency]
    ordinals: dict[str, tuple[str, str]]
    signs: dict[str, str]
    abbreviations: dict[str, str]
    before_number: dict[str, str]
    finals: frozenset[str]
    reads_digits: bool = False


def _same(name: str) -> Unit:
    return Unit(name, name)


def _units(names: str) -> dict[str, Unit]:
    """A line each: symbol, one, many; "f" behind a feminine one."""
    units = {}
    for line in names.strip().splitlines():
        symbol, one, many, *rest = (part.strip() for part in line.split("|"))
        units[symbol] = Unit(one, many or one, rest == ["f"])
    return units


DE = Locale(
    group=".", point="Komma", minus="minus", to="bis", cents_joint="und", one={"eins": "ein"}, of="",
    months=("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November",
            "Dezember"),
    date="{day} {month} {year}", first="", hour=Unit("Uhr", "Uhr"), hour_words="Uhr", and_minutes="",
    units=_units("""
        %|Prozent|
        °C|Grad Celsius|
        °|Grad|
        km/h|Kilometer pro Stunde|
        km|Kilometer|
        m|Meter|
        cm|Zentimeter|
        mm|Millimeter|
        kg|Kilogramm|
        g|Gramm|
        mg|Milligramm|
        l|Liter|
        ml|Milliliter|
        m²|Quadratmeter|
        km²|Quadratkilometer|
        m³|Kubikmeter|
        GB|Gigabyte|
        MB|Megabyte|
        kWh|Kilowattstunde|Kilowattstunden|f
        kW|Kilowatt|
        W|Watt|
        Hz|Hertz|
        Std.|Stunde|Stunden|f
        Min.|Minute|Minuten|f
    """),
    currencies={
        "€": Currency(_same("Euro"), "Cent", "Cent"), "$": Currency(_same("Dollar"), "Cent", "Cent"),
        "£": Currency(_same("Pfund"), "Penny", "Pence"), "CHF": Currency(_same("Franken"), "Rappen", "Rappen"),
        "¥": Currency(_same("Yen")),
    },
    ordinals={},
    signs={"§": "Paragraf", "&": "und"},
    abbreviations={
        "z. B.": "zum Beispiel", "d. h.": "das heißt", "u. a.": "unter anderem", "usw.": "und so weiter",
        "bzw.": "beziehungsweise", "ca.": "circa", "Dr.": "Doktor", "Prof.": "Professor", "Hr.": "Herr",
        "vgl.": "vergleiche", "evtl.": "eventuell", "ggf.": "gegebenenfalls", "inkl.": "inklusive",
        "etc.": "et cetera", "Mio.": "Millionen", "Mrd.": "Milliarden", "Str.": "Straße", "i. d. R.": "in der Regel",
    },
    before_number={"Nr.": "Nummer", "S.": "Seite", "Abs.": "Absatz", "Art.": "Artikel", "Tel.": "Telefon"},
    finals=frozenset({"usw.", "etc.", "Str."}), reads_digits=True,
)  # fmt: skip
FR = Locale(
    group=" ", point="virgule", minus="moins", to="à", cents_joint="et", one={}, of="d'",
    months=("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre",
            "novembre", "décembre"),
    date="{day} {month} {year}", first="premier", hour=Unit("heure", "heures", True), hour_words="h(?:eures?)?",
    and_minutes="",
    units=_units("""
        %|pour cent|
        °C|degré Celsius|degrés Celsius
        °|degré|degrés
        km/h|kilomètre par heure|kilomètres par heure
        km|kilomètre|kilomètres
        m|mètre|mètres
        cm|centimètre|centimètres
        mm|millimètre|millimètres
        kg|kilogramme|kilogrammes
        g|gramme|grammes
        mg|milligramme|milligrammes
        l|litre|litres
        L|litre|litres
        ml|millilitre|millilitres
        m²|mètre carré|mètres carrés
        km²|kilomètre carré|kilomètres carrés
        m³|mètre cube|mètres cubes
        Go|gigaoctet|gigaoctets
        Mo|mégaoctet|mégaoctets
        kWh|kilowattheure|kilowattheures
        kW|kilowatt|kilowatts
        W|watt|watts
        Hz|hertz|
        min|minute|minutes|f
    """),
    currencies={
        "€": Currency(Unit("euro", "euros"), "centime", "centimes"),
        "$": Currency(Unit("dollar", "dollars"), "cent", "cents"),
        "£": Currency(Unit("livre", "livres", True), "penny", "pence"),
        "CHF": Currency(Unit("franc suisse", "francs suisses"), "centime", "centimes"),
        "¥": Currency(Unit("yen", "yens")),
    },
    ordinals={"er": ("", ""), "re": ("premier", "première"), "ère": ("premier", "première"), "e": ("", ""),
              "ème": ("", "")},
    signs={"§": "paragraphe", "&": "et"},
    abbreviations={
        "MM.": "Messieurs", "Mme": "Madame", "Mlle": "Mademoiselle", "Mmes": "Mesdames", "Dr": "Docteur",
        "p. ex.": "par exemple", "c.-à-d.": "c'est-à-dire", "etc.": "et cetera", "env.": "environ", "av.": "avenue",
        "bd": "boulevard",
    },
    before_number={"n°": "numéro", "N°": "numéro", "p.": "page", "tél.": "téléphone"},
    finals=frozenset({"etc."}),
)  # fmt: skip
ES = Locale(
    group=".", point="coma", minus="menos", to="a", cents_joint="con", one={"veintiuno": "veintiún", "uno": "un"},
    of="de ",
    months=("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre",
            "noviembre", "diciembre"),
    date="{day} de {month} de {year}", first="", hour=Unit("hora", "horas", True), hour_words="h(?:oras?)?",
    and_minutes="y ",
    units=_units("""
        %|por ciento|
        °C|grado Celsius|grados Celsius
        °|grado|grados
        km/h|kilómetro por hora|kilómetros por hora
        km|kilómetro|kilómetros
        m|metro|metros
        cm|centímetro|centímetros
        mm|milímetro|milímetros
        kg|kilogramo|kilogramos
        g|gramo|gramos
        mg|miligramo|miligramos
        l|litro|litros
        ml|mililitro|mililitros
        m²|metro cuadrado|metros cuadrados
        km²|kilómetro cuadrado|kilómetros cuadrados
        m³|metro cúbico|metros cúbicos
        GB|gigabyte|gigabytes
        MB|megabyte|megabytes
        kWh|kilovatio hora|kilovatios hora
        kW|kilovatio|kilovatios
        W|vatio|vatios
        Hz|hercio|hercios
        min|minuto|minutos
    """),
    currencies={
        "€": Currency(Unit("euro", "euros"), "céntimo", "céntimos"),
        "$": Currency(Unit("dólar", "dólares"), "centavo", "centavos"),
        "£": Currency(Unit("libra", "libras", True), "penique", "peniques"),
        "CHF": Currency(Unit("franco suizo", "francos suizos"), "céntimo", "céntimos"),
        "¥": Currency(Unit("yen", "yenes")),
    },
    ordinals={"º": ("", ""), ".º": ("", ""), "ª": ("o", "a"), ".ª": ("o", "a")},
    signs={"§": "párrafo", "&": "y"},
    abbreviations={
        "Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Dr.": "doctor", "Dra.": "doctora",
        "p. ej.": "por ejemplo", "etc.": "etcétera", "EE. UU.": "Estados Unidos", "Ud.": "usted", "Uds.": "ustedes",
        "Av.": "avenida", "Avda.": "avenida",
    },
    before_number={"núm.": "número", "n.º": "número", "nº": "número", "pág.": "página", "tel.": "teléfono"},
    finals=frozenset({"etc.", "EE. UU.", "Ud.", "Uds."}),
)  # fmt: skip
IT = Locale(
    group=".", point="virgola", minus="meno", to="a", cents_joint="e", one={"uno": "un"}, of="di ",
    months=("gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto", "settembre", "ottobre",
            "novembre", "dicembre"),
    date="{day} {month} {year}", first="primo", hour=Unit("", "", True), hour_words="h", and_minutes="e ",
    units=_units("""
        %|per cento|
        °C|grado Celsius|gradi Celsius
        °|grado|gradi
        km/h|chilometro orario|chilometri orari
        km|chilometro|chilometri
        m|metro|metri
        cm|centimetro|centimetri
        mm|millimetro|millimetri
        kg|chilogrammo|chilogrammi
        g|grammo|grammi
        mg|milligrammo|milligrammi
        l|litro|litri
        ml|millilitro|millilitri
        m²|metro quadrato|metri quadrati
        km²|chilometro quadrato|chilometri quadrati
        m³|metro cubo|metri cubi
        GB|gigabyte|
        MB|megabyte|
        kWh|chilowattora|
        kW|chilowatt|
        W|watt|
        Hz|hertz|
        min|minuto|minuti
    """),
    currencies={
        "€": Currency(_same("euro"), "centesimo", "centesimi"),
        "$": Currency(Unit("dollaro", "dollari"), "centesimo", "centesimi"),
        "£": Currency(Unit("sterlina", "sterline", True), "penny", "penny"),
        "CHF": Currency(Unit("franco svizzero", "franchi svizzeri"), "centesimo", "centesimi"),
        "¥": Currency(_same("yen")),
    },
    ordinals={"º": ("", ""), "°": ("", ""), "ª": ("o", "a")},
    signs={"§": "paragrafo", "&": "e"},
    abbreviations={
        "Sig.": "signor", "Sig.ra": "signora", "Dott.": "dottor", "Dott.ssa": "dottoressa", "Prof.": "professor",
        "ecc.": "eccetera", "p. es.": "per esempio", "Ing.": "ingegner", "Avv.": "avvocato",
    },
    before_number={"n.": "numero", "pag.": "pagina", "tel.": "telefono"},
    finals=frozenset({"ecc."}),
)  # fmt: skip
PT = Locale(
    group=".", point="vírgula", minus="menos", to="a", cents_joint="e", one={}, of="de ",
    months=("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho", "agosto", "setembro", "outubro",
            "novembro", "dezembro"),
    date="{day} de {month} de {year}", first="primeiro", hour=Unit("hora", "horas", True), hour_words="h(?:oras?)?",
    and_minutes="e ",
    units=_units("""
        %|por cento|
        °C|grau Celsius|graus Celsius
        °|grau|graus
        km/h|quilômetro por hora|quilômetros por hora
        km|quilômetro|quilômetros
        m|metro|metros
        cm|centímetro|centímetros
        mm|milímetro|milímetros
        kg|quilograma|quilogramas
        g|grama|gramas
        mg|miligrama|miligramas
        l|litro|litros
        ml|mililitro|mililitros
        m²|metro quadrado|metros quadrados
        km²|quilômetro quadrado|quilômetros quadrados
        m³|metro cúbico|metros cúbicos
        GB|gigabyte|gigabytes
        MB|megabyte|megabytes
        kWh|quilowatt-hora|quilowatts-hora
        kW|quilowatt|quilowatts
        W|watt|watts
        Hz|hertz|
        min|minuto|minutos
    """),
    currencies={
        "R$": Currency(Unit("real", "reais"), "centavo", "centavos"),
        "€": Currency(Unit("euro", "euros"), "cêntimo", "cêntimos"),
        "$": Currency(Unit("dólar", "dólares"), "centavo", "centavos"),
        "£": Currency(Unit("libra", "libras", True), "centavo", "centavos"),
        "CHF": Currency(Unit("franco suíço", "francos suíços"), "cêntimo", "cêntimos"),
        "¥": Currency(Unit("iene", "ienes")),
    },
    ordinals={"º": ("", ""), ".º": ("", ""), "ª": ("o", "a"), ".ª": ("o", "a")},
    signs={"§": "parágrafo", "&": "e"},
    abbreviations={
        "Sr.": "senhor", "Sra.": "senhora", "Dr.": "doutor", "Dra.": "doutora", "Prof.": "professor",
        "p. ex.": "por exemplo", "etc.": "et cetera", "Av.": "avenida",
    },
    before_number={"n.º": "número", "nº": "número", "pág.": "página", "tel.": "telefone"},
    finals=frozenset({"etc."}),
)  # fmt: skip
NL = Locale(
    group=".", point="komma", minus="min", to="tot", cents_joint="en", one={}, of="",
    months=("januari", "februari", "maart", "april", "mei", "juni", "juli", "augustus", "september", "oktober",
            "november", "december"),
    date="{day} {month} {year}", first="", hour=_same("uur"), hour_words="u(?:ur)?", and_minutes="",
    units=_units("""
        %|procent|
        °C|graad Celsius|graden Celsius
        °|graad|graden
        km/h|kilometer per uur|
        km/u|kilometer per uur|
        km|kilometer|
        m|meter|
        cm|centimeter|
        mm|millimeter|
        kg|kilogram|
        g|gram|
        mg|milligram|
        l|liter|
        ml|milliliter|
        m²|vierkante meter|
        km²|vierkante kilometer|
        m³|kubieke meter|
        GB|gigabyte|
        MB|megabyte|
        kWh|kilowattuur|
        kW|kilowatt|
        W|watt|
        Hz|hertz|
        min|minuut|minuten
    """),
    currencies={
        "€": Currency(_same("euro"), "cent", "cent"), "$": Currency(_same("dollar"), "cent", "cent"),
        "£": Currency(_same("pond"), "penny", "pence"), "CHF": Currency(_same("frank"), "rappen", "rappen"),
        "¥": Currency(_same("yen")),
    },
    ordinals={"e": ("", ""), "ste": ("", ""), "de": ("", "")},
    signs={"§": "paragraaf", "&": "en"},
    abbreviations={
        "dhr.": "de heer", "mevr.": "mevrouw", "bijv.": "bijvoorbeeld", "bv.": "bijvoorbeeld",
        "d.w.z.": "dat wil zeggen", "enz.": "enzovoort", "ca.": "circa", "o.a.": "onder andere", "prof.": "professor",
        "m.a.w.": "met andere woorden", "t.o.v.": "ten opzichte van", "i.p.v.": "in plaats van",
    },
    before_number={"nr.": "nummer", "blz.": "bladzijde", "tel.": "telefoon"},
    finals=frozenset({"enz."}),
)  # fmt: skip
LOCALES = {"de": DE, "es": ES, "fr": FR, "it": IT, "nl": NL, "pt": PT}
