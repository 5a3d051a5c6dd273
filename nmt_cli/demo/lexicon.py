"""The words of the quickstart corpus, each English entry with its one German translation."""

from dataclasses import dataclass
from typing import NamedTuple

Forms = tuple[str, str, str]
"""What a verb looks like after "I", after "she" and after "they"; "we" goes with "they" throughout."""


class Pair(NamedTuple):
    """A stretch of English and the German that says the same."""

    en: str
    de: str


class Noun(NamedTuple):
    """A noun in both languages; the gender is m, f or n."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str

    def with_ending(self, adjective: str, determiner: str) -> str:
        """The singular after "der", "den" (accusative), "ein" or "einen" (accusative), with its article."""
        article, ending = ARTICLES[determiner][self.gender]
        return f"{article} {adjective}{ending} {self.de}"

    def pronoun(self, case: str) -> str:
        """What stands for the noun in the nominative ("er", "sie", "es") or accusative ("ihn", ...)."""
        return PRONOUNS[case][self.gender]


ARTICLES = {
    "der": {"m": ("der", "e"), "f": ("die", "e"), "n": ("das", "e")},
    "den": {"m": ("den", "en"), "f": ("die", "e"), "n": ("das", "e")},
    "einen": {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")},
}
PRONOUNS = {
    "nominative": {"m": "er", "f": "sie", "n": "es"},
    "accusative": {"m": "ihn", "f": "sie", "n": "es"},
    "relative": {"m": "den", "f": "die", "n": "das"},
}
DEFINITE = {"m": "der", "f": "die", "n": "das"}


class Verb(NamedTuple):
    """What people do with things; the German perfect is formed with "haben"."""

    en: str
    en_past: str
    de: str
    de_participle: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Who acts, in the nominative; `form` chooses among `Forms`."""

    en: str
    de: str
    form: int

    def agree(self, forms: Forms) -> str:
        return forms[self.form]


class Kin(NamedTuple):
    """A relative, who takes a possessive ("my brother") and is declined in German."""

    en: str
    feminine: bool
    de: str
    de_genitive: str


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in table.strip().splitlines()]


def _pairs(table: str) -> list[Pair]:
    return [Pair(en, de) for en, de in _rows(table)]


PRONOUN_SUBJECTS = [
    Subject("I", "ich", 0),
    Subject("he", "er", 1),
    Subject("she", "sie", 1),
    Subject("we", "wir", 2),
    Subject("they", "sie", 2),
]
NAMES = ["Anna", "Peter", "Maria", "Paul", "Julia", "Martin", "Clara", "Felix"]
GROUP_SUBJECTS = [
    Subject("my parents", "meine Eltern", 2),
    Subject("the children", "die Kinder", 2),
    Subject("the neighbours", "die Nachbarn", 2),
    Subject("the students", "die Studenten", 2),
]
POSSESSIVES = [Pair("my", "mein"), Pair("our", "unser"), Pair("his", "sein"), Pair("her", "ihr")]
KIN = [
    Kin("brother", False, "Bruder", "Bruders"),
    Kin("father", False, "Vater", "Vaters"),
    Kin("uncle", False, "Onkel", "Onkels"),
    Kin("son", False, "Sohn", "Sohnes"),
    Kin("grandfather", False, "Großvater", "Großvaters"),
    Kin("sister", True, "Schwester", "Schwester"),
    Kin("mother", True, "Mutter", "Mutter"),
    Kin("aunt", True, "Tante", "Tante"),
    Kin("daughter", True, "Tochter", "Tochter"),
    Kin("grandmother", True, "Großmutter", "Großmutter"),
]

WAS: Forms = ("was", "was", "were")
HAS: Forms = ("have", "has", "have")
HABEN: Forms = ("habe", "hat", "haben")
WURDE: Forms = ("wurde", "wurde", "wurden")
WERDEN: Forms = ("werde", "wird", "werden")

MODALS: list[tuple[Forms, Forms]] = [
    (("want to", "wants to", "want to"), ("will", "will", "wollen")),
    (("must", "must", "must"), ("muss", "muss", "müssen")),
    (("can", "can", "can"), ("kann", "kann", "können")),
    (("should", "should", "should"), ("sollte", "sollte", "sollten")),
]
SAYING: list[tuple[Forms, Forms]] = [
    (("say", "says", "say"), ("sage", "sagt", "sagen")),
    (("think", "thinks", "think"), ("denke", "denkt", "denken")),
    (("know", "knows", "know"), ("weiß", "weiß", "wissen")),
    (("believe", "believes", "believe"), ("glaube", "glaubt", "glauben")),
]

THINGS = [
    Noun(*row)
    for row in _rows("""
    book           | books           | n | Buch           | Bücher
    chair          | chairs          | m | Stuhl          | Stühle
    lamp           | lamps           | f | Lampe          | Lampen
    umbrella       | umbrellas       | m | Regenschirm    | Regenschirme
    suitcase       | suitcases       | m | Koffer         | Koffer
    bag            | bags            | f | Tasche         | Taschen
    picture        | pictures        | n | Bild           | Bilder
    bicycle        | bicycles        | n | Fahrrad        | Fahrräder
    carpet         | carpets         | m | Teppich        | Teppiche
    shirt          | shirts          | n | Hemd           | Hemden
    blanket        | blankets        | f | Decke          | Decken
    kitchen table  | kitchen tables  | m | Küchentisch    | Küchentische
    kitchen knife  | kitchen knives  | n | Küchenmesser   | Küchenmesser
    garden chair   | garden chairs   | m | Gartenstuhl    | Gartenstühle
    garden table   | garden tables   | m | Gartentisch    | Gartentische
    desk lamp      | desk lamps      | f | Schreibtischlampe | Schreibtischlampen
    wine bottle    | wine bottles    | f | Weinflasche    | Weinflaschen
    wine glass     | wine glasses    | n | Weinglas       | Weingläser
    beer glass     | beer glasses    | n | Bierglas       | Biergläser
    coffee cup     | coffee cups     | f | Kaffeetasse    | Kaffeetassen
    picture book   | picture books   | n | Bilderbuch     | Bilderbücher
    children's book | children's books | n | Kinderbuch   | Kinderbücher
    winter coat    | winter coats    | m | Wintermantel   | Wintermäntel
    summer dress   | summer dresses  | n | Sommerkleid    | Sommerkleider
    travel bag     | travel bags     | f | Reisetasche    | Reisetaschen
    wool blanket   | wool blankets   | f | Wolldecke      | Wolldecken
    """)
]
ADJECTIVES = _pairs("""
    new       | neu
    old       | alt
    small     | klein
    big       | groß
    beautiful | schön
    red       | rot
    blue      | blau
    green     | grün
    white     | weiß
    black     | schwarz
    yellow    | gelb
    brown     | braun
    """)
VERBS = [
    Verb(*row)
    for row in _rows("""
    buy     | bought    | kaufen     | gekauft
    sell    | sold      | verkaufen  | verkauft
    order   | ordered   | bestellen  | bestellt
    pick up | picked up | abholen    | abgeholt
    repair  | repaired  | reparieren | repariert
    pack    | packed    | einpacken  | eingepackt
    borrow  | borrowed  | ausleihen  | ausgeliehen
    give back | gave back | zurückgeben | zurückgegeben
    """)
]
WEEKDAYS = _pairs("""
    Monday    | Montag
    Tuesday   | Dienstag
    Wednesday | Mittwoch
    Thursday  | Donnerstag
    Friday    | Freitag
    Saturday  | Samstag
    Sunday    | Sonntag
    """)
DAY_PARTS = _pairs("""
    morning   | morgen
    afternoon | nachmittag
    evening   | abend
    """)
MONTHS = _pairs("""
    January   | Januar
    February  | Februar
    March     | März
    April     | April
    May       | Mai
    June      | Juni
    July      | Juli
    August    | August
    September | September
    October   | Oktober
    November  | November
    December  | Dezember
    """)
PAST_DAYS = _pairs("""
    yesterday                | gestern
    yesterday evening        | gestern Abend
    the day before yesterday | vorgestern
    last week                | letzte Woche
    """)
FUTURE_DAYS = _pairs("""
    tomorrow               | morgen
    tomorrow evening       | morgen Abend
    the day after tomorrow | übermorgen
    next week              | nächste Woche
    """)
SPANS = _pairs("""
    days   | Tagen
    weeks  | Wochen
    months | Monaten
    years  | Jahren
    """)
CITIES = _pairs("""
    Berlin  | Berlin
    Hamburg | Hamburg
    Munich  | München
    Cologne | Köln
    Vienna  | Wien
    Zurich  | Zürich
    Leipzig | Leipzig
    Bremen  | Bremen
    Hanover | Hannover
    Prague  | Prag
    Warsaw  | Warschau
    Rome    | Rom
    Paris   | Paris
    London  | London
    """)


class Vehicle(NamedTuple):
    """What leaves and arrives; German splits the verb in a main clause and joins it at the end of others."""

    en: str
    gender: str
    de: str
    leaves: str


VEHICLES = [
    Vehicle("train", "m", "Zug", "fährt"),
    Vehicle("night train", "m", "Nachtzug", "fährt"),
    Vehicle("bus", "m", "Bus", "fährt"),
    Vehicle("express train", "m", "Schnellzug", "fährt"),
    Vehicle("plane", "n", "Flugzeug", "fliegt"),
]
EVENTS = [
    Noun(en, f"{en}s", gender, de, de)
    for en, gender, de in _rows("""
    concert         | n | Konzert
    birthday party  | f | Geburtstagsfeier
    Christmas party | f | Weihnachtsfeier
    meeting         | f | Besprechung
    wedding         | f | Hochzeit
    football match  | n | Fußballspiel
    German course   | m | Deutschkurs
    summer festival | n | Sommerfest
    book fair       | f | Buchmesse
    """)
]
PLACES = _pairs("""
    in the town hall        | im Rathaus
    in the garden           | im Garten
    in the concert hall     | in der Konzerthalle
    at the station          | am Bahnhof
    in the swimming pool    | im Schwimmbad
    on the market square    | auf dem Marktplatz
    in the city park        | im Stadtpark
    at the university       | an der Universität
    in front of the church  | vor der Kirche
    """)
OPEN_PLACES = _pairs("""
    the museum        | das Museum
    the library       | die Bibliothek
    the bakery        | die Bäckerei
    the pharmacy      | die Apotheke
    the supermarket   | der Supermarkt
    the town hall     | das Rathaus
    the swimming pool | das Schwimmbad
    the bookshop      | die Buchhandlung
    the shoe shop     | das Schuhgeschäft
    the toy shop      | das Spielzeuggeschäft
    """)
STORES = _pairs("""
    in the library   | in der Bibliothek
    in the cellar    | im Keller
    in the warehouse | im Lagerhaus
    in the museum    | im Museum
    in the town hall | im Rathaus
    in the garage    | in der Garage
    """)
PEOPLE = _pairs("""
    friends    | Freunde
    colleagues | Kollegen
    neighbours | Nachbarn
    guests     | Gäste
    """)
NUMBERED = _pairs("""
    house number     | die Hausnummer
    room number      | die Zimmernummer
    telephone number | die Telefonnummer
    customer number  | die Kundennummer
    """)
ERRANDS = _pairs("""
    get up early         | früh aufstehen
    go home              | nach Hause gehen
    go to bed early      | früh ins Bett gehen
    call a taxi          | ein Taxi rufen
    pack the suitcase    | den Koffer packen
    buy the train tickets | die Fahrkarten kaufen
    """)
ARRIVALS: list[tuple[str, Forms]] = [
    ("came home", ("nach Hause kam", "nach Hause kam", "nach Hause kamen")),
    ("went to bed", ("ins Bett ging", "ins Bett ging", "ins Bett gingen")),
    ("got up", ("aufstand", "aufstand", "aufstanden")),
    ("left the house", ("das Haus verließ", "das Haus verließ", "das Haus verließen")),
    ("found the house key", ("den Hausschlüssel fand", "den Hausschlüssel fand", "den Hausschlüssel fanden")),
]
