"""crumb where OpenCL drivers are missing, crash, hang or lie (fake_icd.c), and where the cache cannot be used: a clear
message, and the CPU where that serves. CRUMB_COMMAND is the command, CRUMB_FAKES the folder of the fake drivers."""
import json
import os
import re
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

COMMAND, FAKES = os.environ["CRUMB_COMMAND"], Path(os.environ["CRUMB_FAKES"])


class Drivers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.vendors, self.cache = Path(self.folder.name, "vendors"), Path(self.folder.name, "cache")
        self.vendors.mkdir()

    def install(self, name):
        (self.vendors / f"{name}.icd").write_text(f"{FAKES / f'libfake_{name}.so'}\n")

    def crumb(self, *arguments, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CRUMB_", "OCL_", "OPENCL_"))}
        environment = {**clean, "OCL_ICD_VENDORS": str(self.vendors), "XDG_CACHE_HOME": str(self.cache), **more}
        return subprocess.run([COMMAND, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)

    def assert_cpu_serves(self, why, **more):
        done = self.crumb("run", "-n", "3", "--temp", "0", "--ignore-eos", **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.splitlines()[0], r"device cpu .*no GPU: .*" + why)

    def assert_gpu_fails(self, code, why, **more):
        self.assert_named_fails("gpu0", code, why, **more)

    def assert_named_fails(self, name, code, why, **more):
        done = self.crumb("run", "-n", "3", "--device", name, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, r"crumb: error: .*" + why)

    def test_none(self):
        self.assert_cpu_serves("")
        self.assert_gpu_fails(4, "gpu0: no GPU: ")
        self.assertIn("no GPU: ", self.crumb("devices").stdout)

    def test_no_loader(self):
        """Not even that is there: what is found in its place is none."""
        Path(self.folder.name, "libOpenCL.so.1").touch()
        more = {"LD_LIBRARY_PATH": self.folder.name}
        self.assert_cpu_serves("there is no OpenCL loader; install it", **more)
        self.assert_gpu_fails(4, "there is no OpenCL loader; install it", **more)

    def test_crashing(self):
        self.install("crashes")
        self.assert_cpu_serves("crashes.icd crashes when it is asked")
        self.assert_gpu_fails(4, "crashes.icd crashes when it is asked")

    def test_hanging(self):
        """Drivers are asked together, then each alone; and not again, since that is remembered."""
        self.install("hangs")
        asked = Path(self.folder.name, "asked")
        for _ in range(2):
            self.assert_cpu_serves("hangs.icd hangs when it is asked", FAKE_ASKED=str(asked))
            self.assertEqual(asked.read_text(), "xx")

    def found(self, failures):
        """What crumb says of a driver that fails so often before it answers."""
        left = Path(self.folder.name, "failures")
        left.write_text("x" * failures)
        told = json.loads(self.crumb("devices", "--json", FAKE_FAILURES=str(left)).stdout)
        return [d["detail"] for d in told["devices"][1:]], told.get("no_gpu", "")

    def held(self, pass_by=False):
        """For how many seconds the kept answer holds; `pass_by`: they do."""
        kept = self.cache / "crumb" / "cl-survey"
        text = kept.read_text()
        until, seconds = re.search(r"^until (\d+) (\d+)$", text, re.M).groups()
        if pass_by:
            past = text.replace(f"until {until}", f"until {int(time.time())}")
            kept.write_text(past)
        return int(seconds)

    def test_failing_once(self):
        """A driver that fails by chance is asked again at once."""
        self.install("fails")
        self.assertEqual(self.found(1)[0], ["Fake?Arc"])
        self.assertEqual(self.held(), 0)
        self.assertEqual(self.found(9)[0], ["Fake?Arc"])  # kept

    def test_failing_for_a_while(self):
        """That a driver failed is kept for a minute, and ever longer while it fails; then it is used."""
        self.install("fails")
        devices, note = self.found(9)
        self.assertEqual(devices, [])
        self.assertRegex(note, r"fails.icd crashes when it is asked .* \(asked again in 1 min\)")
        self.assertEqual(self.found(0), ([], note))
        self.assertEqual(self.held(pass_by=True), 60)
        self.assertRegex(self.found(9)[1], r"crashes when it is asked .* \(asked again in 8 min\)")
        self.assertEqual(self.held(pass_by=True), 480)
        self.assertEqual(self.found(0)[0], ["Fake?Arc"])
        self.assertEqual(self.held(), 0)

    def test_none_for_a_while(self):
        """So is that a driver offers nothing, which may have been chance."""
        (self.vendors / "missing.icd").write_text("/nowhere/libmissing.so\n")
        self.crumb("devices")
        self.assertEqual(self.held(pass_by=True), 60)
        self.crumb("devices")
        self.assertEqual(self.held(), 480)

    def test_files_without_a_driver_beside_a_driver(self):
        self.install("lies")
        (self.vendors / "missing.icd").write_text("/nowhere/libmissing.so\n")
        (self.vendors / "text.icd").write_text(f"{Path(__file__).resolve()}\n")
        (self.vendors / "empty.icd").write_text("")
        found = json.loads(self.crumb("devices", "--json").stdout)["devices"]
        self.assertEqual([d["detail"] for d in found[1:]], ["Fake?Arc"])

    def test_broken_ones_beside_another(self):
        """The first is named, and what to do. The one that answers is not used, since the loader loads all of them."""
        for name in ("crashes", "hangs", "lies"):
            self.install(name)
        self.assertRegex(self.crumb("devices").stdout, "crashes.icd crashes when it is asked .*; remove it, or let OCL_ICD_VENDORS")
        self.assert_gpu_fails(4, "crashes.icd crashes when it is asked")
        self.assert_cpu_serves("crashes.icd crashes when it is asked")

    def test_lying(self):
        self.install("lies")
        gpu = json.loads(self.crumb("devices", "--json").stdout)["devices"][1]
        self.assertEqual(gpu["name"], "gpu0")
        self.assertEqual(gpu["detail"], "Fake?Arc")
        self.assertNotIn("usm", gpu["features"])
        self.assertNotIn("\x1b", self.crumb("devices").stdout)
        self.assert_cpu_serves(r"gpu0 \(Fake\?Arc\) cannot run this model: .*CL_DEVICE_NOT_AVAILABLE")
        self.assert_gpu_fails(4, "creating a context failed: CL_DEVICE_NOT_AVAILABLE")

    def test_a_library_that_was_replaced(self):
        """Nothing that the kept answer depends on says so, but the driver's version when the device is opened: drivers are asked
        again, and what was built and checked with the one before is not taken for this one's."""
        self.install("lies")

        def version():
            return json.loads(self.crumb("devices", "--json").stdout)["devices"][1]["driver"].split()[-1]

        self.assertEqual(version(), "1.0")
        self.assert_gpu_fails(4, "creating a context failed: CL_DEVICE_NOT_AVAILABLE", FAKE_VERSION="2.0")
        self.assertEqual(version(), "2.0")

    def test_queries_that_fail(self):
        """What crumb cannot do without and is not told is named, and asked again the next time. That is not what it would say of
        a device that answers no, or 0."""
        self.install("lies")
        name, needed = "0x102b", {
            "CL_DEVICE_AVAILABLE": "0x1027", "CL_DEVICE_COMPILER_AVAILABLE": "0x1028", "CL_DEVICE_ADDRESS_BITS": "0x100d",
            "CL_DEVICE_ENDIAN_LITTLE": "0x1026", "CL_DEVICE_LOCAL_MEM_SIZE": "0x1023", "CL_DEVICE_MAX_WORK_GROUP_SIZE": "0x1004",
            "CL_DEVICE_GLOBAL_MEM_SIZE": "0x101f", "CL_DEVICE_MAX_MEM_ALLOC_SIZE": "0x1010"}
        for query, number in needed.items():
            with self.subTest(query):
                failed = f"clGetDeviceInfo of {query} failed: CL_OUT_OF_RESOURCES"
                for refused, called in ((f",{number},", "Fake?Arc"), (f",{name},{number},", "name unknown")):
                    gpu = json.loads(self.crumb("devices", "--json", FAKE_REFUSES=refused).stdout)["devices"][1]
                    self.assertEqual((gpu["detail"], gpu["unusable"]), (called, failed))
                    self.assert_gpu_fails(4, re.escape(f"gpu0 ({called}) cannot be used: {failed}"), FAKE_REFUSES=refused)
        self.assert_gpu_fails(4, "gpu0 .*creating a context failed: CL_DEVICE_NOT_AVAILABLE")
        unnamed = json.loads(self.crumb("devices", "--json", FAKE_REFUSES=f",{name},").stdout)["devices"][1]
        self.assertEqual((unnamed["detail"], unnamed["unusable"]), ("Fake?Arc", ""))  # the answer before is kept

    def test_small(self):
        self.install("small")
        self.assert_cpu_serves("cannot run this model: .*not enough|cannot run this model: .*at most")
        self.assert_gpu_fails(5, "MiB")

    def test_two_that_answer(self):
        """Each has a name, by which it is reached: a discrete GPU before one that shares the host's memory, in whichever order
        the loader has their platforms."""
        for name in ("lies", "small"):
            self.install(name)
        own = {"Fake?Arc": (4, "creating a context failed: CL_DEVICE_NOT_AVAILABLE"), "Small?Arc": (5, "MiB")}
        for integrated in ("", "Fake\nArc", "Small\nArc"):
            with self.subTest(integrated):
                more = {"FAKE_INTEGRATED": integrated, "XDG_CACHE_HOME": str(Path(self.folder.name, f"cache-{len(integrated)}"))}
                devices = json.loads(self.crumb("devices", "--json", **more).stdout)["devices"]
                self.assertEqual([d["name"] for d in devices], ["cpu", "gpu0", "gpu1"])
                details = [d["detail"] for d in devices[1:]]
                self.assertEqual(sorted(details), sorted(own))
                if integrated:
                    self.assertEqual(details[1], integrated.replace("\n", "?"))
                for device in devices[1:]:
                    code, why = own[device["detail"]]
                    self.assert_named_fails(device["name"], code, rf"\b{device['name']}\b.*{why}", **more)
                self.assert_named_fails("gpu2", 4, "device gpu2: there is gpu0 to gpu1", **more)

    def test_a_cache_that_cannot_be_written(self):
        self.install("lies")
        self.assert_cpu_serves("CL_DEVICE_NOT_AVAILABLE", XDG_CACHE_HOME="/dev/null/nowhere")

    def test_a_cache_that_others_write(self):
        self.install("lies")
        self.assert_cpu_serves("CL_DEVICE_NOT_AVAILABLE")
        known = self.cache / "crumb" / "cl-survey"
        self.assertEqual(known.stat().st_mode & 0o777, 0o600)
        text = known.read_text()
        for damage in (text.replace("Fake?Arc", "Another"), text[: len(text) // 2], ""):
            known.write_text(damage)
            known.chmod(0o666)
            self.assert_cpu_serves("Fake.Arc")


if __name__ == "__main__":
    unittest.main()
