"""Tells one story: chooses who and what it is about, then expands a skeleton of stories.py."""

import re

import words
from stories import STORIES

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeio]|umbrella)")


class Text(str):
    """A phrase that can also stand at the beginning of a sentence."""

    @property
    def Cap(self):
        return self[0].upper() + self[1:]


class Who(Text):
    """Somebody: the name, with pronouns that agree."""

    def __new__(cls, name, female, kind="", home=""):
        who = super().__new__(cls, name)
        who.he, who.him, who.his = ("she", "her", "her") if female else ("he", "him", "his")
        who.He, who.His = who.he.capitalize(), who.his.capitalize()
        who.kind, who.home = kind, home
        who.the = who if kind in ("", "girl", "boy") else f"{name} the {kind}"
        return who


class Thing(Text):
    def __new__(cls, adjective, noun):
        thing = super().__new__(cls, noun)
        thing.adj, thing.full = adjective, f"{adjective} {noun}"
        return thing


class Place(Text):
    def __new__(cls, noun):
        place = super().__new__(cls, noun)
        place.at = words.PLACES[noun]
        return place


def expand(text, rng, state):
    """Takes one choice of every [a|b], innermost first, then fills the slots."""
    while "[" in text:
        text = _CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), text)
    return text.format(**state)


def _two_children(rng):
    people = []
    for _ in range(2):
        female = rng.random() < 0.5
        names = [n for n in (words.GIRLS if female else words.BOYS) if n not in people]
        people.append(Who(rng.choice(names), female, "girl" if female else "boy", rng.choice(words.CHILD_HOMES)))
    return people


def _two_animals(rng):
    people = []
    for kind in rng.sample(list(words.ANIMALS), 2):
        female = rng.random() < 0.5
        names = [n for n in (words.SHE_ANIMALS if female else words.HE_ANIMALS) if n not in people]
        people.append(Who(rng.choice(names), female, kind, rng.choice(words.ANIMALS[kind])))
    return people


def _state(rng):
    """What every slot of this story stands for."""
    pick = rng.choice
    animals = rng.random() < 0.35
    h, f = _two_animals(rng) if animals else _two_children(rng)
    g, n = (Who(*elder) for elder in rng.sample(words.ANIMAL_ELDERS if animals else words.CHILD_ELDERS, 2))
    hobby, hobby2 = rng.sample(words.HOBBIES, 2)
    ingredient, ingredient2 = rng.sample(words.INGREDIENTS, 2)
    place, place2 = rng.sample(list(words.PLACES), 2)
    skill, skilling, oops = pick(words.SKILLS)
    fear, shape, truth = pick(words.FEARS)
    trouble, rescue, needy = pick(words.TROUBLES)
    state = {
        "h": h, "f": f, "g": g, "n": n, "trait": pick(words.TRAITS), "hobby": hobby, "hobby2": hobby2,
        "t": Thing(pick(words.COLORS + words.QUALITIES), pick(words.TOYS)), "p": Place(place), "p2": place2,
        "hidden": Text(pick(words.HIDDEN)), "food": pick(words.FOODS), "game": pick(words.GAMES),
        "color": pick(words.COLORS), "gift": pick(words.GIFTS), "fragile": pick(words.FRAGILE),
        "treasure": pick(words.TREASURES), "plant": pick(words.PLANTS), "baked": pick(words.BAKED),
        "ingredient": ingredient, "ingredient2": ingredient2, "skill": skill, "skilling": skilling,
        "fear": fear, "shape": shape, "truth": truth, "trouble": trouble, "pet": pick(needy),
        "petname": pick([x for x in words.SHE_ANIMALS + words.HE_ANIMALS if x not in (h, f)]),
    }  # fmt: skip
    state["oops"], state["rescue"] = oops.format(**state), rescue.format(**state)
    return state


def _section(alternatives, rng, state):
    if alternatives[0] is None:
        if rng.random() < 0.5:
            return ""
        alternatives = alternatives[1:]
    return expand(rng.choice(alternatives), rng, state)


def story(rng, name=None):
    """One story of the named skeleton, or of any."""
    state = _state(rng)
    paragraphs = []
    for sections in STORIES[name or rng.choice(list(STORIES))]:
        told = [_section(s, rng, state) for s in sections]
        paragraphs.append(" ".join(s for s in told if s))
    return _ARTICLE.sub(r"\1n ", re.sub(r" +(?=[ ,?\n]|$)", "", "\n".join(paragraphs)))
