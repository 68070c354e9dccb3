"""Writes the corpus: one text a line, '\\n' inside a text written as a literal backslash n.

    python corpus.py OUT.txt --texts 1000 --seed 1
"""

import argparse
import random

import facts
import grammar


def texts(n, seed, quiz_share, quiz_facts):
    rng = random.Random(seed)
    known = facts.all_facts()
    for _ in range(n):
        yield facts.quiz(rng, known, quiz_facts) if rng.random() < quiz_share else grammar.story(rng)


def read(path):
    with open(path, encoding="utf-8") as f:
        return [line.rstrip("\n").replace("\\n", "\n") for line in f]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--texts", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--quiz-share", type=float, default=0.18, help="how many of the texts are no stories")
    parser.add_argument("--quiz-facts", type=int, default=5, help="the most facts in such a text")
    args = parser.parse_args()
    with open(args.out, "w", encoding="utf-8") as f:
        for text in texts(args.texts, args.seed, args.quiz_share, args.quiz_facts):
            f.write(text.replace("\n", "\\n") + "\n")


if __name__ == "__main__":
    main()
