#!/usr/bin/env python3
"""machine_code.py without the compiler: how it reads what that says of a kernel, and that what it compiles has every row of the
registry.

usage: test_machine_code.py LIST_VARIANTS
"""
import subprocess
import sys
import unittest

import machine_code

SCRATCH = """
    per_thread_memory_buffers:
      - type:            scratch
        usage:           single_space
        size:            2048
"""
PRIVATE = """
      private_size:    256
    per_thread_memory_buffers:
      - type:            global
        usage:           private_space
        size:            32
        is_simt_thread:  true
"""
NEITHER = """
      simd_size:       8
    payload_arguments:
      - arg_type:        buffer_offset
        offset:          256
        size:            4
    args_info:
      - name:            scratch
        address_qualifier: __private
"""


class Spilling(unittest.TestCase):
    def test_scratch_and_private_memory_count(self):
        self.assertEqual(machine_code.spilled_bytes(SCRATCH), 2048)
        self.assertEqual(machine_code.spilled_bytes(PRIVATE), 256)
        self.assertEqual(machine_code.spilled_bytes(PRIVATE + SCRATCH), 2304)
        self.assertEqual(machine_code.spilled_bytes(NEITHER), 0)


class Rows(unittest.TestCase):
    def told(self, *arguments):
        return subprocess.run([LIST_VARIANTS, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    def test_every_row_is_compiled(self):
        variants = [machine_code.Variant(line) for line in self.told()]
        compiled = {v.name for v in variants if v.devices()}
        rows = set(self.told("--rows"))
        self.assertGreater(len(rows), 400)
        self.assertEqual(compiled, rows)

    def test_results_in_bf16_of_codes_are_compiled_once_and_by_hand(self):
        variants = [v for v in map(machine_code.Variant, self.told()) if v.to_bf16()]
        self.assertGreater(len(variants), 100)
        self.assertEqual(len({v.name for v in variants}), len(variants))
        for v in variants:
            self.assertEqual(len(v.devices()), 1, v.name)
            self.assertFalse(v.stands_for_all(v.devices()[0]), v.name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LIST_VARIANTS = sys.argv.pop(1)
    unittest.main()
