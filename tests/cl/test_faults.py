"""A device that fails in the middle: the layer of faults_layer.c, or the Level Zero driver of tests/ze, makes the n-th call
fail, once or for good. Wherever that is, the run ends with the text of an undisturbed one, or with a clear error; once it
has begun to print, always with the text.

usage: test_faults.py [--all|--once] [--seed=N]
    A call from each place of crumb's that calls the driver, in turns failing once and for good, and a sample of all calls,
    failing both ways with each of the codes that a driver has for it. --all: every call, both ways; --once: the sample in
    turns. --seed: another sample

Calls are counted on a model of one layer, with a warm cache; devices that share layers have the five of the whole model."""
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from model_parts import write_one_layer
from system_loader import system_loader

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ.get("CRUMB_FAULTS_LAYER")  # none: Level Zero
MODEL = Path(__file__).resolve().parents[2] / "tools/train/model/crumb-tiny.gguf"
ALL, ONCE = "--all" in sys.argv, "--once" in sys.argv
SAMPLE = 12
SEED = next((int(a.removeprefix("--seed=")) for a in sys.argv if a.startswith("--seed=")), 20261122)
BACKEND = "cl" if LAYER else "ze"
KINDS = ("", "memory", "lost")  # of CRUMB_FAULT_CODE
WITHOUT_LEAKS = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # there are some, on purpose
ARGUMENTS = ["run", "--backend", BACKEND, "--device", "gpu0", "--verify", "off", "-p", "One day a small",
             "-n", "10", "--temp", "0", "--ignore-eos"]


class Faults(unittest.TestCase):
    surveyed = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        if LAYER:
            Path(cls.folder.name, "libOpenCL.so.1").symlink_to(system_loader("what happens when a device fails"))
        else:  # built modules, which other tests have as well
            kept = Path(os.environ["XDG_CACHE_HOME"], "crumb/ze-modules")
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            own = Path(cls.folder.name, "cache/crumb")
            own.mkdir(mode=0o700, parents=True)
            (own / "ze-modules").symlink_to(kept)
        cls.one_layer = Path(cls.folder.name, "one-layer.gguf")
        write_one_layer(MODEL, cls.one_layer)
        first = cls.run_crumb()  # fills the cache of programs and of what devices there are
        if first.returncode != 0:
            raise AssertionError(first.stderr)
        log = Path(cls.folder.name, "calls")
        cls.right, cls.right_of_five = cls.run_one(CRUMB_FAULT_LOG=str(log)), cls.run_crumb()
        cls.sites = log.read_text().splitlines()  # a line is the function and where it was called
        cls.calls = [line.split()[0] for line in cls.sites]
        cls.survey = Path(cls.folder.name, f"cache/crumb/{BACKEND}-survey")
        cls.surveyed = cls.survey.read_bytes()

    @classmethod
    def run_one(cls, *more, **settings):
        return cls.run_crumb("-m", str(cls.one_layer), *more, **settings)

    @classmethod
    def run_crumb(cls, *more, **settings):
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(cls.folder.name, "cache")), **settings}
        if cls.surveyed:  # a run may have thrown it away; a survey's calls fail as well
            cls.survey.write_bytes(cls.surveyed)
        if LAYER:
            libraries = f"{cls.folder.name}:{os.environ.get('LD_LIBRARY_PATH', '')}"
            environment |= {"LD_LIBRARY_PATH": libraries, "OPENCL_LAYERS": LAYER}
        return subprocess.run([COMMAND, *ARGUMENTS, *more], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)

    def chosen(self):
        """(number of a call, how it fails, with which code)"""
        numbers, hows = range(1, len(self.calls) + 1), ("", ":lost")
        if ALL:
            return [(n, how, "") for n in numbers for how in hows]
        first = {site: n for n, site in reversed(list(enumerate(self.sites, 1)))}
        sample = random.Random(SEED).sample(numbers, SAMPLE)
        sites = [(n, hows[i % 2], "") for i, n in enumerate(sorted(first.values()))]
        if ONCE:
            return sites + [(n, hows[i % 2], KINDS[i % 3]) for i, n in enumerate(sample)]
        return sites + [(n, how, KINDS[i % 3]) for i, n in enumerate(sample) for how in hows]

    def check(self, done, what, right):
        self.assertIn(done.returncode, range(0, 10), f"{what}: {done.stderr}")  # never a signal
        if done.returncode == 0:
            self.assertEqual(done.stdout, right.stdout, f"{what}: {done.stderr}")
            taken = re.findall("the CPU goes on in its place", done.stderr)
            self.assertLessEqual(len(taken), 1, f"{what}: {done.stderr}")
            return "taken over" if taken else "unharmed"
        gone = "gpu0: there is no such .* device|gpu0.*: the device is not there any more|no GPU: "
        self.assertRegex(done.stderr, f"gpu0.*{BACKEND.upper()}_|{gone}", what)
        self.assertEqual(done.stdout, "", f"{what}: half a text: {done.stderr}")
        return "error"

    def test_each_ends_well(self):
        self.assertEqual(self.right.returncode, 0, self.right.stderr)
        ends = collections.Counter()
        for n, how, code in self.chosen():
            what = f"call {n} of {len(self.calls)}, {self.calls[n - 1]}{how} {code}"
            ends[self.check(self.run_one(CRUMB_FAULT=f"{n}{how}", CRUMB_FAULT_CODE=code), what, self.right)] += 1
        print(f"{len(self.calls)} calls of {len(set(self.calls))} functions from {len(set(self.sites))} places: {dict(ends)}")
        self.assertGreater(ends["taken over"], 0)
        self.assertGreater(ends["error"], 0)

    def check_hanging(self, n_calls, what, right, *arguments):
        """A device that does nothing any more, in the middle of loading and of the text: it is waited for once."""
        for n, end in ((n_calls // 10, "error"), (n_calls * 8 // 10, "taken over")):
            begin = time.monotonic()
            done = self.run_crumb(*arguments, CRUMB_FAULT=f"{n}:hang", CRUMB_PATIENCE_MS="1500", **WITHOUT_LEAKS)
            took = time.monotonic() - begin
            self.assertIn("does not answer", done.stderr, f"{what} {n}")
            self.assertLess(took, 30, f"{what} {n}")
            if done.returncode == 0:
                self.assertEqual(self.check(done, f"{what}, hanging from call {n} on", right), "taken over")
            else:
                self.assertEqual((end, done.returncode, done.stdout), ("error", 4, ""), done.stderr)

    def test_one_that_hangs(self):
        self.check_hanging(len(self.calls), "alone", self.right, "-m", str(self.one_layer))

    def check_kernels(self, **settings):
        """A run that checks the kernels first, as nobody remembers a check."""
        shutil.rmtree(Path(self.folder.name, "cache/crumb/verified"), ignore_errors=True)
        return self.run_one("--verify", "auto", **settings)

    def test_the_first_check(self):
        """A device that fails while its kernels are checked for the first time: they are not to blame the next time."""
        log = Path(self.folder.name, "calls with a check")
        checked = self.check_kernels(CRUMB_FAULT_LOG=str(log))
        calls = [line.split()[0] for line in log.read_text().splitlines()]
        self.assertGreater(len(calls), len(self.calls) + 10, checked.stderr)
        best = re.search(r"kernels (\S+)", self.right.stderr).group(1)
        begin = next(i for i, (a, b) in enumerate(zip(calls, self.calls), 1) if a != b)
        for i, n in enumerate(range(begin, begin + len(calls) - len(self.calls), (len(calls) - len(self.calls)) // 5)):
            how = ("", ":lost")[i % 2]
            what = f"call {n} of {len(calls)}, {calls[n - 1]}{how}"
            failed = self.check_kernels(CRUMB_FAULT=f"{n}{how}")
            self.check(failed, what, self.right)
            again = self.run_one("--verify", "auto")
            self.assertEqual((again.returncode, again.stdout), (0, self.right.stdout), f"{what}: {again.stderr}")
            self.assertRegex(again.stderr, rf"kernels {re.escape(best)}\b", f"{what}: {failed.stderr}")

    def test_with_layers_on_both(self):
        """In the middle of decoding, where the CPU has half of the layers already."""
        log = Path(self.folder.name, "calls of some layers")
        self.assertEqual(self.run_crumb("-ngl", "3", CRUMB_FAULT_LOG=str(log)).stdout, self.right_of_five.stdout)
        done = self.run_crumb("-ngl", "3", CRUMB_FAULT=f"{len(log.read_text().splitlines()) * 9 // 10}:lost")
        self.assertEqual(self.check(done, "-ngl 3", self.right_of_five), "taken over")

    def test_what_is_explained_is_the_cpu(self):
        log, explains = Path(self.folder.name, "calls of one that is explained"), ("--explain", "--profile", "lnl", "-t", "1")
        undisturbed = self.run_crumb(*explains, CRUMB_FAULT_LOG=str(log))
        self.assertRegex(undisturbed.stderr, "explain: layers: gpu0\n.*explain: prefill on gpu0")
        done = self.run_crumb(*explains, "-v", CRUMB_FAULT=f"{len(log.read_text().splitlines()) * 9 // 10}:lost")
        self.assertEqual(self.check(done, "explained", self.right_of_five), "taken over")
        self.assertRegex(done.stderr, "explain: layers: cpu\n.*explain: gpu0 has failed; prefill on cpu: .*; decode on cpu: ")
        self.assertRegex(done.stderr, "explain: as it runs, that prompt should take [0-9.]+ ms")
        self.assertIn("cpu: 1 threads", done.stderr)  # -t is kept

    def test_with_layers_divided(self):
        """One device fails while the other waits for its part: of a device that shares the CPU's weights, or of a card,
        where nobody has all of them."""
        log, split = Path(self.folder.name, "calls of a pair"), ("--device", "cpu+gpu0", "--split", "0.5")
        undisturbed = self.run_crumb(*split, CRUMB_FAULT_LOG=str(log))
        self.assertEqual(undisturbed.stdout, self.right_of_five.stdout, undisturbed.stderr)
        calls = [line.split()[0] for line in log.read_text().splitlines()]
        tokens = collections.Counter(calls[len(calls) // 2:])
        exchanges = tokens["clEnqueueMarkerWithWaitList"] + tokens["zeCommandListAppendSignalEvent"]
        drains = tokens["clFinish"] + tokens["zeCommandListHostSynchronize"]  # one at each token's end
        self.assertGreater(exchanges, 15 * drains)
        # the other does not wait for what will not come
        done = self.run_crumb(*split, CRUMB_FAULT=f"{len(calls) * 9 // 10}:lost", CRUMB_PATIENCE_MS="600000")
        self.assertEqual(self.check(done, "split", self.right_of_five), "taken over")
        if LAYER:  # and of a command that failed, its event says so
            done = self.run_crumb(*split, CRUMB_FAULT="clGetEventInfo", CRUMB_PATIENCE_MS="600000")
            self.assertEqual(self.check(done, "events", self.right_of_five), "taken over")
        self.check_hanging(len(calls), "split", self.right_of_five, *split)
        for n in random.Random(SEED).sample(range(1, len(calls) + 1), 4 if ONCE else SAMPLE):
            how = ("", ":lost")[n % 2]
            done = self.run_crumb(*split, CRUMB_FAULT=f"{n}{how}")
            self.check(done, f"split, call {n} of {len(calls)}, {calls[n - 1]}{how}", self.right_of_five)


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a not in ("--all", "--once") and not a.startswith("--seed=")])
