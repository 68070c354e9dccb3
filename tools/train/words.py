"""The words that stories are filled with."""

GIRLS = "Anna Lily Mia Sara Emma Lucy Ella Nora Ruby Zoe Rosa Ivy Clara Molly Daisy Amy Kate Maya Tina Jane".split()
BOYS = "Tom Ben Max Sam Leo Jack Tim Finn Noah Oscar Peter Luke Hugo Adam Paul Theo Dan Jim Eli Owen".split()

SHE_ANIMALS = "Coco Bella Hazel Poppy Willow Penny Dot Fluffy Pearl Honey Nibbles Tilly".split()
HE_ANIMALS = "Pip Rusty Bobo Spot Chip Button Pepper Biscuit Bruno Sunny Hop Gus".split()

# kind -> where it lives
ANIMALS = {
    "rabbit": ["under an old tree", "in a green meadow", "at the edge of the forest"],
    "fox": ["in the forest", "in a den under the roots", "on the side of a hill"],
    "bear": ["in a warm cave", "in the deep forest", "near the mountains"],
    "mouse": ["in a tiny hole", "under the kitchen floor", "in a hollow log"],
    "duck": ["by the pond", "near the river", "on a quiet lake"],
    "frog": ["by the pond", "on a lily pad", "near the river"],
    "cat": ["on a farm", "in a cozy house", "in a small town"],
    "dog": ["on a farm", "in a small town", "in a house on the hill"],
    "squirrel": ["in a tall oak tree", "in the forest", "in the old park"],
    "hedgehog": ["under a pile of leaves", "in the garden", "in the forest"],
    "owl": ["in a hollow tree", "in the deep forest", "in the old barn"],
    "turtle": ["by the lake", "near the river", "on a sandy beach"],
    "pig": ["on a farm", "in a red barn", "at the end of the village"],
    "lamb": ["on a farm", "in a green meadow", "on the side of a hill"],
    "goat": ["near the mountains", "on a farm", "on a high hill"],
    "bird": ["in a tall oak tree", "in a nest near the river", "in the garden"],
    "penguin": ["on a snowy island", "near the cold sea"],
    "monkey": ["in the jungle", "in a tall palm tree"],
    "elephant": ["in the jungle", "near a wide river"],
    "otter": ["by the river", "near the cold sea"],
}
CHILD_HOMES = [
    "in a small house", "in a little town", "near the sea", "in a quiet village", "on a farm", "in a big city",
    "in a house with a red door", "next to the school", "at the end of a long street", "near the forest",
]
TRAITS = "little kind happy curious brave shy clever funny young cheerful gentle quiet".split()

# how a grown-up is called, and whether it is a woman
CHILD_ELDERS = [("Mom", True), ("Dad", False), ("Grandma", True), ("Grandpa", False), ("Aunt Rose", True),
                ("Uncle Joe", False), ("Mrs. Green", True), ("Mr. Brown", False)]
ANIMAL_ELDERS = [("Mom", True), ("Dad", False), ("Grandma", True), ("Mr. Owl", False), ("Mrs. Goose", True),
                 ("old Mr. Toad", False), ("Mrs. Badger", True)]

COLORS = "red blue green yellow purple pink orange white brown silver golden".split()
QUALITIES = "shiny soft new old pretty special tiny big little wooden lovely".split()
TOYS = ["ball", "kite", "doll", "teddy bear", "toy car", "toy train", "drum", "book", "toy boat", "robot", "balloon",
        "blanket", "whistle", "wagon", "flute", "hat", "scarf", "bell", "puzzle", "basket", "backpack", "umbrella"]
GIFTS = ["card", "cake", "necklace", "picture", "scarf", "hat", "basket", "toy boat", "bracelet", "pie", "kite"]
FRAGILE = ["cup", "vase", "plate", "lamp", "window", "clock", "bowl", "flower pot", "mirror", "jar"]
TREASURES = ["key", "box", "map", "bottle", "coin", "shell", "stone", "letter", "feather", "ring"]

# place -> with its preposition
PLACES = {
    "park": "in the park", "garden": "in the garden", "beach": "on the beach", "forest": "in the forest",
    "river": "by the river", "lake": "by the lake", "hill": "on the hill", "farm": "on the farm",
    "playground": "at the playground", "meadow": "in the meadow", "market": "at the market", "pond": "by the pond",
    "old bridge": "near the old bridge", "village": "in the village", "orchard": "in the orchard",
}
HIDDEN = [
    "under a bench", "behind a big tree", "in the tall grass", "under a bush", "behind a rock", "inside a hollow log",
    "on a high branch", "in the mud", "under a pile of leaves", "next to the gate", "behind the fence",
    "between two stones", "in a small hole", "under an old bucket",
]
FOODS = ["apples", "bread", "soup", "cookies", "pancakes", "berries", "cheese", "carrots", "nuts", "cake", "honey",
         "pears", "rice", "grapes", "muffins", "plums"]
BAKED = ["cake", "pie", "bread", "muffins", "cookies", "pancakes"]
INGREDIENTS = ["flour", "sugar", "milk", "butter", "honey", "salt", "eggs", "apples"]
PLANTS = ["sunflower", "carrot", "tomato", "pumpkin", "apple tree", "rose", "bean", "strawberry", "tulip", "pear tree"]
GAMES = ["tag", "hide and seek", "ball", "catch", "pirates", "jumping games", "a guessing game", "chase"]
HOBBIES = ["play", "sing", "draw", "dance", "run", "climb", "read", "paint", "explore", "swim", "tell stories",
           "collect leaves", "look at the stars", "jump in puddles", "pick flowers", "watch the clouds"]

# to do it, doing it, where it goes wrong
SKILLS = [
    ("ride a bike", "riding a bike", "fell into the grass"),
    ("swim", "swimming", "got water in {h.his} nose"),
    ("skate", "skating", "slipped on the ice"),
    ("climb the big tree", "climbing the big tree", "slid back down"),
    ("fly a kite", "flying a kite", "let the string go"),
    ("whistle", "whistling", "made no sound at all"),
    ("jump rope", "jumping rope", "got caught in the rope"),
    ("catch a ball", "catching a ball", "dropped it"),
    ("play the drum", "playing the drum", "lost the beat"),
    ("dance", "dancing", "stepped on {h.his} own toes"),
    ("draw a horse", "drawing a horse", "drew something like a potato"),
    ("build a tall tower", "building a tall tower", "saw it all fall down"),
    ("sing a song", "singing a song", "forgot the words"),
    ("paddle a boat", "paddling a boat", "went around in circles"),
    ("count to twenty", "counting to twenty", "forgot the number nine"),
]

# what is feared, what the sound or shape turns out to be
FEARS = [
    ("the dark", "a strange shape by the door", "only a coat on a hook"),
    ("the dark", "a soft scratching sound", "only a branch at the window"),
    ("storms", "a loud bang outside", "only the wind playing with the gate"),
    ("ghosts", "something white in the garden", "only a sheet on the line"),
    ("monsters", "two green eyes under the bed", "only a small green-eyed kitten"),
    ("the old barn", "a low sound inside", "only a sleepy cow"),
    ("the forest", "something moving in the bushes", "only a baby deer"),
    ("the cellar", "a tapping sound in the corner", "only water dripping into a bucket"),
]

SMALL_ANIMALS = ["kitten", "puppy", "bird", "bunny", "duckling", "squirrel", "mouse", "lamb", "fawn", "hedgehog"]
# what is wrong with an animal in need, what helps, and which animals it can happen to
TROUBLES = [
    ("was stuck in the mud", "pulled it out with a long stick", SMALL_ANIMALS),
    ("was caught in a bush", "moved the thorns away, one by one", SMALL_ANIMALS),
    ("had hurt its leg", "wrapped a soft cloth around its leg", SMALL_ANIMALS),
    ("was cold and wet", "put a warm scarf around it", SMALL_ANIMALS),
    ("was hungry", "gave it some {food}", SMALL_ANIMALS),
    ("was trapped under a branch", "lifted the heavy branch", SMALL_ANIMALS),
    ("had fallen out of its nest", "made it a bed of soft grass", ["bird", "squirrel"]),
    ("had lost its mother", "went to look for the mother with it", ["duckling", "lamb", "fawn", "kitten", "puppy"]),
]
