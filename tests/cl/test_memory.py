"""Weights lie in memory once where an integrated GPU and the CPU both compute, and so do keys and values: the peak of a real
model's process, whose weights are most of it, on a driver that claims to be such a GPU (claims_layer.c). What crumb says
that plans take as scratch is printed beside it: with the layers in turns each has plans of its own, 31 times two of
them, and nothing else is larger than on one device. So it is with a card that has memory of its own (the runtime's is the
machine's, too): layers that are divided lie in one of the two memories, but for the embedding's table where it is the output
matrix, too."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from system_loader import under_layer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import peer_models  # noqa: E402

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]


def real_model():
    try:
        return peer_models.model("smollm2-Q8_0")
    except peer_models.Unavailable as reason:
        print(reason, file=sys.stderr)
        sys.exit(77)


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.environment = under_layer(cls.folder.name, LAYER, "whether weights exist once")
        cls.model = real_model()

    def peak(self, *arguments, **settings):
        """Most memory that the process had, the text, the placement, and MB of weights, keys and values, and scratch."""
        settings = {"CRUMB_CLAIM": "gpu", **settings}
        environment = {**self.environment, "XDG_CACHE_HOME": str(Path(self.folder.name, settings["CRUMB_CLAIM"])), **settings}
        command = [COMMAND, "run", "-v", "-m", self.model, "--json", "--verify", "off", "--profile", "none", "-p",
                   "The capital of France is " * 4, "-n", "4", "--temp", "0", "-c", "256", "-ub", "32", *arguments]
        notes = Path(self.folder.name, "notes")
        with notes.open("w") as log, subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                                      stdout=subprocess.PIPE, stderr=log, text=True) as p:
            lines = p.stdout.read().splitlines()
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 0, notes.read_text())
        events = [json.loads(line) for line in lines]
        said = re.search(r"memory: weights (\S+) MB, .* f16 (\S+) MB, scratch (\S+) MB", notes.read_text())
        return (usage.ru_maxrss * 1024, "".join(e["text"] for e in events if e["event"] == "text"),
                events[0]["placement"], [float(x) for x in said.groups()])

    def warm(self, *arguments, **settings):
        """The same of a second run: building kernels takes more memory than the model."""
        self.peak(*arguments, **settings)
        return self.peak(*arguments, **settings)

    def test_divided_layers_lie_in_one_of_two_memories(self):
        weights = os.path.getsize(self.model)
        alone, text, _, memory = self.warm("--device", "gpu0", CRUMB_CLAIM="card")
        for share in (0.2, 0.5, 0.8):
            both, same, placement, now = self.warm("--device", "cpu+gpu0", "--split", str(share), CRUMB_CLAIM="card")
            print(f"{share}: {both / 1e6:.0f} MB, the card alone {alone / 1e6:.0f}; weights {now[0]:.1f} MB, alone {memory[0]:.1f}")
            self.assertIn("of each layer", placement)
            self.assertEqual(same, text)
            self.assertEqual(now[1], memory[1])  # keys and values
            self.assertLess(now[0] - memory[0], share * 0.22 * memory[0])  # a fifth is the table, and norms are small
            self.assertLess(both - alone, 0.25 * weights)

    def test_both_devices_read_one_copy(self):
        weights = os.path.getsize(self.model)
        self.assertGreater(weights, 100e6)
        alone, text, _, memory = self.warm("--device", "gpu0")
        for settings, arguments in (({"CRUMB_PLACE": "g:c"}, ["gpu0"]), ({"CRUMB_PLACE": "gc"}, ["gpu0"]),
                                    ({}, ["cpu+gpu0", "--split", "0.5"])):
            both, same, placement, now = self.warm("--device", *arguments, **settings)
            print(f"{settings} {arguments}: {both / 1e6:.0f} MB, gpu0 alone {alone / 1e6:.0f}, weights {weights / 1e6:.0f}; "
                  f"scratch, as far as it is touched: {now[2]:.0f} MB, alone {memory[2]:.0f}")
            self.assertIn("cpu", placement)
            self.assertEqual(same, text)
            self.assertEqual(now[:2], memory[:2])  # weights, and keys and values
            self.assertLess(both - alone, 0.25 * weights)


if __name__ == "__main__":
    unittest.main()
