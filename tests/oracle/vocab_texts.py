"""Texts that tokenizers stumble over, and a corpus to train small ones on. All generated here, from fixed seeds."""

import random
import unicodedata

SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\n \n", " \n", "\v", "\f", "\x85", "\xa0", "\u1680",
          "\u2003", "\u2009\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff"]
CONTRACTIONS = ["'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'Ve", "'m", "'M", "'ll", "'LL", "'lL",
                "'d", "'D", "\u2019s", "''s", "' s", "'", "'sa", "'tx", "'re-", "'l", "'v"]
WORDS = ["Hello", "world", "the", "and", "station", "\u0130stanbul", "I\u0307", "na\u00efve", "Stra\u00dfe", "GRO\u1e9eE",
         "\ufb01ne", "HTTPServer", "snake_case", "x86", "B2B", "e\u0301te\u0301", "a\u0323\u0302", "\u017ftrong"]
NUMBERS = ["0", "7", "42", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000", "\u0663\u0664\u0665", "\u0967\u0968",
           "\u2163", "\u00bd", "\u00b2\u00b3", "\u2460", "\uff11\uff12\uff13\uff14", "\U0001d7d8\U0001d7d9", "1\u00bd2", "0x1F"]
SCRIPTS = ["\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf\u30ab\u30ca\u30fc",
           "\uc548\ub155\ud558\uc138\uc694", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
           "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
           "\u202eRTL\u202c", "\u0627\u064e\u0644\u0652", "\U00010330\U00010331", "\U0001d49c\U0001d4b7", "\U00020000\U0002a6d6"]
EMOJI = ["\U0001f600", "\U0001f469\u200d\U0001f4bb", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
         "\U0001f44d\U0001f3fd", "1\ufe0f\u20e3", "\U0001f999", "\u263a"]
MARKS = ["!", "?!", "...", "--", "\u2014", "\u201cquote\u201d", "(a)", "[b]", "{c}", "#", "$5", "+1", "<=", "==>", "^_^", "~", "|", "`x`",
         "\\n", "@home", "a/b", "&amp;", "%", "*", "\u00a9", "\u20ac9", "\u00a1", "\u3001", "=", "$", "_", "-", "/", "://"]
CONTROLS = ["\x01", "\x1b[31m", "\x7f", "\x1c\x1d", "\x80", "\x9f", "\u00ad", "\ue000", "\uf8ff", "\U000f0000", "\U0010fffd",
            "\ufffd", "\uffff", "\ufdd0", "\u200c", "\u200d", "\u2060", "\u0300", "\u20dd", "\u2581"]
KINDS = [SPACES, SPACES, CONTRACTIONS, WORDS, WORDS, NUMBERS, SCRIPTS, EMOJI, MARKS, CONTROLS]


def stable_characters():
    """Characters that have had the same kind since Unicode 3.2, so that libraries of any age agree on them."""
    old = unicodedata.ucd_3_2_0
    return [c for c in map(chr, range(1, 0x110000))
            if old.category(c) == unicodedata.category(c) and old.category(c) not in ("Cn", "Cs", "Co")]


def texts(n, special, seed=7):
    """n different texts; about one in ten contains a string of `special`."""
    rng = random.Random(seed)
    stable = stable_characters()
    found = ["", " ", "  ", "a", "\n", "'", "'s", "\u180e", "\u2581", " \u2581 "]
    seen = set(found)
    while len(found) < n:
        parts = []
        for _ in range(rng.choice((1, 2, 3, 3, 4, 5, 7, 10))):
            kind = rng.random()
            if kind < 0.15:
                parts.append("".join(rng.choices(stable, k=rng.randint(1, 3))))
            elif kind < 0.18 and special:
                parts.append(rng.choice(special))
            else:
                parts.append(rng.choice(rng.choice(KINDS)))
            if rng.random() < 0.4:
                parts.append(" ")
        text = "".join(parts)
        if text not in seen:
            seen.add(text)
            found.append(text)
    return found


def corpus(n_lines=4000, seed=11):
    """Lines to train on: made-up words of a few frequent syllables, and the atoms above, so that merges exist for them."""
    rng = random.Random(seed)
    syllables = [a + b for a in ("b", "br", "d", "f", "k", "l", "m", "n", "s", "st", "t", "th", "w", "") for b in
                 ("a", "e", "i", "o", "ing", "er", "an", "ed", "u", "is")]
    vocabulary = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(120)]
    frequent = [v for i, v in enumerate(vocabulary) for _ in range(1 + 200 // (i + 1))]
    lines = []
    for _ in range(n_lines):
        words = rng.choices(frequent, k=rng.randint(4, 12))
        for _ in range(rng.randint(0, 3)):
            words.insert(rng.randrange(len(words)), rng.choice(rng.choice(KINDS[2:])))
        line = words[0].capitalize() + "".join(rng.choice((" ", " ", " ", " ", ", ", "  ")) + w for w in words[1:])
        lines.append(line + rng.choice((".", "!", "?", ".\n", "\r\n")))
    return lines
