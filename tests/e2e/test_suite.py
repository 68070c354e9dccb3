"""crumb bench --suite: the rows, what they say and how they add up; never how fast anything is."""
import csv
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import unittest
import unittest.mock

from command import MODEL, SOURCE, CommandTest

FIELDS = ["section", "what", "measured", "unit", "baseline_name", "baseline", "ratio", "wanted", "met", "bytes",
          "head_type", "read_gb_s", "peak_gops", "alone_ratio", "alone_rounds", "tuning", "note", "n_threads", "rounds",
          "cpu_info"]
TINY = ["bench", "--suite", "cpu", "--rounds", "2", "-t", "1"]


class Suite(CommandTest):
    def rows(self, *arguments):
        rows = json.loads(self.succeeds(*TINY, *arguments, "-o", "json").stdout)
        for row in rows:
            self.assertEqual(list(row), FIELDS)
            self.assertEqual((row["n_threads"], row["rounds"]), (1, 2))
            self.assertEqual(row["alone_ratio"] is None, not row["alone_rounds"])
            if row["alone_rounds"] == (8 if row["section"] == "near" else 2):  # all
                self.assertEqual(row["alone_ratio"], row["ratio"])
            if row["ratio"] is None:
                self.assertTrue(row["note"])
            if row["ratio"] is None or row["wanted"] is None:
                self.assertIsNone(row["met"])
            else:
                self.assertEqual(row["met"], row["ratio"] >= row["wanted"])
        return rows

    def test_gemv(self):
        rows = self.rows("--filter", "gemv", "--shape", "256x512,16384x1024x1,64x256x32")
        self.assertEqual({row["section"] for row in rows}, {"gemv"})
        self.assertEqual([row["what"].split(",")[0] for row in rows[:2]], ["shape 256 x 512", "shape 16384 x 1024"])
        for row in rows:
            if row["unit"] != "GB/s":
                continue
            small = row["bytes"] < 4_100_000  # codes of more than 4 MB are judged; then there are scales
            self.assertEqual(row["wanted"] is None, small, row)
            self.assertEqual(row["baseline"], row["read_gb_s"])
            self.assertIn(row["alone_rounds"], (None, 0, 1, 2))  # None: the reorder window is not known
        wanted = {row["what"].split(", ")[1]: row["wanted"] for row in rows if row["unit"] == "GB/s" and row["wanted"]}
        self.assertEqual(wanted["8-bit"], 0.97)
        self.assertEqual(sum("1.6 bits" in row["what"] for row in rows), 2)

    def test_small_matrices_have_rows(self):
        """Those of a model that are not judged: none is missing, and they take no time."""
        for case, weights in ("2", "2-bit"), ("1.6", "ternary at 1.6 bits"):
            rows = self.rows("--filter", f"gemv/mobilellm-1.5b/{case}")
            self.assertEqual([row["what"] for row in rows], [f"mobilellm-1.5b {shape}, {weights}" for shape in
                             ("1600 x 1600", "320 x 1600", "4352 x 1600", "1600 x 4352")])
            for row in rows:
                self.assertEqual((row["ratio"], row["wanted"], row["note"]), (None, None, "not judged: 4 MB or less"))
        text = self.succeeds(*TINY, "--filter", "gemv/mobilellm-1.5b/2").stdout
        self.assertIn("0 of 0 targets met, 4 not measured.", text)

    def test_threads(self):
        """What they cost each other; alone one costs nothing."""
        alone = self.rows("--filter", "threads")
        self.assertEqual([(row["section"], row["ratio"], row["wanted"]) for row in alone], [("threads", None, 1)] * 2)
        two = json.loads(self.succeeds(*TINY[:-1], "2", "--filter", "threads", "-o", "json").stdout)
        for row, what in zip(two, ("a barrier", "a call"), strict=True):
            self.assertTrue(row["what"].startswith(what))
            if row["ratio"] is not None:
                self.assertAlmostEqual(row["ratio"] * row["measured"], 2, places=3)  # both printed with 6 digits
                self.assertEqual((row["baseline"], row["met"]), (2, row["ratio"] >= 1))
                self.assertEqual("the system takes longer to wake them" in row["note"], what == "a call")

    def test_tuned(self):
        with tempfile.TemporaryDirectory() as folder:
            database = os.path.join(folder, "tuning.sqlite")
            self.succeeds("tune", "--bits", "2", "--shape", "256x512x1", "--fraction", "0.1", "--budget", "100s", "-t", "1",
                          "--tuning", database)
            *problems, last = self.rows("--filter", "tuned", "--tuning", database)
            self.assertEqual(len(problems), 1)
            self.assertRegex(problems[0]["what"], "256 x 512 x 1, gem[mv]_u2_i8")  # which is fastest, the machine says
            self.assertEqual((last["measured"], last["ratio"], last["wanted"]), (1, problems[0]["ratio"], 1.05))
            printed = self.succeeds(*TINY, "--filter", "tuned", "--tuning", database).stdout.splitlines()
            median = [cell.strip() for line in printed if "median of all" in line for cell in line.split("|")]
            self.assertEqual(median[3:5], ["1.000 problems", "-"])  # they are beside the defaults, their number beside nothing
            run = ["--filter", "model", "-m", MODEL, "-p", "0"]
            tuned = f"tuned: {database}, 1 records"
            self.assertEqual([row["tuning"] for row in self.rows(*run, "--tuning", database)], [tuned])
            lines = self.succeeds(*TINY, *run, "--tuning", database).stdout.splitlines()
            self.assertEqual(lines[1], f"Single kernels run as by default; whole models (layer, model, paper, depth) are {tuned}.")
            self.assertEqual([row["tuning"] for row in self.rows(*run, "--tuning", "none")], ["untuned"])
            lines = self.succeeds(*TINY[:-1], "2", *run, "--tuning", database).stdout.splitlines()  # of other threads
            self.assertTrue(lines[1].endswith(" are untuned."), lines[1])
        (nothing,) = self.rows("--filter", "tuned", "--tuning", "none")
        self.assertIsNone(nothing["ratio"])
        self.assertIn("crumb tune", nothing["note"])

    def test_formats_and_filter(self):
        rows = self.rows("--filter", "gemv/shape", "--shape", "256x512", "--bits", "2")
        self.assertEqual({row["what"].split(", ")[1] for row in rows}, {"2-bit"})  # a row for each forced tier
        self.assertEqual({row["bytes"] for row in rows}, {256 * 512 // 4 + 256 * 2})
        rows = self.rows("--filter", "near/1", "--shape", "256x512")
        self.assertEqual({(row["section"], row["unit"], row["wanted"]) for row in rows} - {("near", "cycles", 3)}, set())

    def test_near(self):
        """Each of the paper's kernels that run here from L2 and from L1, or where a shape says."""
        rows = self.rows("--filter", "near/2")
        in_l1 = [row["what"] for row in rows if row["what"].endswith(", L1")]
        self.assertGreater(len(in_l1), 0)
        self.assertEqual([what.removesuffix(", L1") for what in in_l1], [row["what"] for row in rows[: len(in_l1)]])
        self.assertEqual(len(rows), 2 * len(in_l1))
        self.assertTrue(all(row["ratio"] > 0 and row["wanted"] == 1.25 for row in rows))

    def test_few(self):
        rows = self.rows("--filter", "few", "--shape", "256x512", "--bits", "2,4", "--target", "cpu:avx2")
        self.assertEqual([row["what"].split(",")[0] for row in rows], 2 * [f"256 x 512 x {n}" for n in (2, 4, 8, 16)])
        for row in rows:
            n = int(row["what"].split(",")[0].split()[-1])
            limits = {"by bytes read": row["read_gb_s"] * 2 * 256 * 512 * n / row["bytes"], "int8 peak": row["peak_gops"]}
            self.assertAlmostEqual(row["baseline"] / min(limits.values()), 1, places=3)
            self.assertAlmostEqual(limits[row["baseline_name"]] / min(limits.values()), 1, places=3)
            self.assertIsNone(row["wanted"])

    def test_gemm(self):
        run = ["--filter", "gemm", "--shape", "64x256x32,64x256", "--bits", "2,8,mxfp4"]
        rows = self.rows(*run, "--target", "cpu:avx2")
        self.assertEqual(len(rows), 5 * 3)
        self.assertEqual([row["wanted"] for row in rows], 9 * [0.8] + 3 * [0.65] + 3 * [0.5])
        rows = self.rows(*run)  # the best tier; then lower ones, where the machine has a better one
        self.assertEqual(len({row["what"] for row in rows}), len(rows))  # each with a kernel of its own
        self.assertEqual(len({row["what"].rpartition(", ")[0] for row in rows}), 5 * 3)
        self.assertTrue(all(row["what"].startswith("64 x 256 x 32, ") for row in rows))

    def test_model(self):
        rows = self.rows("--filter", "model", "-p", "8", "-m", MODEL)
        self.assertEqual([row["section"] for row in rows], 2 * ["model"])
        decoding, prompt = rows
        self.assertIn("decoding", decoding["what"])
        self.assertEqual((decoding["wanted"], prompt["wanted"]), (0.92, None))
        self.assertAlmostEqual(decoding["baseline"] * decoding["bytes"] / decoding["read_gb_s"] / 1e9, 1, places=4)
        self.assertTrue(decoding["head_type"])
        self.says_what_is_cached(decoding)
        self.assertGreater(prompt["peak_gops"], 0)
        self.assertEqual(len(self.rows("--filter", "model", "-p", "0", "-m", f"{MODEL},{MODEL}")), 2)

    def says_what_is_cached(self, row):
        """A tiny model's token is in the cache of any machine, where that is known."""
        if any(os.path.exists(f"/sys/devices/system/cpu/cpu0/cache/index{i}/size") for i in range(3, 5)) and not os.environ.get("CRUMB_SANITIZE"):
            self.assertRegex(row["note"], r"not all from memory: a token reads [\d.]+ MB, less than 4 times the last-level cache's \d+$")

    def test_layer(self):
        row, = self.rows("--filter", "layer/mobilellm", "--bits", "1")
        self.assertEqual((row["section"], row["wanted"], row["head_type"]), ("layer", 0.9, None))
        self.assertGreater(float(re.search(r"in the same steps ([\d.]+) GB/s are read", row["note"])[1]), 0)
        # 2 x 1600^2, 2 x 320 x 1600 and 3 x 4352 x 1600 codes of one bit, and an f32 scale per row
        self.assertAlmostEqual(row["bytes"] / (27033600 / 8 + 4 * (3 * 1600 + 2 * 320 + 2 * 4352)), 1, places=2)

    def test_depth(self):
        rows = self.rows("--filter", "depth", "-d", "32,64", "-m", MODEL)
        self.assertEqual([(row["section"], row["what"].split(", ")[-1]) for row in rows],
                         2 * [("depth", "f16"), ("depth", "q8"), ("depth", "q8 against f16")])
        self.assertEqual(rows[3]["bytes"], 2 * rows[0]["bytes"])
        self.assertLess(rows[1]["bytes"], 0.6 * rows[0]["bytes"])

    def test_quality(self):
        """What an 8-bit cache costs has rows; the tests that they name are there, and the command works."""
        rows = self.rows("--filter", "quality")
        self.assertEqual([(row["section"], row["ratio"], row["measured"], row["wanted"]) for row in rows], 2 * [("quality", None, None, 0.999)])
        with open(os.path.join(SOURCE, "tests", "model", "CMakeLists.txt"), encoding="utf-8") as f:
            text = f.read()
        types = re.search(r"foreach\(type ([^)]*)\)\n  crumb_llama_test\(perplexity smollm2-\${type} --kv8-chunks", text)[1].split()
        self.assertEqual([re.search(r"ctest -R llama_perplexity_smollm2-(\w+);", row["note"])[1] for row in rows], types)
        command = re.search(r"crumb (perplexity .* --kv-cache q8), and f16$", rows[0]["note"])[1]
        arguments = [{"FILE": MODEL, "TEXT": os.path.join(SOURCE, "README.md")}.get(word, word) for word in command.split()]
        self.assertIn("Final estimate: PPL = ", self.succeeds(*arguments, "-c", "64", "--chunks", "1").stdout)

    def test_peers(self):
        """Targets beside other programs have rows, which say what measures them."""
        rows = self.rows("--filter", "peers")
        self.assertEqual(len(rows), 20)
        spec = importlib.util.spec_from_file_location("compare_peers", os.path.join(SOURCE, "tools", "compare-peers.py"))
        tool = importlib.util.module_from_spec(spec)
        with unittest.mock.patch.object(sys, "path", [os.path.dirname(spec.origin), *sys.path]):
            spec.loader.exec_module(tool)
        titles = {case.name.split("-")[0]: case.title for case in tool.CASES}  # --only NAME measures it
        cases = set()
        for row in rows:
            self.assertEqual((row["section"], row["ratio"], row["measured"]), ("peers", None, None))
            self.assertGreater(row["wanted"], 1)
            case = re.search(r"tools/compare-peers.py --only (\w+)", row["note"])[1]
            self.assertTrue(row["what"].startswith(titles[case] + ", "), (row["what"], titles[case]))
            cases.add(case)
        self.assertEqual(cases, set(titles))
        self.assertEqual({row["what"].split("beside ")[1].split(",")[0] for row in rows}, {"llama.cpp", "bitnet.cpp", "ik_llama.cpp"})
        self.assertEqual(len(self.rows("--filter", "peers/ternary/ik_llama.cpp")), 2)

    def test_other_formats(self):
        run = [*TINY, "--filter", "gemv/shape/2", "--shape", "256x512"]
        n = len(self.rows(*run[len(TINY):]))
        lines = self.succeeds(*run).stdout.splitlines()
        self.assertRegex(lines[0], r", 1 threads, medians of 2 rounds$")
        self.assertEqual([cell.strip() for cell in lines[3].split("|")[1:-1]],
                         ["section", "what", "measured", "of", "ratio", "wanted", "met", "basis"])
        self.assertRegex(lines[5], r"^\| gemv +\| shape 256 x 512, 2-bit, \w+ +\| +[\d.]+ GB/s \| [\d.]+ GB/s read +\|")
        self.assertRegex(lines[-3], r"^0 of 0 targets met, 0 not measured. build: ")
        self.assertIn("tools/compare-peers.py", lines[-1])
        table = list(csv.reader(io.StringIO(self.succeeds(*run, "-o", "csv").stdout)))
        self.assertEqual((table[0], len(table)), (FIELDS, 1 + n))
        self.assertEqual(len([json.loads(line) for line in self.succeeds(*run, "-o", "jsonl").stdout.splitlines()]), n)
        self.assertEqual(len(json.loads(self.succeeds(*run, "--json").stdout)["results"]), n)

    def test_bad_arguments(self):
        self.fails(2, "bench", "--suite", "gpu", says="--suite")
        self.fails(2, *TINY, "--filter", "no such case", says="no such case")
        self.fails(2, *TINY, "--shape", "12", says="--shape")
        self.fails(2, *TINY, "--bits", "7", says="--bits: '7'")
        self.fails(2, "bench", "--suite", "cpu", "-t", "1,2", says="one number of threads")
        self.fails(2, *TINY, "--target", "cpu:z80", says="cpu:z80")


if __name__ == "__main__":
    unittest.main()
