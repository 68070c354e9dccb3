"""A card with 1 GiB, which a real driver claims to be (claims_layer.c): what fits runs, what does not is refused with the sizes
before the card is full, and the CPU takes the layers that do not fit where nobody says how many the card takes."""
import os
import re
import subprocess
import tempfile
import unittest

from system_loader import under_layer

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]
LARGE = ["--synthetic", "mobilellm-1.5b:i8", "-p", "0", "-n", "1", "-r", "1"]
MIB = r"([\d.]+)"


class Small(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.environment = under_layer(cls.folder.name, LAYER, "a card with little memory", CRUMB_CLAIM="small")

    def crumb(self, *arguments):
        return subprocess.run([COMMAND, *arguments, "--profile", "none"], env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=600)

    def tell(self, *arguments):
        return self.crumb("run", "-n", "4", "--temp", "0", "-p", "Once upon a time", *arguments)

    def test_what_fits_runs(self):
        done = self.tell("--device", "gpu0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device gpu0", done.stderr)
        self.assertEqual(done.stdout, self.tell("--device", "cpu").stdout)

    def test_weights_that_do_not_fit(self):
        """A sixteenth is left to the desktop."""
        done = self.crumb("bench", "--device", "gpu0", "-ngl", "99", *LARGE)
        self.assertEqual(done.returncode, 5, done.stderr)
        said = re.search(rf"gpu0 \(.*\): not enough memory for the model's weights: {MIB} MiB wanted, {MIB} of 1024.0 MiB are "
                         r"taken; a smaller model or context \(-c\), or --device cpu", done.stderr)
        self.assertIsNotNone(said, done.stderr)
        wanted, taken = map(float, said.groups())
        self.assertLessEqual(taken, 960)
        self.assertGreater(taken + wanted, 960)
        self.assertGreater(taken, 700)

    def test_the_cpu_takes_the_rest(self):
        done = self.crumb("bench", "--device", "gpu0", *LARGE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"gpu0: 1.0 GiB of memory do not hold the model's 1.5 GiB and its context: the last \d+ of "
                         r"55 layers run there, the others on the CPU")

    def test_a_context_that_does_not_fit(self):
        done = self.tell("--device", "gpu0", "-ngl", "99", "-c", "4000000")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, rf"the KV cache takes {MIB} MiB, and the device allocates at most 256.0 MiB at once")


if __name__ == "__main__":
    unittest.main()
