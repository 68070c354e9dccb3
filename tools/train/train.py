"""Trains the model.

    python train.py --corpus CORPUS.txt --tokenizer TOKENIZER.json --checkpoint OUT.npz --quant ternary --steps 4000
    python train.py --selftest

An existing checkpoint is resumed. What a step sees depends on the seed and the step alone.
"""

import argparse
import os
import time

import numpy as np

import corpus
from model import Config, Model, init_params
from optimizer import Optimizer
from quantizers import QUANTIZERS, SEQ_CLIP, seq_backward, seq_codes
from tokenizer import Tokenizer

WARMUP_STEPS = 100
LONG_SHARE = 0.15  # share of the steps, at the end, with pieces of twice the length
CHECKPOINT_SECONDS = 120


def stream(texts, tokenizer):
    """All texts as one row of ids: END text END text END ... ."""
    ids = [tokenizer.end_id]
    for text in texts:
        ids += tokenizer.encode(text)
        ids.append(tokenizer.end_id)
    return np.array(ids, np.int32)


def batch_at(ids, args, step):
    """Inputs and targets of one step: pieces of the stream from random places, longer ones towards the end."""
    longer = 2 if step >= (1 - LONG_SHARE) * args.steps else 1
    seq, batch = args.seq * longer, args.batch // longer
    starts = np.random.default_rng([args.seed, step]).integers(0, len(ids) - seq, batch)
    pieces = np.stack([ids[s : s + seq + 1] for s in starts])
    return np.ascontiguousarray(pieces[:, :-1]), np.ascontiguousarray(pieces[:, 1:])


def lr_factor(step, args):
    """Warm up, hold, then fall in a straight line to zero."""
    return min((step + 1) / WARMUP_STEPS, 1.0, (args.steps - step) / (args.cooldown * args.steps))


def save(path, step, params, optimizer):
    parts = {"params": params, "first": optimizer.first, "second": optimizer.second}
    flat = {f"{part}/{name}": w for part, arrays in parts.items() for name, w in arrays.items()}
    np.savez(path + ".part.npz", step=step, **flat)
    os.replace(path + ".part.npz", path)


def load_params(path, params):
    with np.load(path) as stored:
        for name, w in params.items():
            w[...] = stored[f"params/{name}"]


def load(path, params, optimizer):
    """Fills params and optimizer in place; the number of steps done."""
    with np.load(path) as stored:
        for part, arrays in (("params", params), ("first", optimizer.first), ("second", optimizer.second)):
            for name, w in arrays.items():
                w[...] = stored[f"{part}/{name}"]
        return int(stored["step"])


def train(args):
    tokenizer = Tokenizer.load(args.tokenizer)
    config = Config(vocab_size=len(tokenizer.tokens))
    ids = stream(corpus.read(args.corpus), tokenizer)
    print(f"{len(ids)} tokens, {args.steps * args.batch * args.seq / len(ids):.2f} epochs", flush=True)
    params = init_params(config, np.random.default_rng(args.seed), args.quant)
    model, optimizer = Model(config, params, args.quant), Optimizer(params, args.muon_lr, args.adam_lr)
    start = 0
    if os.path.exists(args.checkpoint):
        start = load(args.checkpoint, params, optimizer)
    elif args.begin_with:
        load_params(args.begin_with, params)
    mean, began, saved = None, time.time(), time.time()
    for step in range(start, args.steps):
        loss, grads = model.loss_and_grads(*batch_at(ids, args, step))
        optimizer.step(grads, step + 1, lr_factor(step, args))
        mean = loss if mean is None else 0.95 * mean + 0.05 * loss
        if (step + 1) % 50 == 0:
            pace = (time.time() - began) / (step + 1 - start)
            print(f"step {step + 1}/{args.steps} loss {mean:.4f} {pace * 1e3:.0f} ms/step", flush=True)
        if time.time() - saved > CHECKPOINT_SECONDS:
            save(args.checkpoint, step + 1, params, optimizer)
            saved = time.time()
    save(args.checkpoint, args.steps, params, optimizer)


def slope(loss, w, direction, step=1e-5):
    """The central difference of loss() as w moves along a direction; w stays as it was."""
    kept, losses = w.copy(), []
    for sign in (1, -1):
        w[...] = kept + sign * step * direction
        losses.append(loss())
    w[...] = kept
    return (losses[0] - losses[1]) / (2 * step)


def relative_error(measured, expected):
    return abs(measured - expected) / (abs(expected) + 1e-3)


def selftest_model():
    """Compares every gradient with a central difference along a random direction, in double precision."""
    config = Config(vocab_size=32, hidden_size=16, num_hidden_layers=2, intermediate_size=24, context_length=16)
    rng = np.random.default_rng(0)
    params = init_params(config, rng, "none", np.float64)
    model = Model(config, params, "none")
    tokens, targets = rng.integers(0, 32, (3, 12), np.int32), rng.integers(-1, 32, (3, 12), np.int32)
    _, grads = model.loss_and_grads(tokens, targets)
    worst = 0.0
    for name, w in params.items():
        direction = rng.normal(0, 1, w.shape)
        measured = slope(lambda: model.loss_and_grads(tokens, targets)[0], w, direction)
        worst = max(worst, relative_error(measured, float((direction * grads[name]).sum())))
    print(f"gradients: {len(params)} tensors, largest relative error {worst:.1e}")
    if worst > 1e-5:
        raise SystemExit("train.py --selftest: the gradients do not match finite differences")


def selftest_seq():
    """The stretched quantizer's gradients are those of scale * (clipped w / scale + what rounding adds), the last held
    still."""
    rng = np.random.default_rng(1)
    w, scale, weight = rng.normal(0, 1, (8, 32)), rng.uniform(1, 2, 8), rng.normal(0, 1, (8, 32))

    def clipped():
        return np.clip(w / scale[:, None], -SEQ_CLIP, SEQ_CLIP)

    added = seq_codes(w, scale) / 4 - clipped()
    d_w, d_scale = seq_backward(w, scale, weight)
    for part, d in ((w, d_w), (scale, d_scale)):
        direction = rng.normal(0, 1, part.shape)
        measured = slope(lambda: float((weight * scale[:, None] * (clipped() + added)).sum()), part, direction, 1e-7)
        if relative_error(measured, float((direction * d).sum())) > 1e-5:
            raise SystemExit("train.py --selftest: the stretched quantizer's gradients do not match finite differences")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("--corpus")
    parser.add_argument("--tokenizer")
    parser.add_argument("--checkpoint")
    parser.add_argument("--quant", choices=QUANTIZERS, default="ternary")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=Config.context_length // 2)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--cooldown", type=float, default=0.45, help="share of the steps with a falling learning rate")
    parser.add_argument("--begin-with", help="checkpoint of an earlier round whose weights are the first ones")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.selftest:
        selftest_model()
        selftest_seq()
    elif args.corpus and args.tokenizer and args.checkpoint:
        train(args)
    else:
        parser.error("--corpus, --tokenizer and --checkpoint are needed (or --selftest)")


if __name__ == "__main__":
    main()
