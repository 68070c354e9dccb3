#!/usr/bin/env python3
"""What takes a Level Zero device's place: the same card through OpenCL, then the CPU. The driver of driver_over_opencl and
OpenCL's, under the layer that makes it claim to be a GPU, are one card by its name. Whoever runs a model, its text is the
same."""
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND, CLAIMS = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]
KEPT = Path(os.environ["XDG_CACHE_HOME"], "crumb")  # built programs, which are the same in each test
# Of those that a survey and opening a device call; what fails there later tests/cl/test_faults.py goes through.
ASKED = ["zeInit", "zeDriverGet", "zeDriverGetApiVersion", "zeDriverGetProperties", "zeDriverGetExtensionProperties",
         "zeDeviceGet", "zeDeviceGetProperties", "zeDeviceGetComputeProperties", "zeDeviceGetModuleProperties",
         "zeDeviceGetMemoryProperties", "zeDeviceGetCacheProperties", "zeContextCreate", "zeCommandListCreateImmediate"]
NOT_NEEDED = ["zeDriverGetApiVersion", "zeDriverGetProperties", "zeDriverGetExtensionProperties",
              "zeDeviceGetModuleProperties", "zeDeviceGetCacheProperties"]

NEEDED = ["zeDeviceGetComputeProperties", "zeDeviceGetMemoryProperties", "zeContextCreate", "zeCommandListCreateImmediate"]


class Fallback(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        own = Path(self.folder.name, "crumb")
        own.mkdir(mode=0o700)
        for name in ("ze-modules", "cl-programs"):
            (KEPT / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            (own / name).symlink_to(KEPT / name)

    def crumb(self, *arguments, opencl=True, **settings):
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder.name, **settings}
        if opencl:
            environment |= {"OPENCL_LAYERS": CLAIMS, "CRUMB_CLAIM": "gpu"}
        return subprocess.run([COMMAND, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300)

    def run_model(self, *arguments, **settings):
        return self.crumb("run", "-p", "One day a small", "-n", "8", "--temp", "0", "--ignore-eos", *arguments, **settings)

    def list_gpus(self):
        devices = json.loads(self.crumb("devices", "--json", opencl=False).stdout)["devices"][1:]
        return [{key: value for key, value in device.items() if key != "sensors"} for device in devices]

    def ends_on(self, where, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, self.run_model("--device", "cpu").stdout, done.stderr)
        self.assertRegex(done.stderr, rf"device {where}\b", done.stderr)

    def test_level_zero_comes_first(self):
        log = Path(self.folder.name, "calls")
        done = self.run_model(CRUMB_FAULT_LOG=str(log))
        self.ends_on("gpu0", done)
        self.assertNotIn("going on", done.stderr)
        self.assertIn("zeCommandListAppendLaunchKernel", log.read_text())

    def test_opencl_takes_over_when_opening_fails(self):
        self.crumb("devices")
        done = self.run_model("--verify", "off", CRUMB_FAULT="zeCommandListCreateImmediate")
        self.ends_on("gpu0", done)
        self.assertRegex(done.stderr, "ZE_RESULT_ERROR_DEVICE_LOST.*going on through OpenCL")

    def test_opencl_takes_over_when_results_are_wrong(self):
        """After every rung of Level Zero's; and the next run knows."""
        done = self.run_model(CRUMB_DRIVER_WRONG="linear")
        self.ends_on("gpu0", done)
        self.assertIn("going on with 'ze:portable'", done.stderr)
        self.assertIn("going on through OpenCL", done.stderr)
        named = self.run_model("--backend", "ze", CRUMB_DRIVER_WRONG="linear")
        self.assertEqual((named.returncode, named.stdout), (6, ""), named.stderr)

    def test_the_cpu_takes_over_without_opencl(self):
        self.crumb("devices", opencl=False)
        done = self.run_model("--verify", "off", opencl=False, CRUMB_FAULT="zeCommandListCreateImmediate")
        self.ends_on("cpu", done)
        self.assertRegex(done.stderr, "gpu0 .* cannot run this model: .*ZE_RESULT_ERROR_DEVICE_LOST")

    def test_each_call_of_the_survey(self):
        """A device that cannot be asked is none, or unusable, and says why; what is not needed may be missing. What it says
        then is not kept: the next time it is asked again."""
        whole = self.list_gpus()
        self.assertEqual((whole[0]["target"], whole[0]["unusable"]), ("dp4a", ""))
        for name in ASKED:
            with self.subTest(name):
                self.setUp()
                listed = self.crumb("devices", opencl=False, CRUMB_FAULT=name)
                self.assertEqual(listed.returncode, 0, listed.stderr)
                if name in NOT_NEEDED:
                    self.assertRegex(listed.stdout, "gpu0", name)
                    self.assertEqual(self.list_gpus(), whole, name)
                    continue
                said = rf"cannot be used: {name} failed: ZE_RESULT_ERROR_DEVICE_LOST" if name in NEEDED else "no Level Zero driver offers a GPU"
                self.assertRegex(listed.stdout, said, name)
                named = self.crumb("run", "--backend", "ze", "-n", "1", opencl=False, CRUMB_FAULT=name)
                self.assertEqual(named.returncode, 4, f"{name}: {named.stderr}")
                self.assertTrue(re.search("gpu0|Level Zero", named.stderr), f"{name}: {named.stderr}")
                self.assertEqual(self.list_gpus(), whole, name)
        for name in ("zeDeviceGetComputeProperties", "zeDeviceGetMemoryProperties"):  # a driver that has none of it
            self.setUp()
            listed = self.crumb("devices", opencl=False, CRUMB_FAULT=name, CRUMB_FAULT_CODE="refused")
            self.assertIn(f"cannot be used: {name} failed: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", listed.stdout)


if __name__ == "__main__":
    unittest.main()
