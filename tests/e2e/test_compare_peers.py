"""tools/compare-peers.py and its worker for OpenVINO GenAI, with programs that only say they are those: who is asked for
what, in which order, and what becomes of the answers."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "compare-peers.py"

# Says what it was called with, and answers as llama-bench does, or as `--version` wants.
PROGRAM = """#!/bin/sh
echo "{name} $*" >>"{log}"
case "$*" in
*--version*) echo "version: 7 of {name}" ;;
*bench*) echo '[{{"n_prompt": 256, "n_gen": 0, "avg_ts": {prefill}}}, {{"n_prompt": 0, "n_gen": 128, "avg_ts": {decode}}}]' ;;
esac
"""
PYTHON = """#!/bin/sh
PYTHONPATH={modules} exec {python} "$@"
"""
MODULES = {"numpy": "int64 = 0\ndef array(rows, dtype):\n    return rows\n",
           "openvino": "def Tensor(rows):\n    return rows\n",
           "openvino_genai": """
from types import SimpleNamespace as Space
class GenerationConfig: pass
def get_version(): return "2026.x"
class LLMPipeline:
    def __init__(self, path, device, **properties):
        say("load", path, device, properties)
    def generate(self, rows, config):
        (prompt,) = rows
        say("generate", len(set(prompt)), prompt[0], config.max_new_tokens, config.ignore_eos)
        return Space(perf_metrics=Space(
            get_num_input_tokens=lambda: len(prompt) - MISSING, get_num_generated_tokens=lambda: config.max_new_tokens,
            get_ttft=lambda: Space(mean=100.0), get_tpot=lambda: Space(mean=5.0)))
def say(*words):
    print("openvino", *words, file=open(LOG, "a"))
"""}


class ComparePeers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = self.folder / "log"
        self.program("build/crumb", "crumb", prefill=5120, decode=400)
        self.program("llama/run", "llama", prefill=1024, decode=100)
        for path in ("SmolLM2-135M-Instruct.Q4_1.gguf", "crumb/models/SmolLM2-135M-Instruct.Q8_0.gguf"):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).touch()
        self.install_openvino()

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def program(self, path, name, **speeds):
        self.write(path, PROGRAM.format(name=name, log=self.log, **speeds))

    def install_openvino(self, missing=0):
        for name, text in MODULES.items():
            self.write(f"modules/{name}.py", f"LOG, MISSING = {str(self.log)!r}, {missing}\n{text}")
        self.write("python", PYTHON.format(modules=self.folder / "modules", python=sys.executable))

    def compare(self, *arguments):
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder), "CRUMB_LLAMA_PREFIX": str(self.folder / "llama"),
               "CRUMB_OPENVINO_PYTHON": str(self.folder / "python"),
               "CRUMB_TEST_SMOLLM2": str(self.folder / "SmolLM2-135M-Instruct.Q4_1.gguf")}
        return subprocess.run([sys.executable, "-B", TOOL, "--build", self.folder / "build", *arguments], env=env,
                              capture_output=True, text=True, timeout=100)

    def test_openvino_takes_turns_on_the_8_bit_file(self):
        done = self.compare("--only", "smollm2", "--openvino", "--rounds", "2", "--json", self.folder / "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; OpenVINO GenAI 2026.x\n", done.stdout)
        self.assertIn("| SmolLM2-135M Q8_0 | prefill 256 | OpenVINO GenAI | 2560.0 | 5120.0 | tok/s | 2.00 (2.00-2.00) |  |  |",
                      done.stdout)
        rows = json.loads((self.folder / "json").read_text())["rows"]
        said = {(r["what"], r["peer"]): (r["theirs"], r["crumb"]) for r in rows if r["case"] == "SmolLM2-135M Q8_0"}
        self.assertEqual(said, {("prefill 256", "llama.cpp"): ([1024] * 2, [5120] * 2),
                                ("decode 128", "llama.cpp"): ([100] * 2, [400] * 2),
                                ("prefill 256", "OpenVINO GenAI"): ([2560] * 2, [5120] * 2),
                                ("decode 128", "OpenVINO GenAI"): ([200] * 2, [400] * 2)})
        log = self.log.read_text().splitlines()
        calls = [line for line in log if "Q8_0" in line]
        self.assertEqual([line.split()[0] for line in calls], ["crumb", "llama", "openvino", "llama", "openvino", "crumb"])
        self.assertTrue(all("-t 2 -p 256 -n 128" in line for line in calls if "bench" in line))
        self.assertTrue(all("CPU {'INFERENCE_NUM_THREADS': 2}" in line for line in calls if "load" in line))
        # Each process warms up; a prompt is of tokens that it has not met, and a context for decoding of one.
        asked = [line.split()[2:] for line in log if "generate" in line]
        self.assertEqual([(a[0], *a[2:]) for a in asked], [("256", "1", "True"), ("1", "129", "True")] * 4)
        self.assertGreater(len({a[1] for a in asked}), 4)

    def test_openvino_is_asked_only_where_it_is_wanted(self):
        done = self.compare("--only", "smollm2", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Q8_0", done.stdout)
        self.assertNotIn("openvino", self.log.read_text())
        done = self.compare("--openvino", "--avx2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--openvino", done.stderr)

    def test_what_was_not_computed_is_no_speed(self):
        self.install_openvino(missing=1)
        done = self.compare("--only", "smollm2", "--openvino", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("255 tokens were read", done.stderr)

    def test_without_openvino_it_says_so(self):
        (self.folder / "modules" / "openvino_genai.py").unlink()
        done = self.compare("--only", "smollm2", "--openvino", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no OpenVINO GenAI", done.stderr)


if __name__ == "__main__":
    unittest.main()
