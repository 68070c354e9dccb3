"""crumb tune: measuring, keeping, showing, moving and using what was measured."""
import fcntl
import json
import os
import pty
import re
import subprocess
import tempfile
import termios
import unittest

from command import COMMAND, MODEL, SOURCE, CommandTest, alter, environment

TIERS = ["scalar", "avx2", "avxvnni", "avxvnniint8", "avx512ymm", "avx512vnni", "avx512vbmi"]
MEASURED, CONFIRMED = 3, 25  # rounds
SHAPE = ["--bits", "1.58", "--shape", "256x512x1", "-t", "1"]


class Tune(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.database = os.path.join(self.folder.name, "tuning.sqlite")

    def tune(self, *arguments):
        return self.succeeds("tune", *arguments, "--tuning", self.database)

    def exported(self):
        return [json.loads(line) for line in self.tune("export").stdout.splitlines()]

    def test_measures_keeps_and_resumes(self):
        first = json.loads(self.tune(*SHAPE, "--op", "gemv", "--budget", "60s", "--json").stdout)
        with open(self.database, "rb") as f:
            n_writes = int.from_bytes(f.read(28)[24:], "big")  # the transactions, as SQLite's header counts them
        self.assertGreaterEqual(first["candidates"], 100)
        self.assertEqual(first["measured"], first["candidates"])
        self.assertEqual(first["wrong"], 0)
        self.assertLessEqual(first["ratio"], 1)
        records = self.exported()
        # The disk is waited for after stages, seconds and confirmations, not for each candidate.
        self.assertLess(n_writes - sum(r["rounds"] == CONFIRMED for r in records), first["candidates"])
        self.assertEqual(len(records), first["candidates"])
        self.assertEqual(len({(r["kernel"], r["knobs"]) for r in records}), len(records))
        # The default is the kernel of the highest tier as it stands, and what all others are compared with.
        defaults = {r["kernel"].rpartition("__")[2]: r["ratio"] for r in records if r["knobs"] == ""}
        self.assertEqual(defaults[max(defaults, key=TIERS.index)], 1)
        again = json.loads(self.tune(*SHAPE, "--op", "gemv", "--budget", "60s", "--json").stdout)
        self.assertEqual((again["measured"], again["kernel"], again["knobs"]), (0, first["kernel"], first["knobs"]))
        self.assertIn(first["kernel"], self.tune("show").stdout)
        self.assertRegex(self.tune("prune").stdout, rf"^{len(records) - 1} measurements removed")
        self.assertEqual([r["knobs"] for r in self.exported()], [first["knobs"]])

    def test_too_few_rounds_are_measured_again(self):
        some = [*SHAPE, "--op", "gemv", "--kernel", "gemv_u2_i8__avx2", "--json"]
        first = json.loads(self.tune(*some, "--budget", "60s").stdout)
        self.assertEqual(first["measured"], first["candidates"])
        self.assertGreaterEqual(min(r["rounds"] for r in self.exported()), MEASURED)
        alter(self.database, "rounds = CASE WHEN knobs < 'n' THEN ? ELSE 0 END", MEASURED - 1)
        self.assertIn("not confirmed", self.tune("show").stdout)
        again = json.loads(self.tune(*some, "--budget", "60s").stdout)
        self.assertEqual((again["measured"], again["candidates"]), (first["measured"], first["candidates"]))
        self.assertGreaterEqual(min(r["rounds"] for r in self.exported()), MEASURED)
        self.assertNotIn("not confirmed", self.tune("show").stdout)

    def test_each_family_has_a_hundred_programs(self):
        """Of one kernel, by itself: the shapes of Falcon3 1B, and of groups of 32 and 128."""
        for shape, op in (("8192x2048x1", "gemv"), ("2048x8192x1", "gemv"), ("512x2048x512", "gemm"), ("256x8192x512", "gemm")):
            for bits, group in ((1.58, 0), (2, 128), (3, 32), (4, 32), (8, 0)):
                done = json.loads(self.tune("--shape", shape, "--bits", bits, "--group", group, "-t", 2, "--op", op,
                                            "--kernel", "__avx2", "--budget", "0.001s", "--json").stdout)
                self.assertGreaterEqual(done["candidates"], 100, (shape, bits, group))

    def test_every_knob_is_tried(self):
        self.tune("--shape", "256x512x1", "--bits", 2, "-t", 1, "--op", "gemv", "--kernel", "gemv_u2_i8__avx2", "--budget", "60s")
        tried = {knob for r in self.exported() for knob in r["knobs"].split()}
        self.assertLessEqual({"streams=1", "unroll=2", "near=256", "far=16"}, tried)
        self.assertFalse({knob for knob in tried if knob.startswith("threads=")})  # there is one

    def test_fewer_threads_are_tried(self):
        self.tune("--shape", "256x512x1", "--bits", 2, "-t", 3, "--op", "gemv", "--kernel", "gemv_u2_i8__avx2", "--budget", "60s",
                  "--fraction", "0.2")
        tried = {knob for r in self.exported() for knob in r["knobs"].split() if knob.startswith("threads=")}
        self.assertEqual(tried, {"threads=1", "threads=2"})

    def test_the_same_program_is_one_candidate(self):
        """K has one chunk, M one; so blocks of columns differ, 48, 72, 96, 132, 180 and 264 of 512, and four distances."""
        done = json.loads(self.tune("--shape", "64x32x512", "--bits", 2, "-t", 1, "--op", "gemm", "--kernel", "gemm_u2_i8__avx2",
                                    "--budget", "0.001s", "--json").stdout)
        self.assertIn(done["candidates"], (24, 25))  # and the default, where that is another tier's kernel

    def until(self, terminal, pattern):
        """What a terminal shows until the pattern is seen, or to the end."""
        seen = b""
        try:
            while not (pattern and re.search(pattern, seen)) and (part := os.read(terminal, 4096)):
                seen += part
        except OSError:  # what a terminal says whose other end is closed
            pass
        return seen

    def test_the_bar_says_what_leads_and_an_interrupt_keeps_what_is_measured(self):
        many = ["--bits", "8", "--shape", "8192x2048x1", "-t", "1", "--op", "gemv"]
        terminal, end = pty.openpty()
        process = subprocess.Popen([COMMAND, "tune", *many, "--budget", "100s", "--tuning", self.database], stdin=end,
                                   stdout=end, stderr=end, env=environment(TERM="xterm"), start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(end)
        seen = self.until(terminal, rb"\r[^\r]* \d+ left, best \d\.\d{3} \[#*\.*\] +\d+%")
        os.write(terminal, b"\x03")
        seen += self.until(terminal, None)
        os.close(terminal)
        self.assertEqual(process.wait(), 130, seen)
        bars = [line for line in seen.decode().split("\r") if "%" in line]  # no bar says what is checked at once
        for bar in bars:
            self.assertRegex(bar, r"^u8 8192x2048x1, .*: (\d+ of \d+ checked|\d+ left, best \d\.\d{3}) \[#*\.*\] +\d+%")
        kept = self.exported()
        self.assertGreater(len(kept), 0)
        self.assertIn(1, [r["ratio"] for r in kept if not r["knobs"]])  # the default, which the others are compared with
        done = json.loads(self.tune(*many, "--budget", "8s", "--json").stdout)
        measured = [r for r in kept if r["rounds"] >= MEASURED]
        self.assertLess(len(kept), done["candidates"])
        self.assertLessEqual(done["measured"], done["candidates"] - len(measured) + 1)  # the default is timed again
        now = {(r["kernel"], r["knobs"]): r for r in self.exported()}
        for r in kept:
            self.assertGreaterEqual(now[r["kernel"], r["knobs"]]["rounds"], min(r["rounds"], MEASURED))

    def test_an_interrupt_replaces_no_median_by_less(self):
        """Of the second stage, whose candidates have had three rounds before."""
        terminal, end = pty.openpty()
        process = subprocess.Popen([COMMAND, "tune", "--bits", "8", "--shape", "8192x2048x1", "-t", "1", "--op", "gemv", "--kernel",
                                    "gemv_u8_i8__avx2", "--fraction", "0.6", "--budget", "100s", "--tuning", self.database], stdin=end,
                                   stdout=end, stderr=end, env=environment(TERM="xterm"), start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(end)
        seen = self.until(terminal, rb" (\d+) left")
        n_first = re.search(rb" (\d+) left", seen)[1]
        seen = self.until(terminal, rb" (?!" + n_first + rb" )\d+ left")
        os.write(terminal, b"\x03")
        self.until(terminal, None)
        os.close(terminal)
        self.assertEqual(process.wait(), 130, seen)
        self.assertEqual([r for r in self.exported() if r["rounds"] < MEASURED], [])

    @unittest.skipIf(os.environ.get("CRUMB_SANITIZE"), "a sanitizer's library must come before a preloaded one")
    def test_a_crash_keeps_what_was_measured_before(self):
        """In the midst of the first stage, by a clock that is a second later each time it is read."""
        with subprocess.Popen([COMMAND, "tune", "--bits", "8", "--shape", "8192x2048x1", "-t", "1", "--op", "gemv", "--fraction", "0.3",
                               "--budget", "1000h", "--tuning", self.database], stdout=subprocess.DEVNULL,
                              env=environment(LD_PRELOAD=os.environ["CRUMB_FAST_CLOCK"])) as process:
            while not os.path.exists(self.database) or not self.exported():
                self.assertIsNone(process.poll())
            process.kill()
        self.assertLess(min(r["rounds"] for r in self.exported()), MEASURED)

    def test_what_leads_is_measured_once_more(self):
        some = [*SHAPE, "--op", "gemv", "--fraction", "0.05"]
        best = json.loads(self.tune(*some, "--json").stdout)
        self.assertTrue(best["confirmed"])
        self.assertTrue(best["ratio"] == 1 or best["rounds"] == CONFIRMED)
        self.assertTrue(all(r["ratio"] >= best["ratio"] or r["rounds"] < CONFIRMED for r in self.exported()))
        # One that seems to lead by far, as when another program slowed the default down while it was measured.
        lucky = max(self.exported(), key=lambda r: (r["knobs"] != "" and r["rounds"] < CONFIRMED, r["ratio"]))
        alter(self.database, "ratio = 0.001, rounds = 15 WHERE kernel = ? AND knobs = ?", lucky["kernel"], lucky["knobs"])
        # Where the time is up, the one before is still what plans take, and the user knows.
        late = self.tune(*some, "--budget", "0.001s", "--json")
        after = json.loads(late.stdout)
        self.assertEqual([after[key] for key in ("kernel", "knobs", "ratio", "measured", "confirmed")],
                         [best["kernel"], best["knobs"], best["ratio"], 0, False])
        self.assertRegex(late.stderr, re.escape(f"{lucky['kernel']} {lucky['knobs']} seems to be better, with 0.001 of") +
                         ".* 'crumb tune' is run again")
        self.assertIn(f": {best['kernel']} {best['knobs'] or '(default)'}: ", self.tune("show").stdout)
        # Another run measures it.
        best = json.loads(self.tune(*some, "--json").stdout)
        self.assertGreater(best["ratio"], 0.001)
        self.assertTrue(best["confirmed"])
        said = [r for r in self.exported() if (r["kernel"], r["knobs"]) == (lucky["kernel"], lucky["knobs"])]
        self.assertEqual([r["rounds"] for r in said], [CONFIRMED])

    def test_a_part_of_the_candidates(self):
        some = json.loads(self.tune(*SHAPE, "--op", "gemv", "--fraction", "0.1", "--json").stdout)
        self.assertLess(some["candidates"], 80)

    def test_codebooks_have_keys_of_their_own(self):
        """On AVX2 kernels take one codebook and not another: what was found for one would be asked of the other."""
        for bits in ("iq4_nl", "mxfp4"):
            done = json.loads(self.tune("--bits", bits, "--group", 32, "--shape", "256x512x1", "-t", 1, "--op", "gemv", "--target", "cpu:avx2",
                                        "--fraction", "0.1", "--json").stdout)
            self.assertEqual(done["measured"], done["candidates"])
        kernels = {r["weights"]: set() for r in self.exported()}
        self.assertEqual(set(kernels), {"iq4_nl", "mxfp4"})
        for r in self.exported():
            kernels[r["weights"]].add(r["kernel"])
        self.assertEqual({w for w in kernels if "gemv_c4_i8__avx2" in kernels[w]}, {"mxfp4"}, kernels)

    def test_import_verifies(self):
        self.tune(*SHAPE, "--op", "gemv", "--fraction", "0.05")
        self.tune("--shape", "64x512x1,64x512x60", "--bits", "1.58,8", "--fraction", "0.01", "--budget", "100s")
        lines = self.tune("export").stdout
        path = os.path.join(self.folder.name, "lines")
        with open(path, "w", encoding="utf-8") as f:
            f.write(lines)
        other = os.path.join(self.folder.name, "other.sqlite")
        n = len(lines.splitlines())
        self.assertEqual(self.succeeds("tune", "import", path, "--tuning", other).stdout, f"{n} measurements imported\n")
        imported = [json.loads(line) for line in self.succeeds("tune", "export", "--tuning", other).stdout.splitlines()]
        self.assertEqual({r["rounds"] for r in imported}, {0})  # what has been measured there is not believed here
        order = lambda r: json.dumps(dict(r, rounds=0))
        self.assertEqual(sorted(map(order, imported)), sorted(map(order, map(json.loads, lines.splitlines()))))
        self.assertIn("not confirmed", self.succeeds("tune", "show", "--tuning", other).stdout)
        # A kernel that takes nothing of that group cannot have been right.
        first = json.loads(lines.splitlines()[0])
        unlikely = json.dumps(dict(first, kernel="gemv_t5_i8__avx2", group=32, k=512))
        with open(path, "w", encoding="utf-8") as f:
            f.write(unlikely + "\n")
        done = self.succeeds("tune", "import", path, "--tuning", other)
        self.assertIn("0 measurements imported", done.stdout)
        self.assertIn(":1: gemv_t5_i8__avx2 with", done.stderr)
        # Nor one for other weights, or with knobs that it does not have.
        two = dict(next(r for r in map(json.loads, lines.splitlines()) if r["weights"] == "u2"), kernel="gemv_u2_i8__avx2", knobs="")
        for change, n in (({}, 1), ({"kernel": "gemv_u4_i8__avx2"}, 0), ({"knobs": "streams=99 bogus=7"}, 0), ({"knobs": "streams=2 x"}, 0),
                          ({"knobs": "streams=2"}, 1)):
            with open(path, "w", encoding="utf-8") as f:
                f.write(json.dumps(two | change) + "\n")
            self.assertIn(f"{n} measurements imported", self.succeeds("tune", "import", path, "--tuning", other).stdout, change)
        # Nor one that is not here; that of another device may be there.
        for record, n in (dict(first, kernel="no_such_kernel"), 0), (dict(first, kernel="no_such_kernel", device="other"), 1):
            with open(path, "w", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
            self.assertIn(f"{n} measurements imported", self.succeeds("tune", "import", path, "--tuning", other).stdout)
        for damage in ("not json", '{"device": 1}', json.dumps(dict(first, m=-1))):
            with open(path, "w", encoding="utf-8") as f:
                f.write(damage + "\n")
            self.fails(3, "tune", "import", path, "--tuning", other, says=":1: not a line")

    def test_tuned_models_say_the_same(self):
        self.tune("-m", MODEL, "-t", "2", "--budget", "100s", "--fraction", "0.1")
        run = ["run", "-n", "24", "--temp", "0", "-t", "2", "-p", "Once upon a time"]
        self.assertEqual(self.succeeds(*run, "--tuning", self.database).stdout, self.succeeds(*run, "--tuning", "none").stdout)

    def test_models_say_the_same_with_fewer_threads(self):
        self.tune("-m", MODEL, "-t", "3", "--budget", "100s", "--fraction", "0.01")
        path = os.path.join(self.folder.name, "few")
        few = [dict(r, knobs=f"threads={1 + i % 2}", ratio=0.01) for i, r in enumerate(self.exported())]
        self.assertGreater(len(few), 2)
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r) + "\n" for r in few)
        self.tune("import", path)
        alter(self.database, "rounds = ?", CONFIRMED)  # else plans do not take them
        run = ["run", "-n", "24", "--temp", "0", "-t", "3", "-p", "Once upon a time"]
        expected = self.succeeds(*run, "--tuning", "none").stdout
        for balance in ("split", "chunks", "auto"):
            self.assertEqual(self.succeeds(*run, "--tuning", self.database, "--balance", balance).stdout, expected)

    def test_a_lower_tier(self):
        """Its records are of kernels that its plans may take, which look them up; plans of the best tier do not."""
        tiers = {row["isa"] for row in json.loads(self.succeeds("kernels", "list", "--json").stdout)["kernels"] if row["runs_here"]}
        best = max(tiers & set(TIERS), key=TIERS.index)
        if TIERS.index(best) < 2:
            self.skipTest("the processor has no tier above avx2")
        avx2 = ["--target", "cpu:avx2", "-t", "1"]
        self.tune(*avx2, "-m", MODEL, "--fraction", "0.01", "--budget", "100s")
        self.tune(*SHAPE, "--fraction", "0.05")
        records = self.exported()
        low, high = ([r for r in records if r["target"] == tier] for tier in ("avx2", best))
        self.assertEqual(len(low) + len(high), len(records))
        self.assertEqual({r["kernel"].rpartition("__")[2] for r in low} - {"avx2"}, set())
        self.assertTrue(low and high)
        self.assertNotIn("avx2", [r["kernel"].rpartition("__")[2] for r in high if not r["knobs"] and r["ratio"] == 1])
        # One as if it were far ahead, whose kernel the default is not: that of many rows, for one.
        lines = os.path.join(self.folder.name, "lines")
        with open(lines, "w", encoding="utf-8") as f:
            for r in low:
                kernel = "gemm" + r["kernel"].removeprefix("gemv") if r["kernel"].startswith("gemv") else r["kernel"]
                f.write(json.dumps(dict(r, kernel=kernel, knobs="", ratio=0.001)) + "\n")
        self.tune("import", lines)
        alter(self.database, "rounds = ?", CONFIRMED)  # else plans do not take them
        run = ["run", "-v", "-n", "8", "--temp", "0", "-p", "Once upon a time", "--tuning", self.database]
        tuned = self.succeeds(*run, *avx2)
        self.assertIn("__avx2 for 1 row", tuned.stderr)
        self.assertRegex(tuned.stderr, r": gemm_\w+__avx2 for 1 row")
        default = self.succeeds(*run, "-t", "1")
        self.assertNotRegex(default.stderr, r": gemm_\w+ for 1 row")
        self.assertEqual(tuned.stdout, default.stdout)

    def test_a_damaged_database_is_put_aside_and_said(self):
        with open(self.database, "w", encoding="utf-8") as f:
            f.write("this is no database, and it is long enough to be looked at" * 100)
        done = self.succeeds("run", "-n", "4", "-v", "--tuning", self.database)
        self.assertRegex(done.stderr, r"damaged-1, whose rows can be got back: sqlite3 .* \.dump")
        self.assertTrue(os.path.exists(self.database + ".damaged-1"))

    def test_problems_that_there_is_no_time_left_for(self):
        """Whose part of the time is over before they begin."""
        done = self.tune("--bits", "2", "--shape", "8192x2048x1,2048x8192x1,2048x2048x1", "-t", "1", "--op", "gemv", "--budget", "0.001s", "--json")
        self.assertEqual([r["measured"] for r in map(json.loads, done.stdout.splitlines())], [0, 0, 0])

    def test_help_says_what_is_tuned_without_a_model(self):
        done = self.tune("--bits", "2", "-t", "1", "--budget", "0.001s", "--json")
        shapes = [(r["m"], r["k"], r["n"]) for r in map(json.loads, done.stdout.splitlines())]
        self.assertEqual(shapes, [(m, k, n) for n in (1, 512) for m, k in ((8192, 2048), (2048, 8192))])
        text = " ".join(self.succeeds("tune", "--help").stdout.split())
        self.assertIn("by default 8192x2048 and 2048x8192, each with 1 and 512 rows", text)
        self.assertIn("four large shapes in every format", text)
        self.assertNotIn("part of crumb", text)

    def test_nothing_to_choose_from(self):
        self.fails(1, "tune", *SHAPE, "--kernel", "no_such_kernel", "--tuning", self.database, says="named 'no_such_kernel'")
        self.fails(1, "tune", *SHAPE, "--target", "cpu:scalar", "--tuning", self.database, says="nothing is to choose from")
        self.fails(2, "tune", "--shape", "64x100", "--bits", 2, "--group", 32, "--tuning", self.database,
                   says="groups of 32 do not divide a row of 100")
        rows = json.loads(self.succeeds("kernels", "list", "--json").stdout)["kernels"]
        tiers = [row["isa"] for row in rows if row["name"] == "gemv_u2_i8__avxvnni" and row["runs_here"]]
        if tiers and any(row["isa"] == "avx512ymm" and row["runs_here"] for row in rows):  # whose plans take no kernel of avxvnni
            one = ["tune", *SHAPE, "--kernel", "gemv_u2_i8__avxvnni", "--budget", "0.001s", "--tuning", self.database]
            self.fails(1, *one, says="--target cpu:avxvnni")
            self.succeeds(*one, "--target", "cpu:avxvnni")

    def test_more_problems_than_there_is_room_for(self):
        shapes = ",".join(f"{16 * m}x32" for m in range(1, 61))
        done = self.fails(1, "tune", "--shape", shapes, "--bits", "1,2,3,4,8", "-t", 1, "--kernel", "none", "--tuning", self.database)
        self.assertIn("only the first 256 problems are tuned", done.stderr)

    def test_none_is_no_file(self):
        """What would be kept has no place; what is looked up is not there. In an empty folder, which stays so."""
        here = {"cwd": self.folder.name}
        lines = os.path.join(SOURCE, "LICENSE")
        for action in ([*SHAPE, "--op", "gemv", "--fraction", "0.01"], ["import", lines], ["prune"]):
            self.fails(2, "tune", *action, "--tuning", "none", says="--tuning none: there is no database to change", **here)
        for action in "show", "export":
            done = self.succeeds("tune", action, "--tuning", "none", **here)
            self.assertEqual((done.stdout, done.stderr), ("", "crumb: --tuning none: nothing is looked up\n"))
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_folders_are_made_for_the_users_own_database_alone(self):
        some = [*SHAPE, "--op", "gemv", "--fraction", "0.01", "--budget", "0.001s"]
        missing = os.path.join(self.folder.name, "missing", "too")
        for action in some, ["import", os.path.join(SOURCE, "LICENSE")], ["prune"]:
            self.fails(1, "tune", *action, "--tuning", os.path.join(missing, "x.db"), says=f": there is no folder {missing}: make it")
        self.assertEqual(os.listdir(self.folder.name), [])
        self.succeeds("tune", *some, "--tuning", "x.db", cwd=self.folder.name)
        self.succeeds("tune", *some, env={"XDG_DATA_HOME": missing})
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["missing", "x.db"])
        self.assertEqual(os.listdir(os.path.join(missing, "crumb")), ["tuning.sqlite"])

    def test_bad_arguments(self):
        for budget in ("0", "ten", "5x", "5mm", "-3s"):
            self.fails(2, "tune", *SHAPE, "--budget", budget, "--tuning", self.database, says="--budget")
        self.fails(2, "tune", *SHAPE, "--target", "cpu:avx3", "--tuning", self.database, says="no such tier")
        self.fails(2, "tune", "shew", says="run|show|export")
        self.fails(2, "tune", "import", says="import FILE")
        self.fails(1, "tune", "import", "/nonexistent", "--tuning", self.database)
        self.assertIn("nothing has been tuned", self.succeeds("tune", "show", "--tuning", self.database).stderr)
        self.assertFalse(os.path.exists(self.database))


if __name__ == "__main__":
    unittest.main()
