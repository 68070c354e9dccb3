"""A driver that claims what it does not have: a real one (tests/xe/on_runtime.py) under a layer that adds matrix
instructions to its extensions, or takes its dot products away (claims_layer.c). crumb goes down its ladder of kernels until
they build and compute rightly, says so once, and remembers. Needs a loader with layers: the system's, in the place of the
runtime's own."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from model_parts import Gguf, write_loud, write_mixed
from system_loader import under_layer

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]
SESSIONS = os.environ["CRUMB_SESSIONS"]
MODELS, BACKEND, GATES = (os.environ[f"CRUMB_TEST_{name}"] for name in ("MODELS", "BACKEND", "GATES"))


class Claims(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = under_layer(self.folder.name, LAYER, "what a lying driver does", CRUMB_CLAIM="matrix")

    def crumb(self, *arguments):
        return subprocess.run([COMMAND, "run", *arguments, "-n", "8", "--temp", "0"], env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)

    def devices(self, *arguments):
        return subprocess.run([COMMAND, "devices", *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout

    def test_the_ladder_is_walked_once(self):
        self.assertRegex(self.devices(), r"kernels dpas: it has matrix instructions for sub-groups of 16;")
        self.assertNotIn("lowered", self.devices())
        first, again = self.crumb("--device", "gpu0"), self.crumb("--device", "gpu0")
        self.assertEqual(first.returncode, 0, first.stderr)
        for rung in ("dpas+exact", "dpas-i8", "dpas-i8+exact"):
            self.assertIn(f"'cl:{rung}'", first.stderr)
        self.assertIn("matrix_mad_k32", first.stderr)
        self.assertIn("going on with 'cl:dp4a'", first.stderr)
        self.assertRegex(first.stderr, r"device gpu0 .*, kernels dp4a")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("going on", again.stderr)
        self.assertRegex(again.stderr, r"device gpu0 .*, kernels dp4a")
        self.assertEqual(first.stdout, self.crumb("--device", "cpu").stdout)
        self.assertEqual(first.stdout, again.stdout)
        self.assertRegex(self.devices(), r"kernels dpas: .*\n  lowered to cl:dp4a by an earlier run: .*gpu0 .*matrix_mad_k32")
        gpu = next(d for d in json.loads(self.devices("--json"))["devices"] if d["name"] == "gpu0")
        self.assertEqual((gpu["target"], gpu["lowered_target"]), ("dpas", "cl:dp4a"))
        self.assertIn("matrix_mad_k32", gpu["lowered_reason"])

    def test_results_that_are_wrong(self):
        """Kernels that build, and compute wrongly: the next rung, as for those that do not build."""
        self.environment |= {"CRUMB_CLAIM": "dots", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}  # built in a tenth of the time
        self.assertRegex(self.devices(), r"kernels dp4a: .*dot products")
        first, again = self.crumb("--device", "gpu0"), self.crumb("--device", "gpu0")
        self.assertRegex(first.stderr, "computes wrongly with its kernels 'dp4a': layer 0 differs .*; going on with 'cl:portable'")
        self.assertNotIn("going on", again.stderr)
        for done in (first, again):
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"device gpu0 .*, kernels portable")
            self.assertEqual(done.stdout, self.crumb("--device", "cpu").stdout)
        self.assertRegex(self.devices(), r"kernels dp4a: .*\n  lowered to cl:portable by an earlier run: .*gpu0 .*'dp4a': layer 0 differs")

    def test_a_later_layer_that_is_wrong(self):
        """Every layer is checked, not the first alone: only the second's values have 5 bits, whose kernels compute wrongly."""
        mixed, models = Path(self.folder.name, "mixed.gguf"), Path(__file__).resolve().parents[1] / "oracle/models"
        write_mixed(mixed, Gguf(models / "llama-q4_0.gguf"), Gguf(models / "llama-5-bit.gguf"), b"blk.1.attn_v.weight")
        self.environment |= {"CRUMB_CLAIM": "u5-dots", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        mine = ("-m", str(mixed), "-p", "Once upon a time there was")
        done = self.crumb(*mine, "--device", "gpu0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "with its kernels 'dp4a': layer 1 differs .*; going on with 'cl:portable'")
        self.assertEqual(done.stdout, self.crumb(*mine, "--device", "cpu").stdout)

    def test_a_few_rows_that_are_wrong(self):
        """Kernels of plans for 2 and 4 rows, which a prompt's end gets and neither a batch nor one row."""
        self.environment |= {"CRUMB_CLAIM": "four-dots", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        mine = ("-p", "Once upon a time there was a")
        done = self.crumb(*mine, "--device", "gpu0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "with its kernels 'dp4a': layer 0 differs .* with 2 rows, first at linear .*; going on with 'cl:portable'")
        self.assertEqual(done.stdout, self.crumb(*mine, "--device", "cpu").stdout)

    def test_a_few_outputs_that_are_wrong(self):
        """Two of a layer's 64 outputs, which adds little to what it was given: less than a 10000th of all that is compared."""
        loud = Path(self.folder.name, "loud.gguf")
        write_loud(Path(__file__).resolve().parents[1] / "oracle/models/llama-q4_0.gguf", loud, 2048)
        self.environment |= {"CRUMB_CLAIM": "last-dots", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        mine = ("-m", str(loud), "-p", "Once upon a time there was")
        done = self.crumb(*mine, "--device", "gpu0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"'dp4a': layer 1 differs from the CPU's in output (47|63) by .*; going on with 'cl:portable'")
        self.assertEqual(done.stdout, self.crumb(*mine, "--device", "cpu").stdout)

    def test_checks_that_are_asked_for(self):
        """--verify on checks again what has been found right, each time."""
        self.environment |= {"CRUMB_CLAIM": "gpu", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        self.assertEqual(self.crumb("--device", "gpu0").returncode, 0)
        self.assertNotIn("against the CPU's", self.crumb("--device", "gpu0", "-v").stderr)
        for _ in range(2):
            asked = self.crumb("--device", "gpu0", "-v", "--verify", "on")
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertRegex(asked.stderr, "against the CPU's.*\n(.*\n)*.*they agree")

    def test_work_groups_that_never_meet(self):
        """Chunks of keys that nobody merges, on any rung: found out, since a row is checked behind several of them."""
        self.environment |= {"CRUMB_CLAIM": "counts", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        done = self.crumb("--device", "gpu0")
        self.assertEqual((done.returncode, done.stdout), (6, ""), done.stderr)
        for rung in ("dp4a", "portable"):
            self.assertRegex(done.stderr, f"with its kernels '{rung}': layer 0 differs .* with 1 row, first at attention")

    def test_a_cache_of_bytes(self):
        """Kernels of the other type of cache are checked by themselves: that those of f16 are right says nothing of them."""
        self.environment |= {"CRUMB_CLAIM": "gpu", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        q8 = ("--device", "gpu0", "--kv-cache", "q8")
        right = self.crumb(*q8, "-v")
        self.assertEqual(right.returncode, 0, right.stderr)
        self.assertRegex(right.stderr, "against the CPU's, q8 cache: once .*\n(.*\n)*.*they agree")
        self.assertEqual(right.stdout, self.crumb("--device", "cpu", "--kv-cache", "q8").stdout)
        self.assertNotIn("against the CPU's", self.crumb(*q8, "-v").stderr)
        self.environment |= {"CRUMB_CLAIM": "q8-counts", "XDG_CACHE_HOME": str(Path(self.folder.name, "another"))}
        for _ in range(2):
            f16 = self.crumb("--device", "gpu0", "-v")
            self.assertEqual(f16.returncode, 0, f16.stderr)
        self.assertNotIn("against the CPU's", f16.stderr)
        wrong = self.crumb(*q8)
        self.assertEqual((wrong.returncode, wrong.stdout), (6, ""), wrong.stderr)
        for rung in ("dp4a", "portable"):
            self.assertRegex(wrong.stderr, f"with its kernels '{rung}': layer 0 differs .* with 1 row, first at attention")

    def sessions(self):
        """What sessions_of_caches.c prints, but for plans."""
        text = subprocess.run([SESSIONS], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              timeout=600, check=True).stdout
        return "".join(line for line in text.splitlines(True) if ": a plan for " not in line)

    def test_sessions_with_another_cache(self):
        """Of a model that is open for f16: the first with q8 checks its kernels, and only that fails where they are wrong."""
        self.environment |= {"CRUMB_CLAIM": "gpu", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        fine = "session 0: ok\nsession 1: ok\nsession 2: ok\nsession 3: ok\n"
        self.assertRegex(self.sessions(), f"^.* f16 cache: once .*\nthey agree.*\n.* q8 cache: once .*\nthey agree.*\n{fine}$")
        self.assertEqual(self.sessions(), fine)
        self.environment |= {"CRUMB_CLAIM": "q8-counts", "XDG_CACHE_HOME": str(Path(self.folder.name, "another"))}
        wrong = ".* q8 cache: once .*\nsession {}: a model that is opened for this type of cache may get simpler kernels: .*layer 0 differs .*\n"
        self.assertRegex(self.sessions(), f"{wrong.format(0)}{wrong.format(1)}session 2: ok\nsession 3: ok\n$")

    def test_no_block_loads(self):
        """Matrix instructions in sub-groups of 16 without 2D block loads: only kernels that do without are tried."""
        self.environment["CRUMB_CLAIM"] = "dpas"
        self.assertIn("kernels dpas-i8: it has matrix instructions for sub-groups of 16, but no 2D block loads", self.devices())
        self.assertNotIn("2d blocks", self.devices())

    def ends_of_tests(self, target):
        """[(exit status, stderr)] of programs of tests, one of each kind that looks for its device."""
        return [(done.returncode, done.stderr) for done in (
            subprocess.run(program, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
            for program in ([MODELS, target], [BACKEND, "cl", target], [GATES, target]))]

    def test_tests_fail(self):
        """Where the device computes wrongly, or lacks what is tested: a skip would be taken for a runtime that cannot be had."""
        self.environment |= {"CRUMB_CLAIM": "dots", "CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
        (models, text), (backend, _), (gates, _) = self.ends_of_tests("cl:dp4a")
        self.assertEqual(models, 1, text)
        self.assertIn("computes wrongly", text)
        self.assertNotIn(0, (backend, gates))
        self.assertNotIn(77, (backend, gates))
        for status, text in self.ends_of_tests("cl:dpas"):
            self.assertEqual(status, 1, text)
            self.assertIn("has only dp4a", text)


if __name__ == "__main__":
    unittest.main()
