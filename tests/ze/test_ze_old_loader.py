#!/usr/bin/env python3
"""Older loaders: Debian unstable's with functions hidden (hiding_loader.c), in front of the driver of driver_over_opencl. What
they cannot do is done in another way, or said. No function newer than 1.17 is used; zeInitDrivers, of 1.19, is not."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

KEPT = Path(os.environ["XDG_CACHE_HOME"], "crumb")  # built modules, which are the same in each test
REAL = next(word for word in Path(os.environ["CRUMB_COMMAND"]).read_text().split() if word.endswith("/ld-linux-x86-64.so.2"))
HIDING = {"lists": os.environ["CRUMB_LOADER_WITHOUT_LISTS"], "sysman": os.environ["CRUMB_LOADER_WITHOUT_SYSMAN"]}


class OldLoader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        own = self.folder / "crumb"
        own.mkdir(mode=0o700)
        (KEPT / "ze-modules").mkdir(parents=True, exist_ok=True, mode=0o700)
        (own / "ze-modules").symlink_to(KEPT / "ze-modules")

    def crumb(self, hidden, *arguments, **settings):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder), **settings}
        if hidden:
            environment |= {"LD_PRELOAD": HIDING[hidden],
                            "CRUMB_REAL_LOADER": str(Path(REAL).with_name("libze_loader.so.1"))}
        done = subprocess.run([os.environ["CRUMB_COMMAND"], *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def text(self, hidden, *arguments, **settings):
        return self.crumb(hidden, "run", "-p", "One day a small", "-n", "40", "--temp", "0", "--ignore-eos", *arguments,
                          **settings).stdout

    def calls(self, hidden):
        log = self.folder / f"calls without {hidden}"
        text = self.text(hidden, "--backend", "ze", "--verify", "off", CRUMB_FAULT_LOG=str(log))
        return text, [line.split()[0] for line in log.read_text().splitlines()]

    def test_lists_that_are_not_appended(self):
        """They go through a queue, one by one, and give the same text."""
        new, appended = self.calls(None)
        old, executed = self.calls("lists")
        self.assertEqual(old, new)
        self.assertEqual(old, self.text(None, "--device", "cpu"))
        self.assertIn("zeCommandListImmediateAppendCommandListsExp", appended)
        self.assertNotIn("zeCommandQueueExecuteCommandLists", appended)
        self.assertNotIn("zeCommandListImmediateAppendCommandListsExp", executed)
        self.assertGreaterEqual(executed.count("zeCommandQueueExecuteCommandLists"), 40)

    def test_one_without_sysman(self):
        bench = ["bench", "--backend", "ze", "--energy", "--verify", "off", "-p", "0", "-n", "4", "-r", "1", "-o", "json"]
        result = json.loads(self.crumb("sysman", *bench).stdout)[0]
        self.assertIsNone(result["energy_j"])
        self.assertIn("the Level Zero loader has no Sysman (zesInit): install a newer one", result["energy_missing"])
        self.assertIn("the Level Zero loader has no Sysman", self.crumb("sysman", "devices").stdout)
        self.assertIsNotNone(json.loads(self.crumb("lists", *bench).stdout)[0]["energy_j"])


if __name__ == "__main__":
    unittest.main()
