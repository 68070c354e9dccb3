"""The cache of built programs, on whatever OpenCL device is there: used, private, and rebuilt where it is damaged."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND = os.environ["CRUMB_COMMAND"]


def key_of(program):
    """The lines that a file begins with: of them the first four are its version, platform, device and driver."""
    return program.partition(b"\0")[0]


def of_another_driver(program):
    lines = program.split(b"\n", 4)
    return b"\n".join([*lines[:3], b"0.1", lines[4]])


def of_another_hash(program):
    """What no driver can see: between the key and the binary are the binary's length and hash, 8 bytes each."""
    at = len(key_of(program)) + 1 + 8
    return program[:at] + bytes([program[at] ^ 1]) + program[at + 1:]


def inodes(files):
    """A file that is written anew takes the place of the old one: it is another."""
    return [f.stat().st_ino for f in files]


# Of a program's file, whose key is its beginning and whose binary its end.
DAMAGES = {
    "cut": lambda b: b[: len(b) // 2],
    "a bit of the binary": lambda b: b[:-1] + bytes([b[-1] ^ 1]),
    "hash": of_another_hash,
    "empty": lambda b: b"",
    "version": lambda b: b.replace(b"crumb-cl-program 1", b"crumb-cl-program 0", 1),
    "driver": of_another_driver,
}


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
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("every start builds them again"), unkept, done.stderr)
        return done.stdout

    def programs(self):
        return sorted((self.cache / "crumb" / "cl-programs").iterdir())

    def test_damage_is_repaired(self):
        text = self.tell()
        files = self.programs()
        self.assertGreaterEqual(len(files), len(DAMAGES))
        keys, old = [key_of(f.read_bytes()) for f in files], inodes(files)
        for f in files:
            self.assertEqual(f.stat().st_mode & 0o777, 0o600)
        self.assertEqual(files[0].parent.stat().st_mode & 0o777, 0o700)
        damages = [list(DAMAGES)[i % len(DAMAGES)] for i in range(len(files))]
        for f, damage in zip(files, damages):
            whole = f.read_bytes()
            f.write_bytes(DAMAGES[damage](whole))
            self.assertNotEqual(f.read_bytes(), whole, damage)
        self.assertEqual(inodes(files), old)
        self.assertEqual(self.tell(), text)
        self.assertEqual(self.programs(), files)
        repaired = inodes(files)
        self.assertEqual([damage for damage, a, b in zip(damages, old, repaired) if a == b], [], "not built anew")
        self.assertEqual([key_of(f.read_bytes()) for f in files], keys)
        self.assertEqual(self.tell(), text)
        self.assertEqual(inodes(files), repaired)

    def test_others_may_not_write(self):
        """Nor may they have written: what others can write, or own, is not read, sound as it is."""
        text, files = self.tell(), self.programs()
        old = inodes(files)
        suspect = {"group": lambda f: f.chmod(0o620), "others": lambda f: f.chmod(0o602)}
        if os.geteuid() == 0:  # who else can give files away
            suspect["owner"] = lambda f: os.chown(f, 65534, 65534)
        kinds = [list(suspect)[i % len(suspect)] for i in range(len(files))]
        for f, kind in zip(files, kinds):
            suspect[kind](f)
        self.assertEqual(self.tell(), text)
        self.assertEqual([kind for kind, a, b in zip(kinds, old, inodes(files)) if a == b], [], "not built anew")
        for f in files:
            self.assertEqual((f.stat().st_mode & 0o777, f.stat().st_uid), (0o600, os.geteuid()))

    def test_others_may_not_write_the_folder(self):
        """In such a folder nothing is read, nor kept."""
        text, files = self.tell(), self.programs()
        old = inodes(files)
        files[0].parent.chmod(0o777)
        self.assertEqual(self.tell(unkept=1), text)
        self.assertEqual((self.programs(), inodes(files)), (files, old))

    def test_no_place_for_it(self):
        self.assertEqual(self.tell(), self.tell("/dev/null/nowhere", unkept=1))


if __name__ == "__main__":
    unittest.main()
