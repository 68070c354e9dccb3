#!/usr/bin/env python3
"""What crumb says where Level Zero's loader is missing, too old, finds no device, or crashes; the CPU runs all the same."""
import ctypes
import os
import subprocess
import tempfile
import unittest

FOLDERS = {"whole": os.environ["CRUMB_FAKE_LOADER_WHOLE"], "old": os.environ["CRUMB_FAKE_LOADER_OLD"]}


class Loader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def crumb(self, loader, *arguments, **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("ZE_", "ZEL_"))}
        environment |= {"LD_LIBRARY_PATH": FOLDERS.get(loader, ""), "XDG_CACHE_HOME": self.folder.name,
                        "OCL_ICD_VENDORS": self.folder.name} | more
        return subprocess.run([os.environ["CRUMB_COMMAND"], *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)

    def says(self, words, loader, **more):
        devices = self.crumb(loader, "devices", **more)
        self.assertEqual(devices.returncode, 0, devices.stderr)
        self.assertRegex(devices.stdout, f"not through Level Zero: .*{words}")
        named = self.crumb(loader, "run", "--backend", "ze", "-n", "1", **more)
        self.assertEqual(named.returncode, 4, named.stderr)
        self.assertRegex(named.stderr, words)
        free = self.crumb(loader, "run", "-n", "2", "--temp", "0", **more)
        self.assertEqual(free.returncode, 0, free.stderr)
        self.assertIn("device cpu", free.stderr)

    def test_missing(self):
        try:
            ctypes.CDLL("libze_loader.so.1")
        except OSError:
            self.says("there is no Level Zero loader; install it", None)
        else:
            self.skipTest("this system has the loader")

    def test_old(self):
        self.says("loader is too old: it has no ze", "old")

    def test_no_device(self):
        self.says("no Level Zero driver offers a GPU", "whole")

    def test_crash(self):
        self.says("driver of libze_intel_gpu.so.1 crashes when it is asked", "whole", CRUMB_FAKE_LOADER="crash")


if __name__ == "__main__":
    unittest.main()
