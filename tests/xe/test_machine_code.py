#!/usr/bin/env python3
"""How machine_code.py reads what Intel's compiler says of a kernel, without the compiler."""
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


if __name__ == "__main__":
    unittest.main()
