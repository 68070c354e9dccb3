"""Continues a prompt with the exported model.

    python sample.py MODEL.gguf --prompt "Once upon a time" --temp 0.8 --seed 1
"""

import argparse

import numpy as np

import reference


def pick(z, temp, rng):
    if temp == 0:
        return int(z.argmax())
    p = np.exp(reference.log_softmax(z.astype(np.float64) / temp))
    return int(rng.choice(len(p), p=p / p.sum()))


def generate(model, prompt, temp, seed, limit):
    """The ids that follow the prompt, up to the end of the text or `limit` of them."""
    rng, end = np.random.default_rng(seed), model.tokenizer.end_id
    ids = [end] + model.tokenizer.encode(prompt)
    new = []
    while len(new) < limit and len(ids) + len(new) < model.config.context_length:
        token = pick(reference.logits(model, ids + new)[-1], temp, rng)
        if token == end:
            break
        new.append(token)
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=400, help="the most tokens to write")
    args = parser.parse_args()
    model = reference.load(args.model)
    print(args.prompt + model.tokenizer.decode(generate(model, args.prompt, args.temp, args.seed, args.n)))


if __name__ == "__main__":
    main()
