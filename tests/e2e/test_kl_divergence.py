#!/usr/bin/env python3
"""crumb perplexity --kl-divergence: the baseline's form, and statistics worked out here from two baselines."""
import json
import math
import os
import shutil
import struct
import tempfile
import unittest

from command import MODEL, SOURCE, CommandTest

N_CTX = 64
# As the model that is part of crumb might tell it.
STORY = ("Once upon a time, there was a little {0} named {1}. {1} liked to play in the {2}. One day, {1} saw a big {3} and "
         "was very happy. The {3} said, \"Hello, do you want to play with me?\" They played all day and had a lot of fun.")
NAMES = (("girl", "Lily", "park", "dog"), ("boy", "Tim", "garden", "cat"), ("bird", "Sue", "tree", "fish"))
FLOAT = ("--device", "cpu", "--activation", "float")


def read_base(path):
    """-> (n_ctx, n_vocab, n_chunks, rows of logarithms of probabilities), as the form is described in kld.h."""
    with open(path, "rb") as f:
        data = f.read()
    magic, n_ctx, n_vocab, n_chunks = struct.unpack_from("<8sIii", data)
    assert magic == b"_logits_"
    at = 20 + 4 * n_chunks * n_ctx
    tokens = struct.unpack_from(f"<{n_chunks * n_ctx}i", data, 20)
    rows = []
    for _ in range(n_chunks * (n_ctx - 1 - n_ctx // 2)):
        scale, lowest = struct.unpack_from("<ff", data, at)
        values = struct.unpack_from(f"<{n_vocab}H", data, at + 8)
        rows.append([scale * v + lowest for v in values])
        at += 8 + 2 * (n_vocab + n_vocab % 2)
    assert at == len(data)
    return n_ctx, n_vocab, n_chunks, tokens, rows


class Divergence(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.base, cls.other = (os.path.join(cls.folder, name) for name in ("base.kld", "other.kld"))
        cls.small = os.path.join(cls.folder, "small.gguf")
        cls.text = os.path.join(cls.folder, "story.txt")
        with open(cls.text, "w", encoding="ascii") as f:
            f.write(" ".join(STORY.format(*names) for names in NAMES))
        case = cls()
        case.succeeds("quantize", MODEL, cls.small, "Q4_0", "--pure")
        for model, base in ((MODEL, cls.base), (cls.small, cls.other)):
            case.perplexity(model, "-f", cls.text, "-c", N_CTX, "--chunks", 3, "--kl-divergence-base", base)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def perplexity(self, model, *arguments):
        return self.succeeds("perplexity", model, *FLOAT, *arguments)

    def compare(self, model, *arguments):
        return self.perplexity(model, "--kl-divergence", "--kl-divergence-base", self.base, *arguments)

    def test_statistics(self):
        n_ctx, _, n_chunks, tokens, base = read_base(self.base)
        _, _, _, other_tokens, rows = read_base(self.other)
        self.assertEqual((n_ctx, n_chunks, tokens), (N_CTX, 3, other_tokens))
        n = n_ctx - 1 - n_ctx // 2
        scored = [tokens[c * n_ctx + n_ctx // 2 + 1 + i] for c in range(n_chunks) for i in range(n)]
        for row in base:
            self.assertAlmostEqual(sum(map(math.exp, row)), 1, delta=1e-3)
        divergences = [sum(math.exp(b) * (b - q) for b, q in zip(x, y) if b > -16) for x, y in zip(base, rows)]
        moved = [math.exp(y[t]) - math.exp(x[t]) for x, y, t in zip(base, rows, scored)]
        same = sum(x.index(max(x)) == y.index(max(y)) for x, y in zip(base, rows))
        said = json.loads(self.compare(self.small, "--json").stdout)
        self.assertEqual(said["n_scored"], len(scored))
        self.assertAlmostEqual(said["kl_divergence"], sum(divergences) / len(scored), delta=2e-3)
        self.assertGreater(said["kl_divergence"], 0.01)
        self.assertAlmostEqual(said["same_top"], same / len(scored), delta=2.5 / len(scored))
        self.assertAlmostEqual(said["p_difference_rms"], math.sqrt(sum(p * p for p in moved) / len(moved)), delta=1e-3)
        mean = sum(-row[t] for row, t in zip(base, scored)) / len(scored)
        self.assertAlmostEqual(said["perplexity_base"] / math.exp(mean), 1, delta=1e-4)
        plain = json.loads(self.perplexity(self.small, "-f", self.text, "-c", N_CTX, "--chunks", 3, "--json").stdout)
        self.assertAlmostEqual(said["perplexity"] / plain["perplexity"], 1, delta=1e-4)

    def test_a_model_does_not_differ_from_itself(self):
        said = json.loads(self.compare(MODEL, "--json").stdout)
        self.assertLess(abs(said["kl_divergence"]), 1e-4)
        self.assertGreater(said["same_top"], 0.98)  # equal values in 65535 steps may change places

    def test_lines(self):
        said = self.compare(self.small).stdout
        for line in ("chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence",
                     "====== Perplexity statistics ======", "Mean PPL(Q)-PPL(base)         : ", "Mean    KLD: ",
                     "99.9%   KLD: ", "Median  KLD: ", "Maximum \u0394p: ", "25.0%   \u0394p: ", "RMS \u0394p    : ",
                     "Same top p: "):
            self.assertIn(line, said)
        self.assertEqual(said.count("KLD"), 12)

    def test_refusals(self):
        self.fails(2, "perplexity", MODEL, "--kl-divergence", says="give both")
        self.fails(1, "perplexity", MODEL, "--kl-divergence", "--kl-divergence-base", "/nonexistent", says="/nonexistent")
        other = os.path.join(SOURCE, "tests", "oracle", "models", "llama-f16.gguf")
        self.fails(2, "perplexity", other, "--kl-divergence", "--kl-divergence-base", self.base, says="tokens")
        with open(self.base, "rb") as f:
            whole = f.read()
        damaged = os.path.join(self.folder, "damaged.kld")
        for at in (0, 19, 20, 100, len(whole) // 2, len(whole) - 1):
            with open(damaged, "wb") as f:
                f.write(whole[:at] or b"x")
            self.fails(3, "perplexity", MODEL, "--kl-divergence", "--kl-divergence-base", damaged, says=damaged)
        for at, value in ((0, b"L"), (8, b"\0\0\0\0"), (16, b"\xff\xff\xff\x7f"), (20, b"\xff\xff\xff\xff"),
                          (20 + 4 * 3 * N_CTX, b"\xff\xff\xff\xff")):
            with open(damaged, "wb") as f:
                f.write(whole[:at] + value + whole[at + len(value):])
            self.fails(3, "perplexity", MODEL, "--kl-divergence", "--kl-divergence-base", damaged, says=damaged)


if __name__ == "__main__":
    unittest.main()
