"""crumb bench: llama-bench's formats."""
import csv
import io
import json
import re
import unittest

from command import MODEL, CommandTest

SMALL = ["-p", "8", "-n", "4", "-r", "3", "-t", "1"]
# llama-bench's names in its order, then ours.
FIELDS = ["build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type",
          "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers",
          "devices", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts",
          "samples_ns", "samples_ts", "bandwidth_gb_s", "roofline_pct", "ttft_ms", "tpot_ms", "energy_j",
          "j_per_token", "energy_source", "energy_missing", "power_w", "clock_mhz", "throttling", "target", "head_type",
          "bytes_per_token", "read_gb_s"]


class Bench(CommandTest):
    def test_markdown(self):
        lines = self.succeeds("bench", *SMALL, "-pg", "4,2", "-d", "0,16").stdout.splitlines()
        self.assertRegex(lines[0], r"^\| model +\| +size \| +params \| backend +\| threads \| +test \| +t/s \|$")
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:] if line.startswith("|")]
        self.assertEqual([row[5] for row in rows],
                         ["pp8", "tg4", "pp4+tg2", "pp8 @ d16", "tg4 @ d16", "pp4+tg2 @ d16"])
        for row, line in zip(rows, lines[2:]):
            self.assertRegex(row[6], r"^[\d.]+ \u00b1 [\d.]+$")
            self.assertEqual(len(line), len(lines[0]))

    def test_energy(self):
        """Of the processor's counter, where the system shows one and lets it be read."""
        r = json.loads(self.succeeds("bench", *SMALL, "--energy", "-o", "json").stdout)[1]
        if r["energy_source"] is None:
            self.assertRegex(r["energy_missing"], "^cpu: .*energy counter")
            self.assertIsNone(r["j_per_token"])
        else:
            self.assertRegex(r["energy_source"], "^cpu: RAPL, [1-9]")
        lines = self.succeeds("bench", *SMALL, "--energy").stdout.splitlines()
        self.assertRegex(lines[0], r"\| +t/s \| +J/token \| +W \| +MHz \| throttled by +\|$")
        self.assertTrue(all(len(line) == len(lines[0]) for line in lines if line.startswith("|")))

    def check(self, results, names):
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in results], [(8, 0), (0, 4)])
        for r in results:
            self.assertEqual(list(r), names)
            n = r["n_prompt"] + r["n_gen"]
            self.assertEqual((len(r["samples_ns"]), len(r["samples_ts"])), (3, 3))
            self.assertAlmostEqual(r["avg_ns"], sum(r["samples_ns"]) / 3, delta=1)
            self.assertAlmostEqual(r["avg_ts"] / (sum(1e9 * n / ns for ns in r["samples_ns"]) / 3), 1, places=5)
            self.assertRegex(r["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertIsNone(r["energy_source"])
        pp, tg = results
        self.assertIsNone(pp["bandwidth_gb_s"])
        self.assertGreater(pp["ttft_ms"], 0)
        self.assertGreater(tg["bandwidth_gb_s"], 0)
        self.assertAlmostEqual(tg["tpot_ms"] * 4e6 / tg["avg_ns"], 1, places=1)

    def test_json(self):
        self.check(json.loads(self.succeeds("bench", *SMALL, "-o", "json").stdout), FIELDS)

    def test_types_of_the_cache(self):
        for flags, name in (([], "f16"), (["--kv-cache", "q8"], "q8_0")):
            result = json.loads(self.succeeds("bench", *SMALL, *flags, "--json").stdout)["results"][0]
            self.assertEqual((result["type_k"], result["type_v"]), (name, name))

    def test_json_lines(self):
        lines = self.succeeds("bench", *SMALL, "-o", "jsonl").stdout.splitlines()
        self.check([json.loads(line) for line in lines], FIELDS)

    def test_one_json_object(self):
        document = json.loads(self.succeeds("bench", *SMALL, "--json").stdout)
        self.assertEqual(document["schema_version"], 1)
        self.check(document["results"], FIELDS)

    def test_csv(self):
        rows = list(csv.reader(io.StringIO(self.succeeds("bench", *SMALL, "-o", "csv").stdout)))
        self.assertEqual(rows[0], [f for f in FIELDS if not f.startswith("samples_")])
        self.assertEqual(len(rows), 3)
        self.assertTrue(all(len(row) == len(rows[0]) for row in rows))

    def test_lists_and_ranges(self):
        def tests(*flags):
            out = self.succeeds("bench", "-r", "1", "-t", "1", "--no-warmup", "-o", "jsonl", *flags).stdout
            return [(r["n_threads"], r["n_prompt"], r["n_gen"]) for r in map(json.loads, out.splitlines())]
        self.assertEqual(tests("-p", "2,4", "-p", "6", "-n", "0"), [(1, 2, 0), (1, 4, 0), (1, 6, 0)])
        self.assertEqual(tests("-p", "2-8*2", "-n", "1-3"),
                         [(1, 2, 0), (1, 4, 0), (1, 8, 0), (1, 0, 1), (1, 0, 2), (1, 0, 3)])
        self.assertEqual(tests("-p", "2-8+3", "-n", "0", "-t", "2"),
                         [(t, p, 0) for t in (1, 2) for p in (2, 5, 8)])

    def test_several_models(self):
        out = self.succeeds("bench", MODEL, MODEL, "-p", "4", "-n", "0", "-r", "1", "-o", "jsonl").stdout
        self.assertEqual([json.loads(line)["model_filename"] for line in out.splitlines()], [MODEL, MODEL])
        self.fails(1, "bench", "-m", "/nonexistent/a,/nonexistent/b", *SMALL, says="/nonexistent/a")

    def test_synthetic_names_are_checked(self):
        for spec in ("gpt5:u2", "llama3-8b", "llama3-8b:u9", "llama3-8b:u2:x"):
            self.fails(2, "bench", "--synthetic", spec, *SMALL, says=re.escape(spec)[:4])

    def test_synthetic_split_codes(self):
        results = json.loads(self.succeeds("bench", "--synthetic", "mobilellm-1.5b:u3:i8", "-p", "4", "-n", "1", "-r",
                                           "1", "--no-warmup", "-o", "json").stdout)
        self.assertEqual([(r["model_type"], r["n_prompt"], r["n_gen"]) for r in results],
                         [("llama 1.5B u3", 4, 0), ("llama 1.5B u3", 0, 1)])
        # 1.52e9 codes of 3 bits with an f32 scale per row; a head of 8.5 bits; norms.
        self.assertAlmostEqual(results[0]["model_size"] / 0.63e9, 1, delta=0.05)

    def test_synthetic_codebook(self):
        results = json.loads(self.succeeds("bench", "--synthetic", "mobilellm-1.5b:mxfp4:i8", "-p", "4", "-n", "1", "-r",
                                           "1", "--no-warmup", "-o", "json").stdout)
        self.assertEqual([(r["model_type"], r["n_prompt"], r["n_gen"]) for r in results],
                         [("llama 1.5B mxfp4", 4, 0), ("llama 1.5B mxfp4", 0, 1)])
        # 1.52e9 codes of 4 bits with an f16 scale per 32; a head of 8.5 bits; norms.
        self.assertAlmostEqual(results[0]["model_size"] / 0.91e9, 1, delta=0.05)

    def test_results_before_a_failure_stay_readable(self):
        done = self.fails(1, "bench", MODEL, "/nonexistent/b", "-p", "4", "-n", "0", "-r", "1", "-o", "json")
        self.assertEqual(len(json.loads(done.stdout)), 1)


if __name__ == "__main__":
    unittest.main()
