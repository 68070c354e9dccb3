"""Fails unless the kernels of the VNNI tiers hold the real instruction on the real registers, and none of a higher tier.

    check_instructions.py OBJECT...    the library's object files; those of the tiers' folders are read

The test machine may lack these tiers and then runs an emulation of them; this is what says that the code which ships is
not the emulation: each kernel has an innermost loop with the tier's dot product in its own encoding and width, and
vpmaddwd, which emulations multiply by, is nowhere in a folder of a tier with dot products, but for attention, where clang
begins sums with it. (Other innermost loops unpack, fold or look up, and have no products.) And nothing in a tier's folder
needs a processor of another: not one instruction has registers, masks or dot products that the tier lacks.
"""
import importlib.util
import os
import re
import subprocess
import sys

TABLE = importlib.util.spec_from_file_location("gamma_table", os.path.join(os.path.dirname(__file__), "../../tools/gamma-table.py"))
gamma_table = importlib.util.module_from_spec(TABLE)
TABLE.loader.exec_module(gamma_table)

FORMS = ("u1", "u2", "u3", "u4", "u5", "u6", "u8", "c4")
INDEX_FORMS = ("b8", "t5")  # of the index layout: a GEMM unpacks them; one row looks up, without dot products
GEORGANAS = {"avxvnni": ("u1", "u2"), "avxvnniint8": ("u1", "u2"), "avx512ymm": ("u1", "u2")}  # the paper's sequences
EVEX = r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]|\{1to"
VBMI = r"vperm(b|i2b|t2b) |vpmultishiftqb "
# folder: (suffix of its kernels, their dot product, forms of codes, what must not be there)
TIERS = {
    "cpu/avx2": ("avx2", None, (), rf"{EVEX}|vpdp"),  # which every test machine runs
    "cpu/avxvnni": ("avxvnni", r"\{vex\} vpdpbusd .*%ymm\d+$", FORMS, rf"{EVEX}|vpdp(?!busd |wssd )|(?<!\{{vex\}} )vpdp"),
    "cpu/avxvnniint8": ("avxvnniint8", r"vpdpbssd .*%ymm\d+$", ("c4",), rf"{EVEX}|vpdp(?!bssd )"),
    "cpu/avx512ymm": ("avx512ymm", r"^vpdpbusd .*%ymm\d+$", FORMS, r"%zmm|\{vex\}|vpdp(?!busd |wssd )"),
    "cpu/avx512": ("avx512vnni", r"vpdpbusd .*%zmm\d+$", FORMS, rf"\{{vex\}}|vpdp(?!busd |wssd )|{VBMI}"),
    "cpu/avx512vbmi": ("avx512vbmi", r"vpdpbusd .*%zmm\d+$", (), r"\{vex\}|vpdp(?!busd )"),
}
EMULATION = r"vpmaddwd "
ATTENTION = ("q8_scores", "q8_values")  # their products are of pairs of int16: vpdpwssd
KINDS = ("gemv", "gemm", "georganas")
# GEMVs on the index layout: what must be in them. Look-ups have no dot products, products of trits both.
LOOK_UPS = {"cpu/avx2": (("index_1", "index_2"), (r"vpshufb .*%ymm\d+$",)),
            "cpu/avx512": (("index_2",), (r"vpshufb .*%zmm\d+$",)),
            "cpu/avx512vbmi": (("trits_c1",), (r"vpdpbusd .*%zmm\d+$", r"vperm[it]2b .*%zmm\d+$"))}
LEAST = 1  # the narrowest inner loop: 8-bit codes, one stream, 16 rows in a register


def functions(path):
    """Disassembly by function: {name: [(address, instruction)]}."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = head[1]
            found[name] = []
        elif name and "\t" in line:
            address, text = line.split("\t", 1)
            found[name].append((int(address.strip(" :"), 16), re.sub(r"\s+", " ", text.split("#")[0].strip())))
    return found


def expected(kind, tier, forms):
    """Functions of a source that must hold the instruction."""
    if kind == "georganas":
        return [f"crumb_georganas_{form}_i8__{tier}" for form in GEORGANAS.get(tier, ())]
    if kind == "gemv":
        split = ("u3", "u5", "u6")
        streams = [f"gemv_{form}_c1_s{n}" for form in forms if form not in split for n in (1, 2, 4)]
        streams += [name + "_u2" for name in streams]
        return streams + [f"gemv_{form}_c1" for form in forms if form in split] + [f"gemv_{form}_c2" for form in forms]
    index = INDEX_FORMS if forms == FORMS else ()
    return [f"crumb_gemm_{form}_i8__{tier}" for form in (*forms, *index)]


def reachable(found, name, seen=()):
    """Names of a function and of the local functions that it calls."""
    names = {name}
    for _, line in found.get(name, []):
        call = re.match(r"(?:call|jmp) [0-9a-f]+ <([^+>]+)>$", line)
        if call and call[1] != name and call[1] not in seen:
            names |= reachable(found, call[1], (*seen, name))
    return names


def looped(found, name):
    """Instructions of a function's innermost loops, and of those of the local functions that it calls."""
    return [line for each in sorted(reachable(found, name)) for body in gamma_table.loops(found.get(each, [])) for line in body]


def check_kernels(found, names, pattern):
    """Failures of the functions that must have loops with the tier's dot product and none with another."""
    for name in names:
        code = looped(found, name)
        count = sum(bool(re.search(pattern, line)) for line in code)
        wrong = sum("vpdp" in line and not re.search(pattern, line) for line in code)
        if count < LEAST or wrong:
            yield f"{name}: {count} right and {wrong} other dot products"


def check_look_ups(found, name, patterns):
    """Failures of a function whose loops must have each pattern, and a dot product only if that is one."""
    code = looped(found, name)
    for pattern in patterns:
        if not any(re.search(pattern, line) for line in code):
            yield f"{name}: nothing like {pattern}"
    if not any("vpdp" in pattern for pattern in patterns) and any("vpdp" in line for line in code):
        yield f"{name}: dot products"


def check_tier(folder, objects):
    """Functions checked, and failures."""
    tier, pattern, forms, foreign = TIERS[folder]
    checked, n_index, failures = 0, 0, []
    for path in objects:
        found = functions(path)
        wrong = f"{foreign}|{EMULATION}" if pattern and "/attention.c" not in path else foreign
        for name, code in found.items():
            failures += [f"{folder}: {name} has {line}" for _, line in code if re.search(wrong, line)][:1]
        for kind in KINDS:
            if f"{folder}/{kind}.c" in path:
                names = expected(kind, tier, forms)
                checked += len(names)
                failures += [f"{folder}: {failure}" for failure in check_kernels(found, names, pattern)]
        if f"{folder}/gemv_index.c" in path:
            names, patterns = LOOK_UPS[folder]
            names = [f"{name}_s{n}" for name in names for n in (1, 2, 4)]
            n_index = len(names)
            failures += [f"{folder}: {failure}" for name in names for failure in check_look_ups(found, name, patterns)]
        if f"{folder}/attention.c" in path and pattern:
            failures += [f"{folder}: {failure}" for failure in check_kernels(found, ATTENTION, pattern.replace("busd", "wssd"))]
    if n_index != 3 * len(LOOK_UPS.get(folder, ((), ()))[0]):
        failures.append(f"{folder}: the GEMV on the index layout was not among {objects}")
    if not objects or checked != sum(len(expected(kind, tier, forms)) for kind in KINDS):
        failures.append(f"{folder}: not all objects were given: {objects}")
    return checked + n_index, failures


def main():
    checked, failures = 0, []
    for folder in TIERS:
        more, wrong = check_tier(folder, [path for path in sys.argv[1:] if f"/{folder}/" in path])
        checked += more
        failures += wrong
    print(f"{checked} functions checked")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
