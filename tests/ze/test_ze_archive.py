#!/usr/bin/env python3
"""The archive of modules that are compiled with crumb: the driver of driver_over_opencl takes neither OpenCL C nor Intel's native
binaries, so it runs the archive's SPIR-V, to the CPU's text. Intel's own driver takes the native ones: ze_null_device.py."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from ze_null_device import read_programs

ROOT = Path(__file__).resolve().parents[2]
COMMAND, ARCHIVER, MODULES = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_ZE_ARCHIVER"], Path(os.environ["CRUMB_MODULE_DIR"])
RUN = Path(COMMAND).read_text().split("exec ")[1].split(" '")[0].split()  # the loader of the other C library


class Archive(unittest.TestCase):
    def run_model(self, *arguments, cache=None):
        with tempfile.TemporaryDirectory() as nothing:
            done = subprocess.run([COMMAND, "run", "-v", "-p", "One day a small", "-n", "8", "--temp", "0", "--ignore-eos",
                                   "--verify", "off", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env={**os.environ, "XDG_CACHE_HOME": cache or nothing}, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_spirv(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_model("--backend", "ze", cache=folder)
            programs = sorted(read_programs(folder))
            listed = Path(folder, "programs.txt")
            listed.write_text("# comment\n" + "".join(f"{file}\ttgllp\t{options}\n" for file, options in programs))
            archive = MODULES / "crumb-ze-modules.bin"
            made = subprocess.run([*RUN, ARCHIVER, listed, archive], capture_output=True, text=True)
            self.assertEqual((made.returncode, made.stdout), (0, f"{len(programs)} programs\n"), made.stderr)
            self.addCleanup(archive.unlink)
        done = self.run_model("--backend", "ze")
        self.assertEqual(done.stderr.count("a program from the archive's SPIR-V"), len(programs), done.stderr)
        self.assertEqual(done.stdout, self.run_model("--device", "cpu").stdout)

    def test_what_does_not_compile(self):
        file = "common/1_tiles.cl"  # behind common.cl, in one text with it: an error says where it is all the same
        lines = (ROOT / "cl/kernels" / file).read_text().splitlines()
        number = 1 + next(i for i, line in enumerate(lines) if "k_of_linear(uint" in line)
        with tempfile.TemporaryDirectory() as folder:
            listed, archive = Path(folder, "list"), Path(folder, "archive")
            for line, words, status, n in (("norm.cl\ttgllp\t-D void=}", "left out: norm.cl for tgllp", 0, 0),
                                           ("norm.cl\ttgllp\t-D k_of_linear=}", f"{file}:{number}:[0-9]+: error", 0, 0),
                                           ("none.cl\ttgllp\t", "left out: none.cl .* no such kernels", 0, 0),
                                           ("norm.cl\tno-gpu\t", "left out: norm.cl for no-gpu", 0, 0),
                                           ("norm.cl", "'norm.cl' is no program", 1, None)):
                listed.write_text(line + "\n")
                made = subprocess.run([*RUN, ARCHIVER, listed, archive], capture_output=True, text=True)
                self.assertEqual((made.returncode, made.stdout), (status, "" if n is None else f"{n} programs\n"))
                self.assertRegex(made.stderr, words)
                self.assertEqual(archive.exists(), status == 0)


if __name__ == "__main__":
    unittest.main()
