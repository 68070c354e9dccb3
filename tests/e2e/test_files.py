"""Model files that are missing, damaged or not models: a message, the right exit code, never a crash."""
import os
import shutil
import struct
import tempfile
import unittest

from command import MODEL, CommandTest, crumb


class Files(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="crumb-e2e-")
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(data)
        return path

    def refuses(self, code, path, says):
        for arguments in (["run", path, "x", "-n", "1"], ["inspect", path], ["tokenize", path, "x"]):
            self.fails(code, *arguments, says=says)

    def test_missing(self):
        self.refuses(1, "/nonexistent/model.gguf", "/nonexistent/model.gguf")

    def test_empty(self):
        self.refuses(3, self.write("empty.gguf", b""), "empty.gguf")

    def test_directory(self):
        self.refuses(1, self.folder, self.folder)

    def test_device(self):
        self.refuses(1, "/dev/null", "/dev/null")

    def test_unreadable(self):
        path = self.write("secret.gguf", b"GGUF")
        os.chmod(path, 0)
        as_other = {}
        if os.geteuid() == 0:  # who reads everything
            os.chmod(self.folder, 0o755)
            as_other = {"user": 65534, "group": 65534, "extra_groups": []}
            try:
                crumb("--version", **as_other)
            except PermissionError:
                self.skipTest("the build folder is for root only")
        for arguments in (["run", path, "x"], ["inspect", path], ["tokenize", path, "x"]):
            self.fails(1, *arguments, says="Permission denied", **as_other)

    def test_not_gguf(self):
        self.refuses(3, self.write("text.gguf", b"Once upon a time\n" * 100), "text.gguf")

    def test_old_versions(self):
        with open(MODEL, "rb") as source:
            data = source.read()
        for version in (0, 1, 4, 0x03000000):
            self.refuses(3, self.write("old.gguf", data[:4] + struct.pack("<I", version) + data[8:]), "old.gguf")

    def test_huge_counts(self):
        for counts in ((1 << 63, 0), (0, 1 << 63), ((1 << 64) - 1, (1 << 64) - 1)):
            self.refuses(3, self.write("huge.gguf", b"GGUF" + struct.pack("<IQQ", 3, *counts)), "huge.gguf")

    def test_truncated_at_each_percent(self):
        with open(MODEL, "rb") as source:
            data = source.read()
        for percent in range(100):
            path = self.write("cut.gguf", data[:len(data) * percent // 100])
            done = self.fails(3, "run", path, "Once upon", "-n", "1", says="cut.gguf")
            self.assertEqual(done.stdout, "")

    def test_whole_file_runs(self):
        self.succeeds("run", MODEL, "Once upon", "-n", "1")

    def test_control_characters_are_escaped(self):
        name = b"general.name"
        text = b"\x1b[31mred\x07"
        data = (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(text))
                + text)
        path = self.write("colour.gguf", data + bytes(64))
        for arguments in (["inspect", path], ["inspect", path, "--json"], ["run", path, "x"]):
            done = crumb(*arguments)
            self.assertNotIn("\x1b", done.stdout + done.stderr)
            self.assertNotIn("\x07", done.stdout + done.stderr)

    def test_one_byte_changed(self):
        """Whatever a wrong byte does, the command ends by itself with a documented code."""
        with open(MODEL, "rb") as source:
            data = bytearray(source.read())
        header = min(len(data), 6000)
        for position in range(0, header, 61):
            changed = bytearray(data)
            changed[position] ^= 0xff
            done = crumb("inspect", self.write("changed.gguf", changed))
            self.assertIn(done.returncode, (0, 1, 3, 5), f"byte {position}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
