"""A device that fails in the middle: the layer of faults_layer.c makes the n-th call of a real driver fail, once or for
good. Wherever that is, the run ends with the text of an undisturbed one, or with a clear error; once it has begun to
print, always with the text.

usage: test_faults.py [--all]    every call, and not one or two of each function and a sample of the others"""
import collections
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from system_loader import system_loader

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_FAULTS_LAYER"]
ALL = "--all" in sys.argv
SAMPLE, SEED = 12, 20261122
ARGUMENTS = ["run", "--device", "gpu0", "--verify", "off", "-p", "One day a small", "-n", "10", "--temp", "0",
             "--ignore-eos"]


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        Path(cls.folder.name, "libOpenCL.so.1").symlink_to(system_loader("what happens when a device fails"))
        cls.run_crumb()  # fills the cache of programs and of what devices there are
        log = Path(cls.folder.name, "calls")
        cls.right = cls.run_crumb(CRUMB_FAULT_LOG=str(log))
        cls.calls = log.read_text().split()

    @classmethod
    def run_crumb(cls, *more, **settings):
        libraries = f"{cls.folder.name}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "OPENCL_LAYERS": LAYER,
                       "XDG_CACHE_HOME": str(Path(cls.folder.name, "cache")), **settings}
        return subprocess.run([COMMAND, *ARGUMENTS, *more], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)

    def chosen(self):
        """Numbers of calls: all, or the first, the second and the last of each function, and a sample."""
        numbers = range(1, len(self.calls) + 1)
        if ALL:
            return list(numbers)
        of = collections.defaultdict(list)
        for n in numbers:
            of[self.calls[n - 1]].append(n)
        some = {n for each in of.values() for n in (each[0], each[len(each) // 2], each[-1])}
        return sorted(some | set(random.Random(SEED).sample(numbers, SAMPLE)))

    def check(self, done, what):
        self.assertIn(done.returncode, range(0, 10), f"{what}: {done.stderr}")  # never a signal
        if done.returncode == 0:
            self.assertEqual(done.stdout, self.right.stdout, f"{what}: {done.stderr}")
            taken = re.findall("the CPU goes on in its place", done.stderr)
            self.assertLessEqual(len(taken), 1, f"{what}: {done.stderr}")
            return "taken over" if taken else "unharmed"
        self.assertRegex(done.stderr, "gpu0.*(CL_OUT_OF_RESOURCES|CL_)", what)
        self.assertEqual(done.stdout, "", f"{what}: half a text: {done.stderr}")
        return "error"

    def test_each_ends_well(self):
        self.assertEqual(self.right.returncode, 0, self.right.stderr)
        ends = collections.Counter()
        for n in self.chosen():
            for how in ("", ":lost"):
                what = f"call {n} of {len(self.calls)}, {self.calls[n - 1]}{how}"
                ends[self.check(self.run_crumb(CRUMB_FAULT=f"{n}{how}"), what)] += 1
        print(f"{len(self.calls)} calls of {len(set(self.calls))} functions: {dict(ends)}")
        self.assertGreater(ends["taken over"], 0)
        self.assertGreater(ends["error"], 0)

    def test_with_layers_on_both(self):
        """In the middle of decoding, where the CPU has half of the layers already."""
        log = Path(self.folder.name, "calls of some layers")
        self.assertEqual(self.run_crumb("-ngl", "3", CRUMB_FAULT_LOG=str(log)).stdout, self.right.stdout)
        done = self.run_crumb("-ngl", "3", CRUMB_FAULT=f"{len(log.read_text().split()) * 9 // 10}:lost")
        self.assertEqual(self.check(done, "-ngl 3"), "taken over")

    def test_with_layers_divided(self):
        """One device fails while the other waits for its part."""
        log, split = Path(self.folder.name, "calls of a pair"), ("--device", "cpu+gpu0", "--split", "0.5")
        self.assertEqual(self.run_crumb(*split, CRUMB_FAULT_LOG=str(log)).stdout, self.right.stdout)
        done = self.run_crumb(*split, CRUMB_FAULT=f"{len(log.read_text().split()) * 9 // 10}:lost")
        self.assertEqual(self.check(done, "split"), "taken over")


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a != "--all"])
