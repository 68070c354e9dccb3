"""Measurements by which codes of activations in memory are best for one row: a device takes them, but not one that claims to be
a GPU (claims_layer.c), whose tokens have at most eight launches a layer (cl/README.md, "Launches of a layer"): there kernels
quantize by themselves, and tuning tries no others."""
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]
TARGET = ["--target", "cl:portable"]
KERNEL = "linear_u2_gemv__portable"
N_LAYERS, MOST, LINEAR = 5, 8, 4  # of the embedded model; launches of a layer; those of them that read codes


class TunedLaunches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.database = ["--tuning", str(self.folder / "tuning.sqlite")]
        self.device = os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache")}
        self.gpu = self.device | {"OPENCL_LAYERS": LAYER, "CRUMB_CLAIM": "gpu"}

    def crumb(self, environment, *arguments, codes=(0,)):
        done = subprocess.run([COMMAND, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=600)
        self.assertIn(done.returncode, codes, f"{arguments}: {done.stderr}")
        return done

    def tune(self, environment):
        """What the search says of the kernel, which has little time; 4: a candidate with 256 registers does not build, which only
        Intel's GPUs have."""
        return json.loads(self.crumb(environment, "tune", "--device", "gpu0", *TARGET, "--filter", KERNEL, "--bits", "1.58", "--shape",
                                     "48x256x1", "--budget", "1s", "--json", *self.database, codes=(0, 4)).stdout)

    def learn(self):
        """As if codes in memory had been measured as much the fastest: for the device, whichever it claims to be."""
        record = self.tune(self.device) | {"kernel": KERNEL, "knobs": "", "ratio": 0.01, "ns": 1000, "rounds": 25}
        for extra in ("candidates", "measured", "wrong"):
            record.pop(extra)
        lines = self.folder / "lines"
        lines.write_text(json.dumps(record) + "\n")
        told = self.crumb(self.device, "tune", "import", str(lines), "--backend", "cl", *self.database).stdout
        self.assertEqual(told, "1 measurements imported\n")
        with contextlib.closing(sqlite3.connect(self.database[1])) as db, db:  # else plans do not take it
            db.execute("UPDATE measurement SET ratio = 0.01, rounds = 25 WHERE kernel = ? AND knobs = ''", (KERNEL,))

    def token(self, environment):
        """The text; the launches of a decoded token by name."""
        told = self.crumb(environment, "run", "--device", "gpu0", *TARGET, "--verify", "off", "--profile", "none", "-n", "8", "--temp",
                          "0", "-p", "Once upon a time", "-v", *self.database)
        plan = re.search(r"a plan for 1 rows is (\d+) kernels .* of scratch:(.*)", told.stderr)
        named = {name: int(count) for count, name in re.findall(r" (\d+) (\w+)", plan[2])}
        self.assertEqual(sum(named.values()), int(plan[1]), plan[0])
        self.assertIn(KERNEL, named)
        return told.stdout, named

    def test_codes_in_memory(self):
        text, untuned = self.token(self.gpu)
        self.assertNotIn("quantize", untuned)
        self.learn()
        same, named = self.token(self.device)
        self.assertEqual((same, named["quantize"]), (text, LINEAR * N_LAYERS + 1))  # 1: the head's
        same, named = self.token(self.gpu)
        outside = sum(count for name, count in named.items() if name.startswith(("embed", "select", "top"))) + 1
        self.assertLessEqual(sum(named.values()) - outside, MOST * N_LAYERS)
        self.assertEqual((same, named), (text, untuned))

    def test_the_search(self):
        """Each setting with and without codes in memory; of the GPU only without, but with 128 and 256 registers."""
        self.assertEqual(self.tune(self.gpu)["candidates"], self.tune(self.device)["candidates"])


if __name__ == "__main__":
    unittest.main()
