"""tools/example/example.c: what the documentation promises about it."""
import os
import subprocess
import unittest

from command import MODEL, SOURCE, environment

EXAMPLE = os.environ["CRUMB_EXAMPLE"]


class Example(unittest.TestCase):
    def run_example(self, *arguments):
        return subprocess.run([EXAMPLE, *arguments], capture_output=True, text=True, env=environment(), timeout=60)

    def test_it_is_short(self):
        with open(os.path.join(SOURCE, "tools", "example", "example.c"), encoding="utf-8") as source:
            self.assertLess(len(source.readlines()), 60)

    def test_it_runs_and_repeats_itself(self):
        done = self.run_example()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.split()), 20)
        self.assertIn("likeliest token", done.stderr)
        self.assertEqual(self.run_example(MODEL).stdout, done.stdout)

    def test_errors_reach_the_caller(self):
        done = self.run_example("/nonexistent/model.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/model.gguf", done.stderr)


if __name__ == "__main__":
    unittest.main()
