"""Small facts as questions with answers and as plain sentences."""

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "England": "London", "Japan": "Tokyo",
    "China": "Beijing", "Russia": "Moscow", "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon",
    "Poland": "Warsaw", "Austria": "Vienna", "Norway": "Oslo", "Sweden": "Stockholm", "Canada": "Ottawa",
    "Ireland": "Dublin", "Cuba": "Havana", "Peru": "Lima", "Kenya": "Nairobi", "India": "New Delhi", "Turkey": "Ankara",
}  # fmt: skip
EATS = {
    "cows": "grass", "rabbits": "carrots", "mice": "cheese", "bees": "nectar", "monkeys": "bananas", "cats": "fish",
    "dogs": "bones", "squirrels": "nuts", "horses": "hay", "bears": "honey", "birds": "seeds", "frogs": "flies",
    "pandas": "bamboo", "sheep": "grass", "owls": "mice",
}  # fmt: skip
SAYS = {
    "cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink", "lion": "roar",
    "owl": "hoot", "bee": "buzz", "mouse": "squeak", "frog": "croak", "snake": "hiss",
}  # fmt: skip
YOUNG = {
    "dog": "puppy", "cat": "kitten", "cow": "calf", "sheep": "lamb", "duck": "duckling", "hen": "chick",
    "horse": "foal", "bear": "cub", "frog": "tadpole", "goat": "kid", "pig": "piglet", "deer": "fawn",
}  # fmt: skip
LIVES = {
    "fish": "in the water", "birds": "in nests", "bees": "in a hive", "foxes": "in a den", "cows": "on a farm",
    "lions": "in Africa", "camels": "in the desert", "whales": "in the sea", "monkeys": "in the jungle",
    "penguins": "in the cold south", "spiders": "in a web", "rabbits": "in a burrow",
}  # fmt: skip
COLOR = {
    "the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "the sun": "yellow",
    "coal": "black", "a strawberry": "red", "a carrot": "orange", "milk": "white", "a frog": "green",
    "chocolate": "brown", "the sea": "blue", "a tomato": "red", "a lemon": "yellow", "the night": "black",
    "a leaf": "green",
}  # fmt: skip
OPPOSITES = [
    ("big", "small"), ("hot", "cold"), ("up", "down"), ("day", "night"), ("happy", "sad"), ("fast", "slow"),
    ("old", "young"), ("open", "closed"), ("wet", "dry"), ("light", "dark"), ("hard", "soft"), ("left", "right"),
    ("high", "low"), ("loud", "quiet"), ("full", "empty"), ("good", "bad"), ("long", "short"), ("first", "last"),
    ("black", "white"), ("near", "far"), ("early", "late"), ("clean", "dirty"), ("rich", "poor"), ("yes", "no"),
    ("sweet", "sour"), ("strong", "weak"),
]  # fmt: skip
LEGS = {
    "a dog": "four", "a bird": "two", "a spider": "eight", "an ant": "six", "a cat": "four", "a bee": "six",
    "a horse": "four", "a chicken": "two", "a cow": "four", "a snake": "no",
}  # fmt: skip
USES = {
    "cut paper": "scissors", "write": "a pencil", "eat soup": "a spoon", "open a door": "a key",
    "sweep the floor": "a broom", "dry your hands": "a towel", "see in the dark": "a lamp", "tell the time": "a clock",
    "stay dry in the rain": "an umbrella", "hit a nail": "a hammer", "paint a picture": "a brush",
    "cross a river": "a boat",
}  # fmt: skip
KINDS = {
    "an apple": "a fruit", "a carrot": "a vegetable", "a dog": "an animal", "a rose": "a flower",
    "an oak": "a tree", "a hammer": "a tool", "red": "a color", "a drum": "an instrument", "Monday": "a day",
    "May": "a month", "a pear": "a fruit", "a cat": "an animal", "a tulip": "a flower", "green": "a color",
    "a shark": "a fish",
}  # fmt: skip
NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
OTHERS = [
    ("How many days are in a week?", "There are seven days in a week."),
    ("How many months are in a year?", "There are twelve months in a year."),
    ("What do bees make?", "Bees make honey."),
    ("What do cows give us?", "Cows give us milk."),
    ("What do hens lay?", "Hens lay eggs."),
    ("What falls from the clouds?", "Rain falls from the clouds."),
    ("When does the sun rise?", "The sun rises in the morning."),
    ("When do we see the stars?", "We see the stars at night."),
    ("What is ice?", "Ice is frozen water."),
    ("What is bread made of?", "Bread is made of flour."),
    ("What is the biggest animal?", "The biggest animal is the blue whale."),
    ("Which season comes after winter?", "Spring comes after winter."),
    ("Which season is the coldest?", "Winter is the coldest season."),
    ("What do plants need?", "Plants need water, air and light."),
    ("What do we breathe?", "We breathe air."),
    ("What do we do with our eyes?", "We see with our eyes."),
    ("What do we do with our ears?", "We hear with our ears."),
    ("What shape is a ball?", "A ball is round."),
    ("Who helps sick people?", "A doctor helps sick people."),
    ("Who works in a school?", "A teacher works in a school."),
    ("Who bakes bread?", "A baker bakes bread."),
]


def _article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _capital(text):
    return text[0].upper() + text[1:]


def all_facts():
    """(question, answer) for everything that can be asked."""
    facts = list(OTHERS)
    facts += [(f"What is the capital of {c}?", f"The capital of {c} is {x}.") for c, x in CAPITALS.items()]
    facts += [(f"What do {a} eat?", f"{_capital(a)} eat {x}.") for a, x in EATS.items()]
    facts += [(f"What does {_article(a)} say?", f"{_capital(_article(a))} says {x}.") for a, x in SAYS.items()]
    facts += [(f"What is a young {a} called?", f"A young {a} is called {_article(x)}.") for a, x in YOUNG.items()]
    facts += [(f"Where do {a} live?", f"{_capital(a)} live {x}.") for a, x in LIVES.items()]
    for spelling in ("color", "colour"):
        facts += [(f"What {spelling} is {a}?", f"{_capital(a)} is {x}.") for a, x in COLOR.items()]
    for pair in OPPOSITES:
        for a, b in (pair, pair[::-1]):
            facts.append((f"What is the opposite of {a}?", f"The opposite of {a} is {b}."))
    facts += [(f"How many legs does {a} have?", f"{_capital(a)} has {x} legs.") for a, x in LEGS.items()]
    facts += [(f"What do you need to {a}?", f"You need {x} to {a}.") for a, x in USES.items()]
    facts += [(f"What is {a}?", f"{_capital(a)} is {x}.") for a, x in KINDS.items()]
    for names in (DAYS, MONTHS):
        facts += [(f"What comes after {a}?", f"{b} comes after {a}.") for a, b in zip(names, names[1:])]
    for a, b in zip(NUMBERS, NUMBERS[1:]):
        facts.append((f"What comes after {a}?", f"{_capital(b)} comes after {a}."))
        facts.append((f"What comes before {b}?", f"{_capital(a)} comes before {b}."))
    for a in range(1, 10):
        for b in range(1, 11 - a):
            n, m, s = NUMBERS[a], NUMBERS[b], NUMBERS[a + b]
            facts.append((f"What is {n} plus {m}?", f"{_capital(n)} plus {m} is {s}."))
    return facts


def quiz(rng, facts, most):
    """A few questions with answers, or the same facts told one after the other, or somebody counting."""
    form = rng.random()
    if form < 0.05:
        start = rng.randrange(1, 6)
        return "Let us count: " + ", ".join(NUMBERS[start : rng.randrange(start + 5, 21)]) + "."
    chosen = rng.sample(facts, rng.randrange(1, most + 1))
    if form < 0.6:
        return "\n".join(f"Question: {q} Answer: {a}" for q, a in chosen)
    if form < 0.7:
        return "\n".join(f"Question: {q}\nAnswer: {a}" for q, a in chosen)
    if form < 0.9:
        return " ".join(a for _, a in chosen)
    return "\n".join(f"{q} {a}" for q, a in chosen)
