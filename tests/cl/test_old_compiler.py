"""A driver whose compiler knows matrix instructions, but none on 2-bit numbers, as Intel's of 2022: crumb says so, goes down
to int8 instructions, and remembers. On the layer of tests/xe/matrix_layer.c, without those instructions."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND, BUILTINS = os.environ["CRUMB_COMMAND"], Path(os.environ["CRUMB_LAYER_BUILTINS"])


class OldCompiler(unittest.TestCase):
    def test_int8_instructions_serve(self):
        lines = BUILTINS.read_text().splitlines(True)
        kept = [line for line in lines if not line.startswith(("DEFINE_ALL(intel_sub_group_i8_u2", "DEFINE_ALL(intel_sub_group_i8_i2"))]
        self.assertEqual(len(lines) - len(kept), 2)
        with tempfile.TemporaryDirectory() as folder:
            older = Path(folder, "older.cl")
            older.write_text("".join(kept))
            environment = os.environ | {"CRUMB_LAYER_BUILTINS": str(older), "XDG_CACHE_HOME": str(Path(folder, "cache"))}

            def tell(*arguments):
                done = subprocess.run([COMMAND, "run", "-p", "Once upon", "-n", "8", "--temp", "0", *arguments], env=environment,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done

            first, again = tell("--device", "gpu0"), tell("--device", "gpu0")
            self.assertRegex(first.stderr, "does not build .*BITS=2")
            self.assertIn("going on with 'cl:dpas-i8'", first.stderr)
            self.assertNotIn("dp4a", first.stderr)
            self.assertNotIn("going on", again.stderr)
            for done in (first, again):
                self.assertRegex(done.stderr, r"device gpu0 .*, kernels dpas-i8")
                self.assertEqual(done.stdout, first.stdout)
            self.assertEqual(first.stdout, tell("--device", "cpu").stdout)
            listed = subprocess.run([COMMAND, "devices"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    text=True, timeout=60, check=True).stdout
            self.assertRegex(listed, r"lowered to cl:dpas-i8 by an earlier run: .* does not build .*BITS=2")


if __name__ == "__main__":
    unittest.main()
