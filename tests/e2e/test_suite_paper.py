"""crumb bench --suite cpu, the paper's figure: takes 3.5 GB of memory, and says so where they are not there."""
import json
import unittest

from command import CommandTest


class Paper(CommandTest):
    def test_rows(self):
        run = self.succeeds("bench", "--suite", "cpu", "--rounds", "1", "--filter", "paper/mobilellm-1.5b", "--json")
        rows = json.loads(run.stdout)["results"]
        self.assertEqual([row["what"].split(":")[1] for row in rows], ["bf16", "mxfp4", "u2", "u1"])
        self.assertTrue(all(row["wanted"] is None and row["met"] is None for row in rows))
        base, others = rows[0], rows[1:]
        if base["ratio"] is None:
            self.assertRegex(base["note"], r"^skipped: .* takes [\d.]+ GB, and [\d.]+ GB are free$")
            self.assertIn("GB are free", run.stderr)
            self.assertTrue(all("bf16 was skipped" in row["note"] or row["ratio"] is None for row in others))
            return
        self.assertRegex(base["note"], r"^alpha 0\.\d+(; not all from memory: .*)?$")
        for row in others:
            self.assertLess(row["bytes"], base["bytes"])
            self.assertEqual(row["baseline_name"], "Amdahl's ideal")
            self.assertRegex(row["note"], r"^[\d.]+ x bf16, ideal [\d.]+ x by alpha 0\.\d+ and bytes(; not all from memory: .*)?$")


if __name__ == "__main__":
    unittest.main()
