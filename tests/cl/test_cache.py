"""The cache of built programs, on whatever OpenCL device is there: used, private, and rebuilt where it is damaged."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND = os.environ["CRUMB_COMMAND"]


def of_another_driver(program):
    """The lines of a key: its version, platform, device and driver."""
    lines = program.split(b"\n", 4)
    return b"\n".join([*lines[:3], b"0.1", lines[4]])


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = Path(self.folder.name, "cache")

    def tell(self, cache=None, unkept=0):
        """What a run says; and `unkept` times, why its programs are not kept."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CRUMB_")}
        environment["XDG_CACHE_HOME"] = str(cache or self.cache)
        done = subprocess.run([COMMAND, "run", "--device", "gpu0", "--verify", "on", "-p", "Once upon", "-n", "8",
                               "--temp", "0"],
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if "no GPU" in done.stderr and done.returncode == 4:
            print(done.stderr, file=sys.stderr)
            sys.exit(77)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("every start builds them again"), unkept, done.stderr)
        return done.stdout

    def programs(self):
        return sorted((self.cache / "crumb" / "cl-programs").iterdir())

    def test_damage_is_repaired(self):
        text = self.tell()
        files = self.programs()
        self.assertGreater(len(files), 4)
        whole = {f: f.read_bytes() for f in files}
        for f in files:
            self.assertEqual(f.stat().st_mode & 0o777, 0o600)
        self.assertEqual(files[0].parent.stat().st_mode & 0o777, 0o700)
        damages = [lambda b: b[: len(b) // 2], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"",
                   lambda b: b.replace(b"crumb-cl-program 1", b"crumb-cl-program 0"), of_another_driver]
        for i, f in enumerate(files):
            f.write_bytes(damages[i % len(damages)](whole[f]))
        self.assertEqual(self.tell(), text)
        self.assertEqual(self.programs(), files)
        for f in files:
            self.assertGreater(f.stat().st_size, len(whole[f]) // 2)

    def test_others_may_not_write(self):
        text = self.tell()
        for f in self.programs():
            f.write_bytes(f.read_bytes()[:-8] + b"EVILCODE")
            f.chmod(0o666)
        self.assertEqual(self.tell(), text)

    def test_no_place_for_it(self):
        self.assertEqual(self.tell(), self.tell("/dev/null/nowhere", unkept=1))


if __name__ == "__main__":
    unittest.main()
