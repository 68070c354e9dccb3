"""What crumb quantize shows while it works: a bar and the time that is left, on a terminal and nowhere else."""
import os
import pty
import subprocess
import unittest

from command import COMMAND, environment
from quantizing import LLAMA, QuantizeTest


@unittest.skipIf(os.environ.get("CRUMB_SANITIZE"), "a sanitizer's library must come before a preloaded one")
class Progress(QuantizeTest):
    def shows(self, *options, error):
        """What it writes, all on a terminal (or with only stderr on a pipe), by a clock that goes on a second each time it
        is read."""
        terminal, end = pty.openpty()
        process = subprocess.Popen([COMMAND, "quantize", LLAMA, self.out, *options, "-t", "1"], stdin=end, stdout=end,
                                   stderr=end if error == "terminal" else subprocess.PIPE,
                                   env=environment(LD_PRELOAD=os.environ["CRUMB_FAST_CLOCK"], TERM="xterm"))
        os.close(end)
        seen, piped = b"", process.stderr.read() if process.stderr else b""
        try:
            while part := os.read(terminal, 4096):
                seen += part
        except OSError:  # what a terminal says whose other end is closed
            pass
        os.close(terminal)
        if process.stderr:
            process.stderr.close()
        self.assertEqual(process.wait(), 0, seen + piped)
        return (seen + piped).decode()

    def test_a_terminal_shows_what_is_left(self):
        for options in (("Q4_0",), ("GPTQ4", "--group-size", "32")):
            shown = self.shows(*options, error="terminal")
            self.assertRegex(shown, r"\r[a-z ]+ \[#+\.+\] +\d+% ETA \d+:\d\d ")
            self.assertRegex(shown, r"\r\x1b\[K[^\r]*\r?\n$")  # and is clean behind it
            self.out = os.path.join(self.folder, "packed")

    def test_a_pipe_does_not(self):
        shown = self.shows("Q4_0", error="pipe")
        self.assertIn("became a file of", shown)
        for part in ("ETA", "%", "\x1b", "[#"):
            self.assertNotIn(part, shown)

    def test_quiet_does_not(self):
        self.assertEqual(self.shows("Q4_0", "--log-disable", error="terminal"), "")


if __name__ == "__main__":
    unittest.main()
