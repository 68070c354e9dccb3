"""Perplexity of the exported model on held-out texts, each by itself, its end included.

    python perplexity.py MODEL.gguf TEXTS.txt --texts 500
    python perplexity.py MODEL.gguf TEXT.txt --chunk 256      one plain text, by the rules of `crumb perplexity -c 256`
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


def chunks_nll(model, text, n_ctx):
    """The same of a text's whole chunks of n_ctx tokens: each begins anew, its first token replaced by that which begins
    texts, and what follows its first half is scored."""
    ids = [model.tokenizer.end_id, *model.tokenizer.encode(text)]
    nll, n = 0.0, 0
    for at in range(0, len(ids) - n_ctx + 1, n_ctx):
        chunk = [model.tokenizer.end_id, *ids[at + 1 : at + n_ctx]]
        scores = reference.log_softmax(reference.logits(model, chunk[:-1])[n_ctx // 2 :])
        goal = chunk[n_ctx // 2 + 1 :]
        nll -= scores[np.arange(len(goal)), goal].sum(dtype=np.float64)
        n += len(goal)
    return nll, n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts_file")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--chunk", type=int, help="tokens of a chunk")
    args = parser.parse_args()
    model = reference.load(args.model)
    if args.chunk:
        with open(args.texts_file, encoding="utf-8") as f:
            nll, n = chunks_nll(model, f.read(), args.chunk)
        print(f"chunks of {args.chunk}, {n} tokens, perplexity {np.exp(nll / n):.3f}")
        return
    parts = [text_nll(model, text) for text in corpus.read(args.texts_file)[: args.texts]]
    nll, n = map(sum, zip(*parts))
    print(f"{len(parts)} texts, {n} tokens, perplexity {np.exp(nll / n):.3f}")


if __name__ == "__main__":
    main()
