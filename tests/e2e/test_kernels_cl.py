"""crumb kernels, tune and devices --report on OpenCL devices.

Run by tests/xe/on_runtime.py with one OpenCL runtime behind the loader. PoCL computes some kernels wrong, so that what is
asked of it is that everything is run, said and counted; on Intel's runtime the results must be right as well.
"""
import getpass
import json
import os
import re
import sys
import tempfile
import time
import unittest

from command import LIMIT_SECONDS, MODEL, SOURCE, CommandTest, alter, crumb, start

KERNEL = "linear_u2_gemv__portable"
SMALL = ["--backend", "cl", "--filter", KERNEL, "--bits", "1.58", "--shape", "48x256x1"]


# Kernels that are no linear layers in tiles, and those of them that PoCL builds in a moment.
OPS = {"float", "dense", "split", "quantize", "attention", "rope", "norm", "gated", "embed", "select", "top", "place", "gather"}
QUICK_OPS = {"select", "place", "gather"}


def first_gpu():
    found = json.loads(crumb("devices", "--json").stdout)["devices"]
    return next((d for d in found if d["name"] == "gpu0"), None)


class OpenCl(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.gpu = first_gpu()
        assert cls.gpu, "no OpenCL device behind the loader"
        cls.exact = "Portable Computing Language" not in cls.gpu["driver"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.database = os.path.join(self.folder.name, "tuning.sqlite")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_list_and_support(self):
        rows = json.loads(self.succeeds("kernels", "list", "--backend", "cl", "--json").stdout)["kernels"]
        by_name = {row["name"]: row for row in rows}
        self.assertEqual(len(by_name), len(rows))
        self.assertTrue(by_name[KERNEL]["runs_here"])
        matrix = [row for row in rows if row["isa"] == "dpas"]
        self.assertTrue(matrix and not any(row["runs_here"] for row in matrix))
        self.assertTrue(all(row["why_not"] for row in rows if not row["runs_here"]))
        only = json.loads(self.succeeds("kernels", "list", "--target", "cl:portable", "--json").stdout)["kernels"]
        self.assertEqual({row["isa"] for row in only}, {"portable"})
        support = json.loads(self.succeeds("kernels", "support", "--device", "gpu0", "--json").stdout)
        self.assertEqual(support["kernels"], len(rows))
        self.assertEqual(support["kernels_here"] + sum(m["kernels"] for m in support["missing"]), len(rows))
        self.assertTrue(all(one["kernel"].startswith("linear_") for row in support["formats"] for one in row["chosen"]))
        of_16 = json.loads(self.succeeds("kernels", "support", "--device", "gpu0", "--group", "16", "--json").stdout)
        self.assertTrue(all(one["kernel"].startswith("linear_") for row in of_16["formats"] for one in row["chosen"]))
        self.assertEqual({row["group"] for row in of_16["formats"]}, {16})
        text = self.succeeds("kernels", "support", "--device", "gpu0").stdout
        self.assertIn("it needs matrix instructions, which the device does not have", text)

    def test_a_profile_of_the_machine(self):
        env = {"XDG_CACHE_HOME": self.folder.name}
        self.succeeds("devices", "--measure", "--rounds", "1", env=env)
        model = ["plan", "--synthetic", "llama3-8b:u2", "--json"]
        plan = json.loads(self.succeeds(*model, env=env).stdout)
        self.assertEqual({layer["decode"]["device"] for layer in plan["layers"]}, {"cpu"})  # others only by name
        if not self.exact:  # cannot be used, and therefore is not measured
            return
        figures = {f["key"]: f["value"] for f in plan["figures"]}
        sources = {f["key"]: f["source"] for f in plan["figures"]}
        for key in ("read_gb_s", "exchange_us", "kernels.crumb.launch_us", *(f"kernels.crumb.work.{work}.{what}" for work in
                    ("u2", "f16", "attention") for what in ("gops", "share"))):
            self.assertGreater(figures["gpu0." + key], 0)
            self.assertTrue(sources["gpu0." + key].startswith("measured"), (key, sources["gpu0." + key]))
        self.assertNotIn("gpu0.transfer_gb_s", figures)  # keys and values are where both see them
        self.assertLessEqual(figures["gpu0.together_gb_s"], figures["gpu0.read_gb_s"])
        named = json.loads(self.succeeds(*model, "--device", "gpu0", env=env).stdout)
        self.assertEqual({layer["decode"]["device"] for layer in named["layers"]}, {"gpu0"})

    def test_test_counts(self):
        done = crumb("kernels", "test", *SMALL, "--seed", "4", "--json")
        self.assertIn(done.returncode, (0,) if self.exact else (0, 6), done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["run"], result["skipped"], result["seed"]), (1, 0, 4))
        self.assertEqual(result["kernels"][0]["values"] % 48, 0)
        if result["failed"]:
            self.assertIn("again: crumb kernels test --backend cl --device gpu0 --filter " + KERNEL, result["kernels"][0]["failure"])
        skipped = crumb("kernels", "test", "--backend", "cl", "--filter", "gemm_u2_16x128__dpas16")
        self.assertEqual(skipped.returncode, 1)
        self.assertRegex(skipped.stdout, "skipped +it needs matrix instructions")

    def run_ops(self, rows, *arguments):
        """Tests the kernels of these rows by op; each must be right where it runs, and none may be left out."""
        left = {row["name"]: row["runs_here"] for row in rows}
        for op in sorted({row["op"] for row in rows}):
            done = crumb("kernels", "test", "--backend", "cl", "--op", op, "--seed", "7", "--json", *arguments)
            for row in json.loads(done.stdout)["kernels"]:
                here = left.pop(row["name"], None)
                self.assertIsNotNone(here, row)
                self.assertEqual((row["verdict"], row["values"] > 0), ("ok", True) if here else ("skipped", False), row)
        self.assertEqual(left, {})

    def test_every_other_op(self):
        rows = json.loads(self.succeeds("kernels", "list", "--backend", "cl", "--json").stdout)["kernels"]
        others = [row for row in rows if row["op"] not in ("gemv", "gemm")]
        self.assertEqual({row["op"] for row in others}, OPS)
        self.run_ops([row for row in others if self.exact or row["op"] in QUICK_OPS])

    def run_matrix_op(self, op):
        rows = json.loads(self.succeeds("kernels", "list", "--target", "cl:dpas-i8", "--op", op, "--json").stdout)["kernels"]
        self.assertTrue(any(row["runs_here"] for row in rows))
        self.run_ops(rows, "--target", "cl:dpas-i8")

    def test_matrix_attention(self):
        """As the next one; the programs take long to build."""
        self.run_matrix_op("attention")

    def test_matrix_dense(self):
        """Where a layer before the runtime has matrix instructions in software."""
        self.run_matrix_op("dense")
        self.assertRegex(self.succeeds("kernels", "test", "--backend", "cl", "--op", "split").stdout, "split +ok")

    def test_matrix_scales(self):
        """The kernel whose scales another has found before: right, and taken by a plan for which it was tuned."""
        self.assertEqual(self.gpu["target"], "dpas")
        kernel = "gemm_u2_8x256_scaled__dpas16"
        one = ["--backend", "cl", "--filter", kernel, "--bits", "1.58", "--shape", "48x256x33"]
        self.assertRegex(self.succeeds("kernels", "test", *one).stdout, kernel + r" +ok")
        record = json.loads(self.succeeds("tune", *one, "--tuning", self.database, "--budget", "1s", "--json").stdout)
        self.assertGreater(record["candidates"], 5)
        lines = self.path("lines")
        with open(lines, "w", encoding="utf-8") as f:  # as if it had been measured, which takes long here
            forced = record | {"kernel": kernel, "knobs": "", "ratio": 0.01, "ns": 1000, "rounds": 15}
            f.write(json.dumps({k: v for k, v in forced.items() if k not in ("candidates", "measured", "wrong")}) + "\n")
        self.succeeds("tune", "import", lines, "--backend", "cl", "--tuning", self.database)
        alter(self.database, "rounds = 25")  # else plans do not take it
        model = os.path.join(SOURCE, "tests", "oracle", "models", "llama-i2_s.gguf")  # whose o has no norm before it
        run = ["run", "-m", model, "--device", "gpu0", "--target", "cl:dpas+exact", "--verify", "off", "-ub", "32", "-n", "4",
               "--temp", "0", "-p", "Once upon a time there was a little girl who had a dog and a cat and a bird and a fish"]
        tuned = self.succeeds(*run, "-v", "--tuning", self.database)
        plan = next(line for line in tuned.stderr.splitlines() if "a plan for 32 rows is " in line)
        self.assertIn(kernel, plan)
        self.assertEqual(tuned.stdout, self.succeeds(*run, "--tuning", "none").stdout)

    def test_other_ops_are_timed(self):
        run = ["kernels", "perf", "--backend", "cl", "--filter", "gated", "--shape", "1x512x3", "--rounds", "2"]
        found = json.loads(self.succeeds(*run, "--json").stdout)["results"]
        self.assertEqual([(r["kernel"], r["op"], r["k"], r["n"]) for r in found], [("gated", "gated", 512, 3)] * 2)
        for row in found:
            self.assertEqual(row["bytes"], 3 * 512 * 3 * 4)
            self.assertGreater(row["ns"], 0)
            self.assertAlmostEqual(row["gb_s"], row["bytes"] / row["ns"], places=3)
        self.assertRegex(self.succeeds(*run).stdout, r"gated +512 wide, 3 rows +[\d.]+ +[\d.]+")

    def test_perf_measures_the_device(self):
        run = ["kernels", "perf", *SMALL, "--rounds", "2"]
        row, = json.loads(self.succeeds(*run, "--json", "--cold").stdout)["results"]
        for key in ("ns", "gb_s", "read_gb_s", "gops", "peak_gops", "launch_ns"):
            self.assertGreater(row[key], 0, key)
        self.assertAlmostEqual(row["gb_s"], row["weight_bytes"] / row["ns"], places=3)
        self.assertIn(row["limit"], ("bandwidth", "compute", "launch", "latency"))
        if self.exact:
            self.assertTrue(1e-7 < row["nmse"] < 1e-2, row)
        self.assertGreaterEqual(row["cold_bytes"], 64 << 20)  # four times the device's cache, and no less than that
        warm, = json.loads(self.succeeds(*run, "--json").stdout)["results"]
        self.assertEqual(warm["cold_bytes"], 0)
        self.assertRegex(self.succeeds(*run).stdout, r"1 rows, weights warm, a launch [\d.]+ us")

    def test_tune_keeps_and_plans_take(self):
        if not self.exact:
            self.skipTest("results are wrong here, and are not timed")
        tune = ["tune", *SMALL, "--tuning", self.database, "--budget", "60s"]
        first = json.loads(self.succeeds(*tune, "--fraction", "0.5", "--json").stdout)
        self.assertGreater(first["candidates"], 5)
        self.assertGreater(first["measured"], 5)
        self.assertEqual(first["wrong"], 0)
        self.assertIn(self.gpu["detail"][:40], first["device"])
        records = [json.loads(line) for line in self.succeeds("tune", "export", "--tuning", self.database).stdout.splitlines()]
        self.assertEqual(len({(r["kernel"], r["knobs"]) for r in records}), len(records))
        self.assertTrue(any("fused=1" in r["knobs"] for r in records), records)
        lines = self.path("lines")
        forced = dict(next(r for r in records if "fused=1" in r["knobs"]), ratio=0.01)
        with open(lines, "w", encoding="utf-8") as f:
            f.write(json.dumps(forced) + "\n")
        imported = self.succeeds("tune", "import", lines, "--backend", "cl", "--tuning", self.database).stdout
        self.assertEqual(imported, "1 measurements imported\n")
        alter(self.database, "ratio = 0.01, rounds = 25 WHERE kernel = ? AND knobs = ?", forced["kernel"], forced["knobs"])
        run = ["run", "-m", MODEL, "--device", "gpu0", "-n", "12", "--temp", "0", "-p", "Once upon a time"]
        tuned = self.succeeds(*run, "-v", "--tuning", self.database)
        plan = next(line for line in tuned.stderr.splitlines() if "a plan for 1 rows is " in line)
        self.assertIn(KERNEL, plan)
        self.assertEqual(tuned.stdout, self.succeeds(*run, "--tuning", "none").stdout)

    def test_report(self):
        if not self.exact:
            self.skipTest("as much as the other tests together, and PoCL takes seconds for each kernel")
        path = self.path("report.txt")
        small = ["--filter", KERNEL, "--bits", "1.58", "--shape", "48x256x1", "--tuning", self.database]
        done = self.succeeds("devices", "--report", path, *small, "--budget", "8s")
        self.assertIn("1 GPUs looked at", done.stdout)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for part in ("== versions", "== gpu0", "extensions: ", "at best", KERNEL, "speeds", "tuned", "\nend\n"):
            self.assertIn(part, text)
        for secret in (self.folder.name, os.path.expanduser("~") + "/", f" {getpass.getuser()} "):
            self.assertNotIn(secret, text)
        tuned = re.search(r"tuning for 8 s\n  1.58 bits, group 0, 48 x 256, 1 rows: (\d+) candidates, (\d+) measured, 0 wrong\n", text)
        self.assertTrue(tuned and int(tuned[1]) > 5 and int(tuned[2]) > 0, text)
        self.assertRegex(text, rf"tuned\n  u2 48 x 256 x 1, group 256: linear_u2_gemv__\w+ .* of the default's time")
        self.assertIn("linear_u2_gemv__", self.succeeds("tune", "show", "--tuning", self.database).stdout)
        self.succeeds("devices", "--report", path, "--filter", "select", "--shape", "1x64x3", "--budget", "0")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.assertNotIn("tuning for", text)
        self.assertRegex(text, r"select +ok \d+ values")
        self.assertRegex(text, r"speeds of other ops\n +select +64 wide, 3 rows +[\d.]+ us")
        self.fails(1, "devices", "--report", self.path("no/folder/report.txt"), says="cannot be written")
        self.fails(2, "devices", "--report", path, "--budget", "soon", says="--budget")

    def test_report_of_a_process_that_is_killed(self):
        """What was found up to there is in the file, and which kernel was at work."""
        path = self.path("report.txt")
        with start("devices", "--report", path, "--filter", "select", "--shape", "1x64x3", "--budget", "0") as process:
            self.addCleanup(process.kill)
            begun, text = time.monotonic(), ""
            while "  select" not in text and process.poll() is None and time.monotonic() - begun < LIMIT_SECONDS:
                time.sleep(0.005)
                if os.path.exists(path):
                    with open(path, encoding="utf-8") as f:
                        text = f.read()
            running = process.poll() is None
            process.kill()
        self.assertTrue(running, "it had ended when its first kernel was in the file")
        for part in ("== versions", "== gpu0", "kernels against the scalar reference", "  select"):
            self.assertIn(part, text)
        self.assertNotIn("\nend\n", text)

    def test_mistakes(self):
        self.fails(4, "kernels", "support", "--device", "gpu77", says="gpu77")
        self.fails(2, "kernels", "list", "--target", "cl:warp", says="not one of")
        self.fails(4, "kernels", "support", "--target", "cl:dpas", says="has only")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        del OpenCl.test_matrix_attention, OpenCl.test_matrix_dense, OpenCl.test_matrix_scales
    unittest.main()
