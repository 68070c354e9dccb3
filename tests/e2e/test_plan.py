"""crumb plan: placements on known machines, the paper's published results, and this machine once it is measured."""
import json
import os
import re
import tempfile
import unittest

from command import MODEL, SOURCE, CommandTest

LLAMA = ["--synthetic", "llama3-8b:u2"]


class Plan(CommandTest):
    def plan(self, *arguments, **options):
        return json.loads(self.succeeds("plan", *arguments, "--json", **options).stdout)

    def devices(self, plan, phase):
        """Names of the devices that compute something in a phase."""
        return {layer[phase][key] for layer in plan["layers"] for key in ("device", "other")} - {None}


class Placement(Plan):
    def test_lunar_lake(self):
        plan = self.plan(*LLAMA, "--profile", "lnl")
        self.assertEqual((plan["schema_version"], plan["machine"], plan["kernels"]), (1, "lnl", "crumb"))
        self.assertEqual(self.devices(plan, "prefill"), {"gpu0"})
        self.assertIn("cpu", self.devices(plan, "decode"))
        self.assertEqual(plan["moved_bytes"], 0)  # both devices see one cache
        self.assertEqual([layer["layer"] for layer in plan["layers"]], [*range(32), "head"])
        self.assertEqual((plan["prefill_bound"], plan["decode_bound"]), ("compute", "bandwidth"))

    def test_a_discrete_card_computes_all(self):
        for machine in ("bmg", "a770"):
            plan = self.plan(*LLAMA, "--profile", machine)
            self.assertEqual(self.devices(plan, "prefill") | self.devices(plan, "decode"), {"gpu0"})
            self.assertEqual(plan["memory_bytes"]["cpu"], 0)

    def test_what_exceeds_the_card_goes_to_the_cpu(self):
        plan = self.plan("--synthetic", "llama3-8b:bf16", "--profile", "bmg")  # 16 GB beside 12
        on_card = [layer["decode"]["device"] == "gpu0" for layer in plan["layers"]]
        self.assertTrue(10 < sum(on_card) < 28)
        self.assertEqual(on_card, sorted(on_card))  # the last ones
        self.assertLess(plan["memory_bytes"]["gpu0"], 12e9)
        self.assertIn("hold", plan["why"])

    def test_sums_agree(self):
        plan = self.plan(*LLAMA, "--profile", "lnl", "--prompt", "2048", "--context", "4096", "-n", "16")
        for phase, total in (("prefill", plan["ttft_ms"] - plan["move_ms"]), ("decode", 1000 / plan["decode_tok_s"])):
            self.assertAlmostEqual(sum(layer[phase]["ms"] for layer in plan["layers"]) / total, 1, places=5)
            for layer in plan["layers"]:
                parts = sum(layer[phase][k] for k in ("read_ms", "compute_ms", "launch_ms", "exchange_ms"))
                self.assertAlmostEqual(parts / layer[phase]["ms"], 1, places=5)
        self.assertEqual(plan["considered"][0]["name"], plan["placement"])
        self.assertGreater(plan["ttft_ms"], self.plan(*LLAMA, "--profile", "lnl")["ttft_ms"])

    def test_constraints(self):
        plan = self.plan(*LLAMA, "--profile", "lnl", "-ngl", "5")
        self.assertEqual([layer["decode"]["device"] for layer in plan["layers"]], 28 * ["cpu"] + 5 * ["gpu0"])
        plan = self.plan(*LLAMA, "--profile", "lnl", "--split", "0.25")
        self.assertEqual({layer["decode"]["share"] for layer in plan["layers"]}, {0.25})
        self.assertIn("stays", plan["split_simulated"])
        for name in ("cpu", "gpu0"):
            plan = self.plan(*LLAMA, "--profile", "lnl", "--device", name)
            self.assertEqual(self.devices(plan, "prefill") | self.devices(plan, "decode"), {name})
        self.plan(*LLAMA, "--profile", "lnl", "--device", "cpu+gpu0")

    def test_ternary_weights_lie_as_the_profile_says(self):
        with open(os.path.join(SOURCE, "scheduler", "profiles", "lnl.json"), encoding="utf-8") as f:
            text = f.read()
        for gb_s, bits in ((12, "1.6"), (97, "2")):  # for the one thread that plain AVX2 looks sums up with
            with tempfile.NamedTemporaryFile("w", suffix=".json") as profile:
                profile.write(re.sub(r'"(read|together)_gb_s": \[[0-9.]+', rf'"\1_gb_s": [{gb_s}', text))
                profile.flush()
                said = self.succeeds("run", "-m", MODEL, "-p", "A", "-n", "1", "--device", "cpu", "-t", "1", "-v",
                                     "--target", "cpu:avx2", "--profile", profile.name).stderr
            self.assertIn(f"ternary weights with a scale per row at {bits} bits", said)
        self.fails(2, "run", "-m", MODEL, "-p", "A", "--device", "cpu", "--profile", "moon", says="no machine 'moon'")

    def test_text(self):
        page = self.succeeds("plan", *LLAMA, "--profile", "lnl").stdout
        for word in ("llama3-8b:u2 on lnl", "0-31, each", "head", "TTFT", "decode_tok_s", "why: prefill on gpu0", "chosen",
                     "estimates"):
            self.assertIn(word, page)

    def test_files(self):
        a, b = (self.plan(*model, "--profile", "lnl", "-p", "16", "-n", "16") for model in ([], [MODEL]))
        self.assertEqual(a["layers"], b["layers"])
        self.assertLess(len(a["layers"]), 32)

    def test_every_machine_and_both_kernels(self):
        for machine in ("arl", "arlh", "lnl", "bmg", "a770", "ptl"):
            plan = self.plan(*LLAMA, "--profile", machine)
            self.assertTrue(10 < plan["decode_tok_s"] < 300)
            for figure in plan["figures"]:
                self.assertGreater(len(figure["source"]), 5)
        a770 = self.plan(*LLAMA, "--profile", "a770", "--kernels", "paper")
        self.assertEqual((a770["left_out"], self.devices(a770, "prefill")), ("gpu0", {"cpu"}))
        self.assertEqual(self.plan(*LLAMA, "--profile", "bmg", "--kernels", "paper")["kernels"], "paper")

    def test_a_split_on_a_card_is_one_for_both_phases(self):
        alone = self.plan(*LLAMA, "--profile", "bmg")
        split = self.plan(*LLAMA, "--profile", "bmg", "--split", "0.8")
        self.assertEqual((alone["placement"], split["placement"]), ("gpu0", "gpu0+cpu 0.80"))
        self.assertGreater(split["ttft_ms"], 2 * alone["ttft_ms"])
        self.assertLess(split["decode_tok_s"], alone["decode_tok_s"])

    def test_a_split_is_simulated(self):
        """The best one where both devices together pay, which is learned and counts its changes; --split X stays at X."""
        with open(os.path.join(SOURCE, "scheduler", "profiles", "lnl.json"), encoding="utf-8") as f:
            machine = json.load(f)
        for device, alone, together in zip(machine["devices"], (40, 70), (38, 60)):
            device["read_gb_s"][0], device["together_gb_s"][0] = alone, together
        with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
            json.dump(machine, out)
            out.flush()
            best = self.plan(*LLAMA, "--profile", out.name)
            asked = self.plan(*LLAMA, "--profile", out.name, "--split", "0.25")
            page = self.succeeds("plan", *LLAMA, "--profile", out.name).stdout
            self.assertRegex(page, r"split, simulated: 512 tokens, 1\.\d+ times .* stays with 0\.\d+ .*; 0 changes took 0\.0 ms")
            page = self.succeeds("plan", *LLAMA, "--profile", out.name, "--split", "0.25").stdout
            self.assertIn("0.25 of the rows on the first, as asked for", page)
        split, share = best["split_simulated"], best["layers"][0]["decode"]["share"]
        self.assertTrue(0.5 < share < 0.7)
        self.assertEqual((split["fixed"], split["stays"], split["changes_ms"]), (False, True, 0))
        self.assertAlmostEqual(split["share"], share, delta=2 / 32)
        self.assertGreater(min(split["first_alone_ms"], split["second_alone_ms"]) / split["total_ms"], 1.2)
        fixed = asked["split_simulated"]
        self.assertEqual((fixed["fixed"], fixed["stays"], fixed["share"], fixed["n_changes"]), (True, True, 0.25, 0))
        self.assertGreater(fixed["total_ms"], split["total_ms"])
        for plan in (best, asked):
            told = plan["split_simulated"]
            self.assertAlmostEqual(told["total_ms"] / told["n_tokens"] * plan["decode_tok_s"] / 1000, 1, delta=0.06)
        self.assertNotIn("split_simulated", self.plan(*LLAMA, "--profile", "bmg"))

    def test_errors(self):
        self.fails(2, "plan", *LLAMA, "--profile", "nothing", says="no machine 'nothing'")
        self.fails(1, "plan", *LLAMA, "--profile", "/nonexistent/m.json", says="/nonexistent/m.json")
        self.fails(2, "plan", "--synthetic", "llama9:u2", "--profile", "lnl", says="llama9")
        self.fails(2, "plan", MODEL, *LLAMA, "--profile", "lnl", says="only one")
        self.fails(4, "plan", *LLAMA, "--profile", "lnl", "--device", "gpu7", says="gpu7")
        self.fails(2, "plan", *LLAMA, "--profile", "lnl", "--split", "2", says="--split 2")
        self.fails(2, "plan", *LLAMA, "--profile", "arl", "-ngl", "3", says="no GPU")
        self.fails(5, "plan", *LLAMA, "--profile", "lnl", "--context", "1000000", says="GB")
        self.fails(3, "plan", *LLAMA, "--profile", "ptl", "--kernels", "paper", says="'cpu.kernels.paper'")

    def test_a_profile_from_a_file(self):
        with open(os.path.join(SOURCE, "scheduler", "profiles", "bmg.json"), encoding="utf-8") as f:
            machine = json.load(f)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.json")

            def write():
                with open(path, "w", encoding="utf-8") as out:
                    json.dump(machine, out)
            machine["devices"][1]["read_gb_s"][0] = 228
            machine["devices"][1]["together_gb_s"][0] = 228
            write()
            half, whole = (self.plan(*LLAMA, "--profile", p, "--device", "gpu0")["decode_tok_s"] for p in (path, "bmg"))
            self.assertTrue(1.7 < whole / half < 2)
            machine["devices"][1]["read_gb_s"][0] = -1
            write()
            done = self.fails(3, "plan", *LLAMA, "--profile", path, says="'gpu0.read_gb_s'")
            self.assertIn("mine.json", done.stderr)


class Paper(Plan):
    def test_published_tokens_are_predicted(self):
        rows = json.loads(self.succeeds("plan", "--kernels", "paper", "--json").stdout)["rows"]
        found = {(r["machine"], r["device"], r["model"]): r for r in rows if r["quantity"] == "decode_tok_s"}
        for key in (("bmg", "gpu0", "Llama3-8B"), ("lnl", "gpu0", "Llama3-8B"), ("lnl", "cpu", "Llama3-8B")):
            self.assertLess(abs(found[key]["error"]), 0.15, key)
            self.assertAlmostEqual(found[key]["predicted"] / found[key]["paper"] - 1, found[key]["error"], places=6)
            self.assertIn("2.81 GB a token", found[key]["note"])
        self.assertEqual(len(found), 7)

    def test_what_components_cannot_give_is_said(self):
        document = json.loads(self.succeeds("plan", "--kernels", "paper", "--json").stdout)
        ratio = next(r for r in document["rows"] if r["quantity"] == "gpu_over_cpu")
        self.assertTrue(13 < ratio["predicted"] < 17 and ratio["paper"] == 26)
        self.assertIn("no component says so", ratio["note"])
        self.assertRegex(ratio["note"], r"\(5[67]% with tokens as published\)")
        readings = [r["predicted"] for r in ratio["readings"]]
        self.assertEqual(readings[0], ratio["predicted"])
        for predicted, least, most in zip(readings, (14, 14.8, 15.4, 16), (14.8, 15.2, 16, 16.5)):
            self.assertTrue(least < predicted < most, readings)
        for r in document["rows"]:
            self.assertTrue(r["note"])
            if r["predicted"] is None:
                self.assertIn("not published", r["note"])
        self.assertGreater(len(document["assumptions"]), 5)
        self.assertGreater(len(document["estimates"]), 10)

    def test_text(self):
        page = self.succeeds("plan", "--kernels", "paper").stdout
        self.assertIn("bmg gpu0, Llama3-8B 2-bit, tok/s", page)
        self.assertLessEqual(max(map(len, page.splitlines()[:60])), 100)


class Explained(Plan):
    """Of a run both phases are told, predicted and measured: all tokens that were fed, a prompt's also where they are few,
    or where one is left over behind a whole batch."""
    CPU = ["--device", "cpu", "--profile", "lnl"]
    SMALL = "One day a small dog "

    def explained(self, prompt, *more):
        done = self.succeeds("run", "-n", "8", "--ignore-eos", "--explain", "-p", prompt, *self.CPU, *more)
        told = dict(re.findall(r"explain: (prefill|decode) of (\d+) tokens: predicted [0-9.]+ ms(?: each)?, "
                               r"measured [0-9.]+ \([+-][0-9]+ %\)", done.stderr))
        done = self.succeeds("run", "-n", "8", "--ignore-eos", "--explain", "--json", "-p", prompt, *self.CPU, *more)
        end = json.loads(done.stdout.splitlines()[-1])
        explained = end["explain"]
        for phase, n in (("prefill", end["n_prompt"]), ("decode", end["n_decode"])):
            self.assertEqual((explained[phase]["n_tokens"], told[phase]), (n, str(n)))
            self.assertGreater(explained[phase]["predicted_ms"], 0)
            self.assertGreater(explained[phase]["measured_ms"], 0)
        return explained, end["n_prompt"]

    def test_prompts_of_all_lengths(self):
        for prompt in ("", "One", self.SMALL, 4 * self.SMALL, 20 * self.SMALL):
            explained, n = self.explained(prompt)
            plan = self.plan(*self.CPU, "--prompt", str(n))
            self.assertAlmostEqual(explained["prefill"]["predicted_ms"] / plan["ttft_ms"], 1, places=5, msg=f"{n} tokens")
            placed = explained["placed_for"]
            plan = self.plan(*self.CPU, "--prompt", str(placed["n_prompt"]), "-n", str(placed["n_generate"]))
            self.assertAlmostEqual(placed["prefill_ms"] / plan["ttft_ms"], 1, places=5)
            self.assertAlmostEqual(placed["decode_ms"] * plan["decode_tok_s"] / 1000, 1, places=5)
            learned = {r["phase"] for r in explained["ratios"]}
            self.assertEqual("prefill" in learned, n >= 32)  # few rows tell nothing of throughput

    def test_what_options_say_of_cache_and_batches_counts(self):
        prompt = 20 * self.SMALL
        usual, n = self.explained(prompt)
        small, _ = self.explained(prompt, "-ctk", "q8_0", "-ctv", "q8_0", "-c", "300", "-ub", "64")
        told = small["placed_for"]
        self.assertEqual([told[k] for k in ("n_generate", "n_ctx", "n_batch", "kv_cache")], [8, 300, 64, "q8_0"])
        self.assertEqual((usual["placed_for"]["n_batch"], usual["placed_for"]["kv_cache"]), (512, "f16"))
        self.assertLess(small["decode"]["predicted_ms"], usual["decode"]["predicted_ms"])
        one_type, _ = self.explained(prompt, "--kv-cache", "q8")
        for cache in (["--kv-cache", "q8"], ["-ctk", "q8_0", "-ctv", "q8_0"]):
            plan = self.plan(*self.CPU, "--prompt", str(n), *cache)
            self.assertAlmostEqual(one_type["prefill"]["predicted_ms"] / plan["ttft_ms"], 1, places=5)
        self.fails(2, "plan", *self.CPU, "-ctk", "q8_0", says="kept alike")
        more, less = (self.plan(*LLAMA, "--profile", "bmg", "-ub", n) for n in ("512", "64"))
        self.assertEqual(more["memory_bytes"]["gpu0"] - less["memory_bytes"]["gpu0"], 448 * 4 * (6 * 4096 + 2 * 14336))
        self.assertLess(more["ttft_ms"], less["ttft_ms"])

    def test_a_token_behind_a_batch(self):
        explained, n = self.explained(20 * self.SMALL)
        behind, _ = self.explained(20 * self.SMALL, "-ub", str(n - 1))
        self.assertGreater(behind["prefill"]["predicted_ms"], explained["prefill"]["predicted_ms"])


class ThisMachine(Plan):
    def explained(self, env):
        done = self.succeeds("run", "-n", "40", "--ignore-eos", "--temp", "0", "--device", "cpu", "--explain", "--json",
                             env=env)
        return json.loads(done.stdout.splitlines()[-1])["explain"]

    def check_corrections(self, env, path, plan):
        """Three runs are believed, in what is kept, in what they expect, and by crumb plan; a damaged file is not."""
        runs = [self.explained(env) for _ in range(3)]
        self.assertEqual((runs[0]["layers"], runs[0]["profile"]), ("cpu", "this"))
        self.assertEqual(runs[0]["decode"]["n_tokens"], 39)
        self.assertEqual(os.stat(path).st_mode & 0o77, 0)
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)["devices"]["cpu"]["decode"]
        ratios = [next(r for r in run["ratios"] if r["phase"] == "decode") for run in runs]
        self.assertEqual((ratios[0]["expected"], ratios[1]["expected"], kept["sessions"]), (1, 1, 3))
        for last, ratio in zip(kept["last"], ratios):
            self.assertAlmostEqual(last, min(max(ratio["measured_to_profile"], 0.25), 4), places=4)
        factor = kept["factor"]
        now = self.explained(env)
        self.assertAlmostEqual(next(r for r in now["ratios"] if r["phase"] == "decode")["expected"], factor, places=5)
        with open(path, encoding="utf-8") as f:
            factor = json.load(f)["devices"]["cpu"]["decode"]["factor"]
        corrected = self.plan(*LLAMA, env=env)
        self.assertAlmostEqual(plan["decode_tok_s"] / corrected["decode_tok_s"], factor, delta=0.02 * factor)
        with open(path, "w", encoding="utf-8") as f:
            f.write("{")
        self.assertEqual(self.plan(*LLAMA, env=env)["decode_tok_s"], plan["decode_tok_s"])
        self.explained(env)
        with open(path, encoding="utf-8") as f:
            self.assertEqual(json.load(f)["devices"]["cpu"]["decode"]["sessions"], 1)

    def test_measured_once_and_kept(self):
        with tempfile.TemporaryDirectory() as cache:
            env = {"XDG_CACHE_HOME": cache, "CRUMB_MODULE_DIR": "/nonexistent"}
            self.fails(4, "plan", *LLAMA, env=env, says="crumb devices --measure")
            done = self.succeeds("devices", "--measure", "--rounds", "1", "--json", env=env)
            self.assertIn("crumb plan --profile this", done.stderr)
            plan = self.plan(*LLAMA, env=env)
            self.assertEqual(self.devices(plan, "prefill") | self.devices(plan, "decode"), {"cpu"})
            self.assertGreater(plan["decode_tok_s"], 0)
            self.check_corrections(env, os.path.join(cache, "crumb", "corrections.json"), plan)
            path = os.path.join(cache, "crumb", "profile.json")
            with open(path, encoding="utf-8") as f:
                text = f.read()
            self.assertEqual(os.stat(path).st_mode & 0o77, 0)
            key = json.loads(text)["key"]
            device = json.loads(text)["devices"][0]
            kernels = device["kernels"]["crumb"]
            for value, source in (kernels["launch_us"], device["exchange_us"], *kernels["work"]["f16"].values(),
                                  *kernels["work"]["attention"].values()):
                self.assertGreater(value, 0)
                self.assertTrue(source.startswith("measured"), source)
            self.assertFalse([f["key"] for f in plan["figures"] if f["source"].startswith("estimated")])
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(key, "0" * 16))
            self.fails(4, "plan", *LLAMA, env=env, says="anew")


if __name__ == "__main__":
    unittest.main()
