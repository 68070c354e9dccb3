"""Tokens as command buffers, where the device has cl_khr_command_buffer: a real driver that has it, Intel's runtime for CPUs
(tests/xe/on_runtime.py), under the layer that tells calls by function (faults_layer.c). The first token's kernels are launched one
by one, as those of the first token that needs other sizes; each other is one call, of what has been recorded once. Needs a
loader with layers: the system's, in the place of the runtime's own. What other devices do is in null_device.py."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from null_device import calls_by_function, check_all_are_seen, kernels_of
from system_loader import under_layer

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_FAULTS_LAYER"]
RUN, LAUNCH = "clEnqueueCommandBufferKHR", "clEnqueueNDRangeKernel"
CREATE, RECORD, FINALIZE = "clCreateCommandBufferKHR", "clCommandNDRangeKernelKHR", "clFinalizeCommandBufferKHR"


class CommandBuffer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.environment = under_layer(cls.folder.name, LAYER, "that tokens are command buffers")
        listed = cls.crumb({}, "devices", "--json").stdout
        features = next(d["features"] for d in json.loads(listed)["devices"] if d["name"] == "gpu0")
        if "command buffers" not in features:
            raise AssertionError(f"the runtime has them no longer, and nothing here tests their use: {features}")
        cls.calls(2)  # builds

    @classmethod
    def crumb(cls, settings, *arguments):
        return subprocess.run([COMMAND, *arguments], env=cls.environment | settings, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300)

    @classmethod
    def calls(cls, tokens):
        """(how often each function is called to decode so many tokens, the kernels of one)"""
        done, calls = calls_by_function(Path(cls.folder.name, "functions"), lambda settings: cls.crumb(
            settings, "run", "--device", "gpu0", "--verify", "off", "--temp", "0", "--ignore-eos", "-n", str(tokens), "-v"))
        return calls, kernels_of(done.stderr)

    def growth(self, few, many):
        (fewer_calls, kernels), (more_calls, same) = self.calls(few), self.calls(many)
        self.assertEqual(kernels, same)
        more_calls.subtract(fewer_calls)
        return {function: n for function, n in more_calls.items() if n}, kernels

    def test_all_calls_are_seen(self):
        check_all_are_seen()

    def test_one_token_is_one_call(self):
        """The prompt, whose logits give the first token, and the second token are launched; all others are runs of one list."""
        calls, kernels = self.calls(8)
        self.assertEqual((calls[CREATE], calls[RECORD], calls[FINALIZE], calls[RUN]), (1, kernels, 1, 6))
        found, _ = self.growth(8, 40)
        self.assertEqual({name: found.pop(name, 0) for name in (RUN, "clFinish")}, {RUN: 32, "clFinish": 32})
        self.assertIn(found.pop("clEnqueueMemcpyINTEL", 0), (0, 32, 64))
        self.assertEqual(found, {})

    def test_more_chunks_of_keys(self):
        """Behind 128 positions attention is launched in other sizes, which are recorded once, as they are behind 256."""
        for few, many, times in ((100, 140, 1), (100, 300, 2)):
            found, kernels = self.growth(few, many)
            found.pop("clEnqueueMemcpyINTEL", 0)
            self.assertEqual(found, {CREATE: times, RECORD: times * kernels, FINALIZE: times, LAUNCH: times * kernels,
                                     RUN: many - few - times, "clFinish": many - few})


if __name__ == "__main__":
    unittest.main()
