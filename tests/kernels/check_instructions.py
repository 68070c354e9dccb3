"""Fails unless the kernels of the VNNI tiers hold the real instruction on the real registers.

    check_instructions.py OBJECT...    the library's object files; those of cpu/avxvnni and cpu/avx512 are read

The test machine may lack these tiers and then runs an emulation of them; this is what says that the code which ships is
not the emulation: every inner loop has vpdpbusd, on ymm registers without EVEX prefix (AVX-VNNI) or on zmm registers.
"""
import re
import subprocess
import sys

TIERS = {"cpu/avxvnni": (r"\{vex\} vpdpbusd .*%ymm\d+$", "avxvnni"), "cpu/avx512": (r"vpdpbusd .*%zmm\d+$", "avx512vnni")}
FORMS = ("u1", "u2", "u3", "u4", "u5", "u6", "u8", "c4")
LEAST = 1  # the narrowest inner loop: 8-bit codes, one stream, 16 rows in a register


def functions(path):
    """Disassembly by function: {name: [instruction]}."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = head[1]
            found[name] = []
        elif name and "\t" in line:
            found[name].append(re.sub(r"\s+", " ", line.split("\t", 1)[1].split("#")[0].strip()))
    return found


def expected(kind, tier):
    """Functions that must hold the instruction."""
    if kind == "gemv":
        split = ("u3", "u5", "u6")
        streams = [f"gemv_sums_{form}_c1_s{n}" for form in FORMS if form not in split for n in (1, 2, 4)]
        return streams + [f"gemv_sums_{form}_c1" for form in split] + [f"gemv_sums_{form}_c2" for form in FORMS]
    return [f"crumb_gemm_{form}_i8__{tier}" for form in FORMS]


def reachable(found, name, seen=()):
    """Instructions of a function and of the local functions that it calls."""
    code = list(found.get(name, []))
    for line in found.get(name, []):
        call = re.match(r"(?:call|jmp) [0-9a-f]+ <([^+>]+)>$", line)
        if call and call[1] != name and call[1] not in seen:
            code += reachable(found, call[1], (*seen, name))
    return code


def main():
    checked, failures = 0, []
    for folder, (pattern, tier) in TIERS.items():
        for kind in ("gemv", "gemm"):
            paths = [p for p in sys.argv[1:] if f"{folder}/{kind}.c" in p]
            if len(paths) != 1:
                failures.append(f"{folder}/{kind}.c: {len(paths)} objects given, not 1")
                continue
            found = functions(paths[0])
            for name in expected(kind, tier):
                count = sum(bool(re.search(pattern, line)) for line in reachable(found, name))
                wrong = sum("vpdpbusd" in line and not re.search(pattern, line) for line in reachable(found, name))
                checked += 1
                if count < LEAST or wrong:
                    failures.append(f"{name} in {folder}: {count} right and {wrong} other vpdpbusd")
    print(f"{checked} functions checked")
    for failure in failures:
        print(failure)
    return 1 if failures or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
