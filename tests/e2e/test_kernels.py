"""crumb kernels and crumb devices."""
import json
import os
import re
import tempfile
import unittest

from command import CommandTest


class Kernels(CommandTest):
    def listed(self, *arguments):
        return json.loads(self.succeeds("kernels", "list", "--json", *arguments).stdout)["kernels"]

    def test_list_filters(self):
        everything = self.listed()
        self.assertEqual(len({row["name"] for row in everything}), len(everything))
        for row in everything:
            self.assertTrue(row["bound"], row["name"])
        self.assertEqual({row["op"] for row in self.listed("--op", "gemv")}, {"gemv"})
        self.assertEqual({row["weights"] for row in self.listed("--bits", "1.58")}, {"u2"})
        self.assertEqual({row["weights"] for row in self.listed("--bits", "1,mxfp4")}, {"u1", "c4"})
        self.assertEqual({row["isa"] for row in self.listed("--target", "cpu:avxvnni")}, {"avxvnni"})
        self.assertEqual({row["name"] for row in self.listed("--target", "cpu:avxvnniint8")},
                         {"gemv_c4_i8__avxvnniint8", "gemm_c4_i8__avxvnniint8", "georganas_u2_i8__avxvnniint8",
                          "georganas_u1_i8__avxvnniint8"})
        self.assertTrue(all("georganas" in row["name"] for row in self.listed("--filter", "georganas")))
        text = self.succeeds("kernels", "list", "--filter", "georganas_u2").stdout
        self.assertIn("[M/32][K/4][m8][k4][m4]", text)

    def test_layouts_kernels_are_never_chosen(self):
        names = {name for row in self.supported() for name in row["chosen"].values()}
        ranks = {row["name"]: row["rank"] for row in self.listed()}
        self.assertTrue(names and all(ranks[name] >= 0 for name in names))
        self.assertIn("kernels run here", self.succeeds("kernels", "support").stdout)

    def supported(self, *arguments):
        """The formats of `kernels support`, with the kernels by their shapes."""
        rows = json.loads(self.succeeds("kernels", "support", "--json", *arguments).stdout)["formats"]
        return [{**row, "chosen": {(c["m"], c["k"], c["n"]): c["kernel"] for c in row["chosen"]}} for row in rows]

    def test_support_takes_shapes_and_groups(self):
        """Without them, groups are those that files of a format have: layouts for one scale a row are seen."""
        groups = {row["bits"]: row["group"] for row in self.supported()}
        self.assertEqual(groups, {"1": 0, "1.58": 0, "2": 0, "3": 16, "4": 32, "5": 32, "6": 16, "8": 32, "mxfp4": 32, "iq4_nl": 32})
        (row,) = self.supported("--bits", "1", "--target", "cpu:avx2")
        self.assertEqual(row["chosen"][1024, 4096, 1], "gemv_b8_i8__avx2")
        rows = self.supported("--bits", "2,4", "--group", "16,0", "--shape", "64x96x1,128x256x33", "--target", "cpu:avx2")
        self.assertEqual([(row["bits"], row["group"]) for row in rows], [("2", 16), ("2", 0), ("4", 16), ("4", 0)])
        for row in rows:
            gemm = f"gemm_u{row['bits']}_i8__avx2"
            self.assertEqual(row["chosen"], {(64, 96, 1): f"gemv_u{row['bits']}_i8__avx2", (128, 256, 33): gemm})
        text = self.succeeds("kernels", "support", "--bits", "4", "--group", "16,0", "--shape", "64x96x1").stdout
        self.assertRegex(text, r"bits +scales per 64x96x1\n4 +16 +gemv_u4_i8__\w+\n4 +row +gemv_u4_i8__\w+\n$")

    def test_tiers_that_do_not_run_here(self):
        """None stands in for another: what a plan of such a tier takes, there is no telling."""
        here = {row["isa"] for row in self.listed() if row["runs_here"]}
        missing = sorted({row["isa"] for row in self.listed()} - here)
        if not missing:
            self.skipTest("the processor has all of them")
        for command in (["kernels", "support"], ["bench", "--suite", "cpu"], ["tune"], ["run", "-n", "1"]):
            self.fails(4, *command, "--target", "cpu:" + missing[0], says=f"cpu:{missing[0]}")
            self.fails(4, *command, "--target", "cpu:" + missing[0], says="this processor cannot run it; its best is ")

    def test_groups_that_divide_no_row(self):
        for group, shape, row in (("24", None, 32), ("24,32", None, 32), ("48", "64x96x1", 96), ("64", "64x96x1,64x32", 96),
                                  ("64", "64x96x1,64x128", 96)):
            given = ["--group", group, *(["--shape", shape] if shape else [])]
            refused = self.fails(2, "kernels", "test", *given, "--bits", "4", says=f"do not divide a row of {row}; there are ")
            self.assertRegex(refused.stderr, rf"groups of {group.split(',')[0]} ")
        self.succeeds("kernels", "test", "--filter", "gemm_u4_i8__ref", "--bits", "4", "--group", "32", "--shape", "17x100x1")  # padded
        self.succeeds("kernels", "test", "--filter", "gemm_u4_i8__ref", "--bits", "4", "--group", "64,32", "--shape", "17x96x1,17x128x1")
        for command in (["perf", "--bits", "4"], ["support"]):
            self.fails(2, "kernels", *command, "--group", "32", "--shape", "64x100x1", says="groups of 32 do not divide a row of 100")
        self.fails(2, "kernels", "support", "--group", "24", says="groups of 24 do not divide a row of 4096")

    def test_test_counts_and_repeats(self):
        done = json.loads(self.succeeds("kernels", "test", "--json", "--bits", "2", "--shape", "33x256x3").stdout)
        self.assertEqual(done["failed"], 0)
        self.assertGreater(done["run"], 2)
        self.assertEqual(done["run"] + done["skipped"], len(done["kernels"]))
        self.assertTrue(all(row["values"] > 0 for row in done["kernels"] if row["verdict"] == "ok"))
        given = ["--op", "gemv", "--bits", "2"]
        every = json.loads(self.succeeds("kernels", "test", "--json", *given, "--shape", "17x96x1", "--group", "16").stdout)
        self.assertGreater(every["unasked"], 0)  # the papers' take no groups of 16
        self.assertEqual(every["run"] + every["skipped"] + every["unasked"], len(self.listed(*given)))
        text = self.succeeds("kernels", "test", "--filter", "gemm_u1_i8__ref", "--shape", "17x96x1", "--seed", "7").stdout
        self.assertRegex(text, r"(?s)^seed 7\n.*gemm_u1_i8__ref +ok .*\n1 kernels compared in \d+ values: 0 failed")
        self.fails(1, "kernels", "test", "--filter", "no such kernel", says="no kernel was tested")

    def test_ops_that_are_no_low_bit_products(self):
        """Each runs in a plan of one op; whose tier does not run here is skipped with the reason."""
        for op, n in {"norm": 2, "rope": 2, "gated": 2, "quantize": 2, "attention": 8, "dense": 6}.items():
            done = json.loads(self.succeeds("kernels", "test", "--json", "--op", op).stdout)
            self.assertEqual((done["failed"], done["run"] + done["skipped"]), (0, n), op)
            self.assertGreaterEqual(done["run"], n // 4, op)
            self.assertEqual({row["op"] for row in self.listed("--op", op)}, {op})
        for op in ("norm", "rope", "gated", "quantize", "attention", "dense"):  # shapes that are none of its forms'
            self.succeeds("kernels", "test", "--op", op, "--shape", "7x33x2,1x1x1,16x100x9")
        one = ["kernels", "test", "--json", "--filter", "norm__ref"]  # has forms 5 and 6
        values = [json.loads(self.succeeds(*one, "--form", form).stdout)["kernels"][0]["values"] for form in "056"]
        self.assertEqual((values[0], values[1] > 0, values[2] > 0), (values[1] + values[2], True, True))
        self.fails(1, *one, "--form", "7", says="no kernel was tested")
        for form in "99", "1000":
            self.fails(2, *one, "--form", form, says=f"--form {form}: there are forms 1 to ")
        names = {row["name"] for row in self.listed("--op", "attention")}
        self.assertIn("attention_q8__avx512ymm", names)
        run = ["kernels", "perf", "--op", "attention", "--filter", "q8__ref", "--shape", "300x256x5", "--rounds", "1", "-t", "1"]
        results = json.loads(self.succeeds(*run, "--json").stdout)["results"]
        self.assertEqual([(row["kernel"], row["m"], row["n"]) for row in results], [("attention_q8__ref", 300, 5)])
        self.assertGreater(results[0]["ns"], 0)
        self.assertEqual((results[0]["cold"], results[0]["cold_bytes"], results[0]["limit"]), (False, 0, "-"))
        self.assertNotIn("warm_ns", results[0])

    def test_ops_in_plans_are_timed_cold(self):
        if not any(row["runs_here"] for row in self.listed("--filter", "norm__avx2")):
            self.skipTest("the processor has no AVX2")
        run = ["kernels", "perf", "--filter", "__avx2", "--rounds", "9", "-t", "1", "--cold"]
        ops = {op: json.loads(self.succeeds(*run, "--op", op, "--shape", shape, "--json").stdout)["results"]
               for op, shape in (("attention", "2048x2048x1"), ("norm", "1x2048x4"), ("dense", "2048x2048x1"), ("quantize", "256x2048x9"))}
        for op, results in ops.items():
            self.assertGreater(len(results), 0, op)
            for row in results:
                self.assertTrue(row["cold"])
                self.assertGreaterEqual(row["cold_bytes"], row["bytes"])
                self.assertGreater(row["cold_bytes"], 0)
                self.assertGreater(row["warm_ns"], 0)
                self.assertIn(row["limit"], ("-",) if op == "quantize" else ("bandwidth", "compute", "port", "latency"))
        peaks = {row["kernel"]: row["peak_gops"] > 0 for row in ops["attention"]}
        self.assertEqual(peaks, {"attention_f16__avx2": False, "attention_q8__avx2": True})
        text = self.succeeds(*run, "--op", "attention", "--shape", "300x256x1").stdout
        self.assertRegex(text, r"kernel +op, cold +us +KB +GB/s +memory +% read +GFLOPS +peak +% peak +limit\n")
        self.assertRegex(text, r"attention_q8__avx2 .* [\d.]+  (bandwidth|compute|port|latency)\n")

    def test_perf_prints_what_it_measures(self):
        run = ["kernels", "perf", "--bits", "1.58", "--shape", "256x512x1", "--rounds", "3", "-t", "1", "--filter", "u2_i8"]
        results = json.loads(self.succeeds(*run, "--cold", "--json").stdout)["results"]
        self.assertGreaterEqual(len(results), 1)
        for row in results:
            self.assertTrue(row["cold"])
            self.assertGreaterEqual(row["cold_bytes"], row["weight_bytes"])
            self.assertIn(row["limit"], ("bandwidth", "int8 port", "port", "latency"))
            self.assertGreater(row["prepare_ns"], 0, row["kernel"])  # int8 at least
            self.assertAlmostEqual(row["gops"], 2 * 256 * 512 / row["ns"], places=3)
            self.assertAlmostEqual(row["gb_s"], row["weight_bytes"] / row["ns"], places=3)
            if "scalar" not in row["kernel"] and "ref" not in row["kernel"]:
                for key in ("read_gb_s", "peak_gops", "clock_ghz", "gamma"):
                    self.assertGreater(row[key], 0, (row["kernel"], key))
        warm = json.loads(self.succeeds(*run, "--json").stdout)["results"]
        self.assertEqual({row["cold_bytes"] for row in warm}, {0})
        text = self.succeeds(*run).stdout
        self.assertRegex(text, r"1\.58 bits, group 0, 256 x 512, 1 rows, 1 threads, weights warm, clock [\d.]+ GHz\n")
        self.assertRegex(text, r"\n\w+_u2_i8\w*( +[\d.]+){9} ")
        self.assertRegex(text, r"kernel +us +prep us +KB +GB/s +memory +% read +GOPS +peak +% peak +gamma +error +in all +limit\n")

    def test_perf_blames_no_memory_for_what_caches_deliver(self):
        """Half a MB of 8 bits, which L2 delivers faster than memory does."""
        if not any(row["runs_here"] for row in self.listed("--filter", "gemv_u8_i8__avx2")):
            self.skipTest("the processor has no AVX2")
        run = ["kernels", "perf", "--bits", "8", "--shape", "256x2048x1", "--rounds", "5", "-t", "1", "--filter", "gemv_u8_i8__a"]
        for row in json.loads(self.succeeds(*run, "--json").stdout)["results"]:
            self.assertIn(row["limit"], ("int8 port", "port", "latency"), row)

    def test_perf_prints_errors_against_full_precision(self):
        """T-MAC's Table 3: its own steps, and 8-bit activations beside them. What is exact in integers errs alike. In all
        there is what rounding Gaussian weights costs, 0.12 and 0.0085; of 256 results a third more or less."""
        run = ["kernels", "perf", "--bits", "2,4", "--group", "128", "--shape", "512x1024x1", "--rounds", "1", "-t", "1"]
        results = json.loads(self.succeeds(*run, "--json").stdout)["results"]
        nmse = {row["kernel"].split("__")[0]: row["nmse"] for row in results}
        for row in results:
            low, high = {"2": (0.08, 0.16), "4": (0.0057, 0.0113)}[row["bits"]]
            self.assertTrue(low < row["nmse_weights"] < high, row)
        exact = {error for name, error in nmse.items() if name.startswith(("gemv_u2_i8", "gemm_u2_i8"))}
        self.assertEqual(len(exact), 1, nmse)
        self.assertTrue(1e-6 < exact.pop() < 1e-3, nmse)
        if "tmac_u2_f32" in nmse:  # a tier that has them
            self.assertLess(nmse["tmac_u2_f32_base"], 1e-6)
            self.assertLess(nmse["tmac_u2_f32_base"], nmse["tmac_u2_f32"])
            self.assertLess(nmse["tmac_u2_f32"], nmse["tmac_u2_f32_01"])
            self.assertLess(nmse["tmac_u2_f32_01"], nmse["tmac_u2_f32_fa"])
            for whole, half in (("tmac_u2_f32_whole", "tmac_u2_f32"), ("tmac_u2_f32_tq", "tmac_u2_f32_mirror")):
                self.assertEqual(nmse[whole], nmse[half])  # the same tables

    def test_bad_arguments(self):
        self.fails(2, "kernels", says="kernels list|support|test|perf")
        self.fails(2, "kernels", "lisst", says="kernels list|support|test|perf")
        self.fails(2, "kernels", "perf", "--bits", "7", says="--bits: '7'")
        for shape in ("12", "0x32x1", "16x32x", "16x32x1x1", "16x99999x1", "axb"):
            self.fails(2, "kernels", "perf", "--shape", shape, says="--shape")
        self.fails(2, "kernels", "perf", "--bits", "2", "--shape", "16x100x1", "--group", "64", says="do not divide a row of 100")
        self.fails(1, "kernels", "perf", "--filter", "gemv_t5", "--bits", "1.58", "--group", "32", "--shape", "16x128x1",
                   says="none that the options select runs here and takes one of the problems")


class Devices(CommandTest):
    def test_devices(self):
        self.assertRegex(self.succeeds("devices").stdout, r"^cpu: .* cores?, \w+\n")
        device = json.loads(self.succeeds("devices", "--json").stdout)["devices"][0]
        self.assertEqual(device["name"], "cpu")
        self.assertNotIn("read_gb_s", device)
        self.fails(2, "devices", "--nope")

    def test_kinds_of_cores(self):
        alike = {"HWLOC_SYNTHETIC": "core:6 pu:2"}
        text = self.succeeds("devices", env=alike).stdout
        if "another machine" not in text:
            self.skipTest("built without hwloc")
        self.assertRegex(text, r"^cpu: .*, 6 cores, \w+\n")
        device = json.loads(self.succeeds("devices", "--json", env=alike).stdout)["devices"][0]
        self.assertEqual(device["core_kinds"], [{"kind": "P", "cores": 6, "siblings": 2}])
        self.fails(2, "run", "-n", "1", "--cpu-kind", "e", env=alike, says="no E cores to run on")
        self.fails(2, "run", "-n", "1", env={**alike, "CRUMB_CPU_KIND": "e"}, says="no E cores to run on")

    def processors(self, join=lambda: None):
        """What threads of a run whose process has called `join` first were pinned to."""
        done = self.succeeds("run", "--device", "cpu", "-v", "-p", "One", "-n", "2", preexec_fn=join)
        found = re.search(r"cpu: \d+ threads on processors ([\d, ]+)", done.stderr)
        if not found:
            self.skipTest("threads cannot be pinned here")
        return [int(n) for n in found.group(1).split(",")]

    def test_affinity_masks(self):
        for cpu in sorted(os.sched_getaffinity(0))[:2]:
            self.assertEqual(self.processors(lambda cpu=cpu: os.sched_setaffinity(0, {cpu})), [cpu])

    def control_group(self, controller, **files):
        """Makes one for this test, where that may be done, and returns what a process does to join it."""
        folder = f"/sys/fs/cgroup/{controller}/crumb-test-{os.getpid()}"
        try:
            os.mkdir(folder)
            self.addCleanup(os.rmdir, folder)
            for name, text in files.items():
                with open(f"{folder}/{controller}.{name}", "w", encoding="ascii") as f:
                    f.write(text)
        except OSError as reason:
            self.skipTest(f"no control groups of version 1 that may be changed: {reason}")

        def join():
            with open(f"{folder}/tasks", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        return join

    def test_a_control_groups_quota(self):
        join = self.control_group("cpu", cfs_period_us="100000", cfs_quota_us="150000")
        self.assertEqual(len(self.processors(join)), 1)

    def test_a_control_groups_processors(self):
        last = max(os.sched_getaffinity(0))
        join = self.control_group("cpuset", mems="0", cpus=str(last))
        self.assertEqual(self.processors(join), [last])

    def test_measure(self):
        cache = tempfile.TemporaryDirectory()  # the profile of this machine goes there
        self.addCleanup(cache.cleanup)
        env = {"XDG_CACHE_HOME": cache.name}
        device = json.loads(self.succeeds("devices", "--measure", "--rounds", "1", "-t", "2", "--json", env=env).stdout)["devices"][0]
        self.assertEqual(device["threads"], 2)
        self.assertGreater(device["read_gb_s"], 0)
        self.assertGreater(device["clock_ghz"], 0)
        self.assertGreaterEqual(device["step_ns"], 0)
        self.assertGreater(device["call_ns"], 0)  # never at once
        if device["reorder_window_most"]:  # 0: not known of this processor
            self.assertGreaterEqual(device["reorder_window_most"], device["reorder_window"])
            self.assertGreaterEqual(device["reorder_window"], 48)
            self.assertLessEqual(device["reorder_window_most"], 480)
        both = self.succeeds("devices", "--measure", "--rounds", "1", "-t", "2", env=env).stdout
        if device["reorder_window_most"]:
            self.assertRegex(both, r"reorder window \d+ instructions")
        self.assertRegex(both, r"2 threads: .*, a step of a plan \d+ ns, calling waiting threads \d+ ns\n")
        text = self.succeeds("devices", "--measure", "--rounds", "1", "-t", "1", env=env).stdout
        self.assertTrue(re.search(r"1 threads: read [\d.]+ GB/s, clock [\d.]+ GHz, a step of a plan \d+ ns\n", text), text)


if __name__ == "__main__":
    unittest.main()
