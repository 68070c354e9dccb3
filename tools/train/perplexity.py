"""Perplexity of the exported model on held-out texts, each by itself, its end included.

    python perplexity.py MODEL.gguf TEXTS.txt --texts 500
"""

import argparse

import numpy as np

import corpus
import reference


def text_nll(model, text):
    """(sum of -log p, number of tokens)"""
    end = model.tokenizer.end_id
    ids = [end, *model.tokenizer.encode(text), end]
    scores = reference.log_softmax(reference.logits(model, ids[:-1]))
    return -scores[np.arange(len(ids) - 1), ids[1:]].sum(dtype=np.float64), len(ids) - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts_file")
    parser.add_argument("--texts", type=int, default=500)
    args = parser.parse_args()
    model = reference.load(args.model)
    parts = [text_nll(model, text) for text in corpus.read(args.texts_file)[: args.texts]]
    nll, n = map(sum, zip(*parts))
    print(f"{len(parts)} texts, {n} tokens, perplexity {np.exp(nll / n):.3f}")


if __name__ == "__main__":
    main()
