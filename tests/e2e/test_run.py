"""crumb run: text, seeds, streams, signals."""
import json
import os
import re
import signal
import subprocess
import unittest

from command import MODEL, CommandTest, crumb, environment, start, COMMAND

FOOTER = [r"load time = +[\d.]+ ms\n", r"prompt eval time = +[\d.]+ ms / +\d+ tokens \( *[\d.]+ ms per token, +[\d.]+ tokens "
          r"per second\)\n", r" eval time = +[\d.]+ ms / +\d+ runs +\( *[\d.]+ ms per token, +[\d.]+ tokens per second\)\n",
          r"total time = +[\d.]+ ms / +\d+ tokens\n", r"roofline = "]
ENDLESS = ["--ignore-eos", "-c", "200000", "-n", "-1"]


class Text(CommandTest):
    def test_the_embedded_model_tells_a_story(self):
        done = self.succeeds("run", "-s", "1", "-n", "60")
        self.assertGreater(len(done.stdout.split()), 20, done.stdout)
        self.assertTrue(done.stdout.endswith("\n"))
        self.assertRegex(done.stdout, r"^[A-Za-z0-9 .,!?\"'\n:;-]+$")

    def test_first_line_and_footer(self):
        done = self.succeeds("run", "-n", "5", "--ignore-eos")
        first = done.stderr.splitlines()[0]
        self.assertRegex(first, r"version \d.*model .*device cpu.*kernels \w+.*no GPU: ")
        for line in FOOTER:
            self.assertRegex(done.stderr, line)
        self.assertRegex(done.stderr, r" eval time = .* / +4 runs")  # the fifth token is shown, not evaluated

    def test_a_file_is_the_embedded_model(self):
        flags = ["-s", "3", "-n", "20", "-p", "The dog"]
        self.assertEqual(self.succeeds("run", MODEL, *flags).stdout, self.succeeds("run", *flags).stdout)
        self.assertEqual(self.succeeds("run", "-m", MODEL, *flags).stdout, self.succeeds("run", *flags).stdout)
        self.assertEqual(self.succeeds("run", MODEL, "The dog", *flags[:4]).stdout, self.succeeds("run", *flags).stdout)

    def test_seeds(self):
        texts = {s: self.succeeds("run", "-s", s, "-n", "40").stdout for s in (1, 2, 3, 4)}
        self.assertGreater(len(set(texts.values())), 1)
        for threads in (1, 2):
            for batch in (1, 512):
                again = self.succeeds("run", "-s", "2", "-n", "40", "-t", threads, "-ub", batch).stdout
                self.assertEqual(again, texts[2])
        for way in ("split", "chunks", "auto"):
            again = self.succeeds("run", "-s", "2", "-n", "40", "-t", "3", "--balance", way, "--cpu-kind", "all").stdout
            self.assertEqual(again, texts[2])

    def test_the_printed_seed_gives_the_text_again(self):
        first = self.succeeds("run", "-n", "30")
        seed = re.search(r"seed (\d+)", first.stderr).group(1)
        self.assertEqual(self.succeeds("run", "-n", "30", "-s", seed).stdout, first.stdout)

    def test_greedy_needs_no_seed(self):
        a, b = (self.succeeds("run", "--temp", "0", "-n", "30") for _ in range(2))
        self.assertEqual(a.stdout, b.stdout)
        self.assertNotIn("seed", a.stderr)

    def test_prompts(self):
        flags = ["--temp", "0", "-n", "4"]
        plain = self.succeeds("run", *flags, "-p", "One day\tshe").stdout
        self.assertTrue(plain.startswith("One day\tshe"))
        self.assertEqual(plain, self.succeeds("run", *flags, "-p", r"One day\tshe").stdout)
        self.assertTrue(self.succeeds("run", *flags, "--no-escape", "-p", r"One\tday").stdout.startswith(r"One\tday"))
        self.assertEqual(plain, self.succeeds("run", *flags, "-f", "-", input="One day\tshe\n").stdout)
        bare = self.succeeds("run", *flags, "--no-display-prompt", "-p", "One day\tshe").stdout
        self.assertEqual("One day\tshe" + bare, plain)
        self.fails(1, "run", "-f", "/nonexistent/text", says="/nonexistent/text")
        self.fails(2, "run", MODEL, says="-p")

    def test_length(self):
        self.assertEqual(self.succeeds("run", "-p", "One day", "-n", "0").stdout, "One day\n")
        one = self.succeeds("run", "-p", "One day", "-n", "1", "--temp", "0").stdout
        two = self.succeeds("run", "-p", "One day", "-n", "2", "--temp", "0").stdout
        self.assertTrue(two.startswith(one[:-1]) and len(two) >= len(one))

    def test_full_context(self):
        done = self.succeeds("run", "-p", "One day", "-c", "32", "--ignore-eos")
        self.assertIn("context of 32 tokens is full", done.stderr)
        self.fails(1, "run", "-p", "word " * 100, "-c", "32", says="-c")

    def test_json_lines(self):
        done = self.succeeds("run", "--json", "-n", "8", "--temp", "0", "-p", "One day", "--ignore-eos")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual((events[0]["schema_version"], events[0]["event"]), (1, "start"))
        self.assertEqual((events[-1]["event"], events[-1]["reason"], events[-1]["n_generated"]), ("end", "length", 8))
        text = "".join(e["text"] for e in events if e["event"] == "text")
        self.assertEqual("One day" + text, self.succeeds("run", "-n", "8", "--temp", "0", "-p", "One day",
                                                         "--ignore-eos").stdout.rstrip("\n"))

    def test_an_8_bit_cache(self):
        def run(*flags):
            done = self.succeeds("run", "-n", "20", "--temp", "0", "-p", "One day", "-v", *flags)
            size = re.search(r"KV cache of \d+ tokens in (?:f16|q8) ([\d.]+) MB", done.stderr)
            return done.stdout, float(size.group(1))
        one, size = run("-t", "1", "--kv-cache", "q8")
        self.assertEqual(one, run("-t", "2", "--kv-cache", "q8")[0])
        self.assertAlmostEqual(size / run()[1], 17 / 32, delta=0.01)

    def test_quiet_and_colour(self):
        self.assertEqual(self.succeeds("run", "-n", "3", "--log-disable", "-ngl", "9").stderr, "")
        self.assertNotIn("\x1b", self.succeeds("run", "-n", "3").stdout)
        self.assertTrue(self.succeeds("run", "-n", "3", "--color", "-p", "One").stdout.startswith("\x1b[33mOne\x1b[0m"))
        self.fails(2, "run", "--split", "half", says="--split half")

    def test_explain(self):
        done = self.succeeds("run", "-n", "30", "--ignore-eos", "--device", "cpu", "--profile", "lnl", "--explain")
        for words in ("explain: layers: cpu", "prefill on cpu", "decode of 29 tokens: predicted", "measured",
                      "times what the profile says", "us of each token"):
            self.assertIn(words, done.stderr)
        self.assertNotIn("explain:", self.succeeds("run", "-n", "3").stderr)
        done = self.succeeds("run", "-n", "3", "--explain", "--profile", "none")
        self.assertIn("nothing is predicted: --profile none", done.stderr)
        self.fails(2, "run", "-n", "3", "--explain", "--profile", "nothing", says="no machine 'nothing'")

    def test_targets(self):
        texts = {t: self.succeeds("run", "--temp", "0", "-n", "30", "--target", t).stdout
                 for t in ("cpu:scalar", "cpu:avx2")}
        self.assertEqual(len(set(texts.values())), 1, texts)
        self.assertIn("kernels scalar", self.succeeds("run", "-n", "1", env={"CRUMB_TARGET": "cpu:scalar"}).stderr)
        self.assertNotEqual(crumb("run", "-n", "1", "--target", "cpu:z80").returncode, 0)


class Streams(CommandTest):
    def test_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for arguments in (["run", "-n", "20"], ["--help"], ["inspect"], ["bench", "-p", "4", "-n", "2", "-r", "1"]):
                self.fails(1, *arguments, says="cannot write to standard output", stdout=full)

    def test_closed_pipe_is_quiet(self):
        process = start("run", *ENDLESS)
        process.stdout.read(8)
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 0, errors)
        self.assertNotIn("error", errors)
        self.assertNotIn("eval time", errors)

    def test_ctrl_c_ends_with_the_footer(self):
        process = start("run", *ENDLESS)
        began = b""
        while len(began) < 40:  # what Python's own reading takes beyond that, communicate() lacks
            began += os.read(process.stdout.fileno(), 40)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertTrue((began + out).endswith(b"\n"))
        for line in FOOTER:
            self.assertRegex(errors.decode(), line)

    def test_text_is_streamed(self):
        """The first characters arrive while the model still generates."""
        process = start("run", *ENDLESS)
        self.assertEqual(len(process.stdout.read(30)), 30)
        self.assertIsNone(process.poll())
        process.kill()
        process.communicate()

    def test_whole_characters_only(self):
        """The output is UTF-8 also when the model's tokens are not."""
        for seed in range(5):
            done = subprocess.run([COMMAND, "run", "-p", "\u00e9\u4e16\U0001f600", "-n", "60", "--temp", "50",
                                   "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos", "-s", str(seed)],
                                  capture_output=True, env=environment(), timeout=100)
            self.assertEqual(done.returncode, 0)
            done.stdout.decode("utf-8")


class Memory(CommandTest):
    def test_a_context_too_large_for_memory(self):
        self.fails(5, "run", "-c", "4000000000", "-n", "1")

    def test_mlock_never_fails(self):
        self.succeeds("run", "--mlock", "-n", "1")


if __name__ == "__main__":
    unittest.main()
