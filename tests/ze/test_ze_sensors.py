#!/usr/bin/env python3
"""Energy, clocks and timestamps of a Level Zero device: the driver of driver_over_opencl has an energy counter that gains one
joule by every list it is given, a clock that is held down, and timestamps that can be told to be five seconds a
launch, with a clock of 32 bits that wraps. On an undisturbed run a token is one list."""
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

KEPT = Path(os.environ["XDG_CACHE_HOME"], "crumb")  # built modules, which are the same in each test
SYSMAN = ["zesInit", "zesDriverGet", "zesDeviceGet", "zesDeviceGetProperties", "zesDeviceEnumPowerDomains",
          "zesPowerGetProperties", "zesPowerGetEnergyCounter", "zesDeviceEnumFrequencyDomains", "zesFrequencyGetProperties",
          "zesFrequencyGetState"]
OF_POWER, OF_CLOCK = SYSMAN[4:7], SYSMAN[7:]
BENCH = ["bench", "--backend", "ze", "--verify", "off", "-p", "0", "-n", "8", "-r", "2"]
SOURCE = "Level Zero Sysman, card"


class Sensors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = folder.name
        own = Path(folder.name, "crumb")
        own.mkdir(mode=0o700)
        (KEPT / "ze-modules").mkdir(parents=True, exist_ok=True, mode=0o700)
        (own / "ze-modules").symlink_to(KEPT / "ze-modules")

    def crumb(self, *arguments, **settings):
        done = subprocess.run([os.environ["CRUMB_COMMAND"], *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              env={**os.environ, "XDG_CACHE_HOME": self.cache, **settings}, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def bench(self, *more, **settings):
        return json.loads(self.crumb(*BENCH, *more, "-o", "json", **settings).stdout)[0]

    def sensors(self, **settings):
        return json.loads(self.crumb("devices", "--json", **settings).stdout)["devices"][1]["sensors"]

    def test_energy_of_tokens(self):
        """To the microjoule that a reading adds."""
        result = self.bench("--energy")
        self.assertAlmostEqual(result["j_per_token"], 1, places=5)
        self.assertAlmostEqual(result["energy_j"], 8, places=4)
        self.assertEqual(result["energy_source"], f"gpu0: {SOURCE}")
        self.assertIsNone(result["energy_missing"])
        self.assertGreater(result["power_w"], 0)
        self.assertLess(result["power_w"], 2 * 16 / (sum(result["samples_ns"]) * 1e-9))
        self.assertEqual((result["clock_mhz"], result["throttling"]), (2400, "power, temperature"))

    def test_it_is_asked_for(self):
        result = self.bench(CRUMB_FAULT="zesInit")
        for name in ("energy_j", "j_per_token", "energy_source", "energy_missing", "power_w", "clock_mhz", "throttling"):
            self.assertIsNone(result[name], name)

    def test_table(self):
        lines = self.crumb(*BENCH, "--energy").stdout.splitlines()
        self.assertRegex(lines[0], r"\| +J/token \| +W \| +MHz \| throttled by +\|$")
        self.assertRegex(lines[2], r"\| +1 \| +[\d.]+ \| +2400 \| power, temperature +\|$")

    def test_devices(self):
        s = self.sensors()
        self.assertEqual((s["clock_mhz"], s["clock_most_mhz"], s["throttling"]), (2400, 2850, "power, temperature"))
        self.assertEqual((s["energy_source"], s["energy_uj"], s["power_limit_mw"]), (SOURCE, 1, 190000))
        self.assertEqual(s["missing"], "")
        text = self.crumb("devices").stdout
        self.assertIn("clock 2400 MHz of 2850, held down by: power, temperature\n", text)
        self.assertRegex(text, r"power [\d.]+ W of 190, by its energy counter \(Level Zero Sysman, card\)")

    def test_without_domains(self):
        result = self.bench("--energy", CRUMB_DRIVER_SYSMAN="none")
        self.assertIsNone(result["energy_j"])
        self.assertIsNone(result["throttling"])
        for words in ("gpu0: the driver has no energy counter", "no clock"):
            self.assertIn(words, result["energy_missing"])
        self.assertIn("no energy counter", self.sensors(CRUMB_DRIVER_SYSMAN="none")["missing"])

    def test_without_rights(self):
        done = self.crumb(*BENCH, "--energy", CRUMB_DRIVER_SYSMAN="denied")
        self.assertRegex(done.stderr, "gpu0: the energy counter may not be read by this user: run as root, or let the user read")
        self.assertRegex(done.stdout.splitlines()[2], r"\| +\? \| +\? \| +\? \| \? +\|$")
        self.assertIn("run as root", self.crumb("devices", CRUMB_DRIVER_SYSMAN="denied").stdout)

    def test_each_call_fails(self):
        """Of energy or of clocks: what the call tells is missing, and says so; the rest is there."""
        for name in SYSMAN:
            for result in (self.bench("--energy", CRUMB_FAULT=name), self.sensors(CRUMB_FAULT=name)):
                with self.subTest(name):
                    missing = result.get("energy_missing") or result.get("missing")
                    self.assertTrue(missing, result)
                    self.assertEqual(bool(result["energy_source"]), name in OF_CLOCK, result)
                    self.assertEqual(bool(result.get("clock_mhz")), name in OF_POWER, result)

    def test_two_devices(self):
        """Both count, or the sum is unknown: not every machine shows the processor's."""
        result = self.bench("--energy", "-ngl", "3")
        if result["energy_source"]:
            self.assertIn("; cpu: RAPL", result["energy_source"])
            self.assertGreater(result["j_per_token"], 1)
        else:
            self.assertRegex(result["energy_missing"], "cpu: .*energy counter")
            self.assertIsNone(result["energy_j"])

    def test_timestamps(self):
        """Five seconds each: most spans of 32 launches are over the end of the clock, which counts 2^32 ticks of 19.2 MHz."""
        perf = self.crumb("kernels", "perf", "--backend", "ze", "--filter", "linear_u2_gemv__dp4a", "--bits", "1.58", "--shape",
                          "2048x2048x1", CRUMB_DRIVER_TICKS="96000000").stdout
        self.assertRegex(perf, r"a launch 5000000\.0 us")
        self.assertRegex(perf, r"linear_u2_gemv__dp4a +5000000\.0 ")

    def test_tuning_goes_by_timestamps(self):
        database = os.path.join(self.cache, "tuning.sqlite")
        told = json.loads(self.crumb("tune", "--backend", "ze", "--kernel", "linear_u2_gemv__dp4a", "--bits", "2", "--shape",
                                     "48x256x1", "--fraction", "0.2", "--budget", "20s", "--tuning", database, "--json").stdout)
        self.assertGreater(told["measured"], 0)
        self.assertEqual(told["wrong"], 0)

    def test_without_timestamps(self):
        done = subprocess.run([os.environ["CRUMB_COMMAND"], "kernels", "perf", "--backend", "ze", "--filter",
                               "linear_u2_gemv__dp4a", "--bits", "1.58", "--shape", "48x256x1"], text=True, timeout=300,
                              env={**os.environ, "XDG_CACHE_HOME": self.cache, "CRUMB_FAULT": "zeEventQueryKernelTimestamp"},
                              stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertTrue(re.search("tells no times", done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
