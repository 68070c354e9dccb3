"""Byte-level BPE as GPT-2 has it: trained on the corpus, written to JSON, and the encoder and decoder.

    python tokenizer.py CORPUS.txt OUT.json --vocab-size 768
"""

import argparse
import collections
import json
import re
import unicodedata

import corpus

END = "<|endoftext|>"  # begins and ends every text
_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
# GPT-2's pattern over one class letter per character: L letter, N number, S space (U+0020), W other white, X the rest.
_PIECE = re.compile(r"S?L+|S?N+|S?X+|[SW]+(?![LNX])|[SW]+")


def _byte_symbols():
    """Byte -> the printable character that stands for it in GPT-2's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {b: chr(b) for b in printable}
    for i, b in enumerate(b for b in range(256) if b not in symbols):
        symbols[b] = chr(256 + i)
    return symbols


BYTE_SYMBOL = _byte_symbols()
SYMBOL_BYTE = {s: b for b, s in BYTE_SYMBOL.items()}


def _char_class(ch):
    if ch == " ":
        return "S"
    if ch.isspace() and ch not in "\x1c\x1d\x1e\x1f":  # str.isspace counts these four separators, the pattern does not
        return "W"
    category = unicodedata.category(ch)[0]
    return category if category in "LN" else "X"


def split_words(text):
    """The pre-tokenizer 'gpt-2': 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^\\sLN]+|\\s+(?!\\S)|\\s+ ."""
    classes = "".join(map(_char_class, text))
    words, at = [], 0
    while at < len(text):
        found = _CONTRACTION.match(text, at) or _PIECE.match(classes, at)
        words.append(text[at : found.end()])
        at = found.end()
    return words


def _symbols(word):
    return tuple(BYTE_SYMBOL[b] for b in word.encode())


def _merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if symbols[i : i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def train_merges(word_counts, n_merges):
    """The most frequent neighbouring pair becomes one symbol, n_merges times; ties go to the smaller pair."""
    words = {_symbols(w): n for w, n in word_counts.items()}
    merges = []
    while len(merges) < n_merges:
        pairs = collections.Counter()
        for symbols, n in words.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        if not pairs:
            raise ValueError(f"the corpus has only {len(merges)} pairs to merge")
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        words = {_merge(symbols, best) if best[0] in symbols else symbols: n for symbols, n in words.items()}
    return merges


class Tokenizer:
    """Ids: the 256 bytes' symbols, then one per merge, then END."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = [BYTE_SYMBOL[b] for b in range(256)] + [a + b for a, b in self.merges] + [END]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.end_id = self.ids[END]
        self._rank = {m: i for i, m in enumerate(self.merges)}
        self._cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls(json.load(f)["merges"])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"merges": self.merges}, f, ensure_ascii=False, indent=0)

    def _encode_word(self, word):
        symbols = _symbols(word)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda p: self._rank.get(p, len(self._rank)))
            if best not in self._rank:
                break
            symbols = _merge(symbols, best)
        return [self.ids[s] for s in symbols]

    def encode(self, text):
        """Ids of plain text; END inside the text is text like any other."""
        ids = []
        for word in split_words(text):
            if word not in self._cache:
                self._cache[word] = self._encode_word(word)
            ids += self._cache[word]
        return ids

    def decode(self, ids):
        raw = bytes(SYMBOL_BYTE[ch] for i in ids if i != self.end_id for ch in self.tokens[i])
        return raw.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--vocab-size", type=int, default=768)
    args = parser.parse_args()
    counts = collections.Counter(w for text in corpus.read(args.corpus) for w in split_words(text))
    Tokenizer(train_merges(counts, args.vocab_size - 257)).save(args.out)


if __name__ == "__main__":
    main()
