#!/usr/bin/env python3
"""The whole path of `crumb run --backend ze` on Intel's Level Zero driver without hardware, for dg2, bmg, lnl and ptl,
under the loader's validation layer: parameters, lifetimes of handles, leaks.

The driver is a null device, as tests/cl/null_device.py has it for OpenCL: all calls succeed, kernels are built by the real
compiler, nothing executes. So this proves use of the API, that every handle is released, and that all kernels build, from
OpenCL C and, under the validation layer, which lets no driver's own formats through, from SPIR-V. And it prints the host's
time per token beside OpenCL's.

Exit status 77: the driver cannot be had here, or its keys have stopped working, for the reason on stderr.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cl"))
from null_device import BUILD, COMMAND, DEVICES, KEYS, find_prefix, make_modules, skip

ARCHIVER = os.environ["CRUMB_ZE_ARCHIVER"]
ARCHIVED = [], ["--synthetic", "bitnet-2b4t:ternary"]
ALL_DEVICES = DEVICES | {"tgllp": "1x6x16", "mtl": "2x4x16"}  # those without matrix instructions are in the archive too
LIST_COSTS = os.environ["CRUMB_LIST_COSTS"]
CHECKS = {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1", "ZE_ENABLE_HANDLE_LIFETIME": "1",
          "ZEL_ENABLE_BASIC_LEAK_CHECKER": "1"}
MADE_AND_RELEASED = [
    (["zeContextCreate"], ["zeContextDestroy"]),
    (["zeCommandQueueCreate"], ["zeCommandQueueDestroy"]),
    (["zeModuleCreate"], ["zeModuleDestroy"]),
    (["zeKernelCreate"], ["zeKernelDestroy"]),
    (["zeEventPoolCreate"], ["zeEventPoolDestroy"]),
    (["zeEventCreate"], ["zeEventDestroy"]),
    (["zeCommandListCreate", "zeCommandListCreateImmediate"], ["zeCommandListDestroy"]),
    (["zeMemAllocDevice", "zeMemAllocHost", "zeMemAllocShared"], ["zeMemFree", "zeMemFreeExt"]),
]


class Machine:
    """A folder with both modules, whose programs see one null device."""

    def __init__(self, folder, prefix, device):
        self.folder, self.prefix, self.device = folder, prefix, device
        self.libraries = next(prefix.glob("usr/lib/*/libze_intel_gpu.so.1")).parent
        make_modules(folder, prefix)
        shutil.copy(BUILD / "libcrumb-ze.so", folder)
        survey = folder / "crumb-ze-survey"
        survey.write_text(f"#!/bin/sh\nexec '{prefix}/run' '{BUILD}/crumb-ze-survey' \"$@\"\n")
        survey.chmod(0o755)

    def crumb(self, *arguments, cache="cache", **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CRUMB_", "ZE_", "ZEL_"))}
        environment |= self.settings() | {
            "OCL_ICD_VENDORS": str(self.folder / "vendors"), "CRUMB_MODULE_DIR": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / cache)} | more
        return self.in_prefix([COMMAND, *arguments], environment)

    def settings(self):
        return KEYS | {"ProductFamilyOverride": self.device, "HardwareInfoOverride": ALL_DEVICES[self.device],
                       "ZE_ENABLE_ALT_DRIVERS": str(self.libraries / "libze_intel_gpu.so.1")}

    def in_prefix(self, program, environment=None):
        return subprocess.run([self.prefix / "run", *program], env=environment or os.environ | self.settings(), cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=400)

    def run(self, *arguments, **more):
        return self.crumb("run", "--verify", "off", "-n", "8", "--temp", "0", "--ignore-eos", "-v", *arguments, **more)


def check_balance(text, what):
    """What the leak checker counted: as many handles released as made, and some made."""
    counts = {name: int(n) for name, n in re.findall(r"\b(ze\w+) = (\d+)", text)}
    assert "Check balance of create/destroy calls" in text and counts.get("zeKernelCreate"), f"{what}: {text[-3000:]}"
    for made, released in MADE_AND_RELEASED:
        n = sum(counts.get(name, 0) for name in made), sum(counts.get(name, 0) for name in released)
        assert n[0] == n[1], f"{what}: {made} {n[0]} times, {released} {n[1]} times"


def check_run(machine, target, *arguments, **more):
    """One run of the command through Level Zero; its text."""
    what = f"{machine.device} {target} {arguments} {sorted(more)}"
    done = machine.run("--backend", "ze", *(["--target", f"ze:{target}"] if target else []), *arguments, **more)
    text = done.stdout + done.stderr
    assert done.returncode == 0, f"{what}: {text[-3000:]}"
    assert "device gpu0" in text, f"{what}: {text[-3000:]}"
    kernel = {None: "dpas", "dpas-i8": "-i8", "dpas+exact": "dpas"}.get(target, target)
    assert re.search(rf"rows is .* (linear|gemv|gemm)_u2_\w*{kernel}", text), f"{what}: {text[-3000:]}"
    return text


def check_listing(machine):
    """One card with one name through both, Level Zero first; None: the driver shows none."""
    gpus = [d for d in json.loads(machine.crumb("devices", "--json").stdout)["devices"] if d["name"].startswith("gpu")]
    if not gpus:
        return None
    assert [(d["name"], d["backend"]) for d in gpus] == [("gpu0", "ze"), ("gpu0", "cl")], gpus
    assert not any(d["unusable"] for d in gpus), gpus
    same = ("kind", "units", "target", "detail")
    assert all(gpus[0][key] == gpus[1][key] for key in same), gpus
    alone = machine.run("--device", "gpu0")
    assert "device gpu0" in alone.stderr and "roofline" in alone.stderr, alone.stderr
    return gpus[0]


def check_wrong_results(machine):
    """A device that computes nothing is noticed, and the CPU takes its place."""
    named = machine.crumb("run", "--backend", "ze", "-n", "4")
    assert named.returncode == 6, f"{named.returncode} {named.stderr}"
    for rung in ("dpas+exact", "dpas-i8", "dpas-i8+exact", "dp4a", "portable"):
        assert f"going on with 'ze:{rung}'" in named.stderr, named.stderr
    free = machine.crumb("run", "-n", "4", "--temp", "0", "-p", "Once upon a time")
    assert free.returncode == 0 and "device cpu" in free.stderr and "gpu0" in free.stderr, free.stderr
    small = ["--backend", "ze", "--filter", "linear_u2_gemv__dp4a", "--bits", "1.58", "--shape", "48x256x1"]
    test = machine.crumb("kernels", "test", *small)
    assert test.returncode == 6 and "FAILED" in test.stdout and "--backend ze" in test.stdout, test.stdout + test.stderr
    perf = machine.crumb("kernels", "perf", *small)
    assert perf.returncode == 4 and "tells no times" in perf.stderr, perf.stdout + perf.stderr


def check_cache(machine):
    """Modules that are kept are taken again; damaged ones are built again."""
    kept = sorted(Path(machine.folder, "cache/crumb/ze-modules").iterdir())
    assert len(kept) > 5, kept
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept}
    check_run(machine, None)
    assert all(path.stat().st_mtime_ns == before[path][0] for path in kept)
    for i, path in enumerate(kept):
        text = before[path][1]
        path.write_bytes([text[:len(text) // 2], text[:-1] + bytes([text[-1] ^ 1]), text.replace(b"gpu", b"cpu", 1) + b"x",
                          b""][i % 4])
    check_run(machine, None)
    again = [path for path in kept if path.read_bytes() == before[path][1]]
    assert again, "no damaged module was built again"


def check_sensors(machine, **more):
    """A null device has no sensors: Sysman says so, and nothing else happens."""
    device = json.loads(machine.crumb("devices", "--json", **more).stdout)["devices"][1]
    assert device["sensors"]["energy_source"] == "" and device["sensors"]["missing"], device
    done = machine.crumb("bench", "--backend", "ze", "--energy", "--verify", "off", "-p", "0", "-n", "4", "-r", "1", "-o", "json",
                         **more)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)[0]
    assert result["energy_j"] is None and result["energy_missing"].startswith("gpu0: "), result
    return device["sensors"]["missing"]


def start_ms(machine, cache, backend):
    """From the process's begin to the first token's end, by crumb's own report."""
    began = time.monotonic()
    done = machine.crumb("run", "--backend", backend, "--verify", "off", "-n", "1", "--temp", "0", "-p", "Once", cache=cache)
    assert done.returncode == 0, done.stderr
    return (time.monotonic() - began) * 1e3


def check_starts(machine):
    """Prints what starting costs with nothing kept, and with all."""
    times = [f"{start_ms(machine, f'{b} starts', b):.0f} ms through {b} with nothing kept, "
             f"{start_ms(machine, f'{b} starts', b):.0f} with modules and survey kept" for b in ("ze", "cl")]
    print(f"{machine.device}: starting, to the embedded model's first token: {'; '.join(times)}")


def check_list_costs(machine):
    """What other ways to submit a token's launches would cost the host: of the embedded model, and of 32 layers."""
    for launches, changed in ((35, 5), (199, 32)):
        done = machine.in_prefix([LIST_COSTS, str(launches), str(changed)])
        assert done.returncode == 0, done.stderr
        costs = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        print(f"{machine.device}: {launches} launches: enqueued one by one {costs['each']} us, recorded {costs['record']}; a closed "
              f"list {costs['closed']}; one with an argument of {changed} launches changed {costs['mutable']}; a graph {costs['graph']}")


def token_us(machine, backend, *model):
    """Of the quickest of some runs: what else the machine does is not the host's time for a token."""
    done = machine.crumb("bench", "--backend", backend, "--verify", "off", *model, "-p", "0", "-n", "64", "-r", "10", "-o", "json")
    assert done.returncode == 0, done.stderr
    return min(json.loads(done.stdout)[0]["samples_ns"]) / 64 / 1e3


def check(prefix, device):
    """False: there is no such device with these keys."""
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(Path(name), prefix, device)
        gpu = check_listing(machine)
        if not gpu:
            return False
        check_balance(check_run(machine, None, cache="checked", **CHECKS), device)
        missing = check_sensors(machine)
        check_sensors(machine, cache="checked", **CHECKS)
        if device in ("bmg", "dg2"):
            for target in ("dpas-i8", "dp4a", "portable"):
                check_balance(check_run(machine, target, cache="checked", **CHECKS), f"{device} {target}")
            check_balance(check_run(machine, None, "--kv-cache", "q8", cache="checked", **CHECKS), f"{device} q8")
            assert "attention_split__dpas" in check_run(machine, "dpas", cache="checked", **CHECKS)
            assert "attention_split__dpas" not in check_run(machine, "dpas+exact", cache="checked", **CHECKS)
        if device == "bmg":
            check_cache(machine)
            check_wrong_results(machine)
            check_archive(machine)
            check_starts(machine)
            check_list_costs(machine)
        times = [f"{token_us(machine, b):.1f} us through {b}" for b in ("ze", "cl")]
        print(f"{device}: sensors: {missing}")
        print(f"{device}: {gpu['detail']}, driver {gpu['driver']}; {gpu['features']}; kernels {gpu['target']}; the host takes "
              f"{', '.join(times)} per token of the embedded model")
        if device == "bmg":
            times = [f"{token_us(machine, b, '--synthetic', 'llama3-8b:u2'):.1f} us through {b}" for b in ("ze", "cl")]
            print(f"{device}: of 32 layers of Llama 3 8B: {', '.join(times)}; a card adds what its kernel driver takes to "
                  f"submit, and some 2 us for each launch of its own")
        return True


def read_programs(cache):
    """(kernels' file, options) of all that are kept."""
    keys = [path.read_bytes().partition(b"\0")[0].decode().splitlines() for path in Path(cache, "crumb/ze-modules").iterdir()]
    return {(key[6], key[8]) for key in keys}


def print_programs(prefix):
    """spirv/programs.txt: what some models use on each of the devices."""
    devices_of = {}
    for device in ALL_DEVICES:
        with tempfile.TemporaryDirectory() as name:
            machine = Machine(Path(name), prefix, device)
            for model in ARCHIVED:
                done = machine.crumb("bench", "--backend", "ze", "--verify", "off", *model, "-p", "16,128", "-n", "4", "-r", "1")
                assert done.returncode == 0, done.stderr
            for program in read_programs(Path(name, "cache")):
                devices_of.setdefault(program, []).append(device)
    print("# What tools/ze-archive compiles: file, GPUs, options. Made by: tests/ze/ze_null_device.py --programs")
    for (file, options), devices in sorted(devices_of.items()):
        print(file, ",".join(devices), options, sep="\t")


def check_archive(machine):
    """An archive of native binaries beside the module serves where nothing is kept; a damaged one is passed over."""
    machine.run("--backend", "ze", cache="listed")
    listed = read_programs(machine.folder / "listed")
    n = len(listed)
    gpus = {True: machine.device, False: f"{machine.device},dg2"}  # sub-groups of 16 dg2's compiler does not take as they are
    (machine.folder / "programs.txt").write_text("".join(f"{file}\t{gpus['SUB_GROUP' in options]}\t{options}\n"
                                                         for file, options in sorted(listed)))
    archive = machine.folder / "crumb-ze-modules.bin"
    made = machine.in_prefix([ARCHIVER, machine.folder / "programs.txt", archive])
    assert made.returncode == 0 and n >= 8 and made.stdout == f"{n} programs\n", made.stdout + made.stderr
    words = "a program from the archive of native binaries"
    text = check_run(machine, None, cache="with archive")
    assert text.count(words) == n, f"{text.count(words)} of {n}: {text[-3000:]}"
    checked = check_run(machine, None, cache="checked with archive", **CHECKS)
    check_balance(checked, "archive")
    assert checked.count(words) == n, checked[-3000:]
    assert words not in check_run(machine, None, cache="with archive")  # what is kept comes first
    took = start_ms(machine, "start with archive", "ze")
    whole = archive.read_bytes()
    archive.write_bytes(whole[:len(whole) // 2])
    assert check_run(machine, None, cache="half an archive").count(words) < n
    archive.write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    assert check_run(machine, None, cache="damaged archive").count(words) < n
    archive.unlink()
    print(f"{machine.device}: {n} programs in an archive of {len(whole)} bytes; starting with it and nothing kept: "
          f"{took:.0f} ms")


def main():
    prefix = find_prefix()
    if "--programs" in sys.argv:
        return print_programs(prefix)
    missing = [device for device in DEVICES if not check(prefix, device)]
    if len(missing) == len(DEVICES):
        skip("the driver's debug keys no longer make a null device")
    assert not missing, f"no null device for {missing}"


if __name__ == "__main__":
    main()
