#!/usr/bin/env python3
"""The whole path of `crumb run --device gpu0` on Intel's OpenCL driver without hardware, for dg2, bmg, lnl and ptl.

The driver of Debian unstable (tests/deps.lock, group intel-gpu) runs as a null device under debug keys, which are no
interface: every call of the API succeeds, kernels are built by the real compiler, nothing executes, and what is read back
is zero. So this proves use of the API and that all kernels build; and it measures the host's time per decoded token,
without what a kernel driver adds on a real card. A layer (calls_layer.c) counts calls that fail and objects that are not
released: none of either, in the survey and in whole runs of every rung. Another (faults_layer.c) tells them by function: a
decoded token launches its kernels, moves its row there, to a card, and its logits back, and waits once; nothing else is
called for it.

Exit status 77: the driver cannot be had here, or its keys have stopped working, for the reason on stderr.
"""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND, BUILD = os.environ["CRUMB_COMMAND"], Path(os.environ["CRUMB_MODULE_DIR"])
CALLS_LAYER, FAULTS_LAYER = (os.environ.get(f"CRUMB_{name}_LAYER") for name in ("CALLS", "FAULTS"))  # OpenCL's
DEVICES = {"dg2": "8x4x16", "bmg": "5x4x8", "lnl": "2x4x8", "ptl": "2x6x8"}
KEYS = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "5", "UseAubStream": "0",
        "UseExternalAllocatorForSshAndDsh": "0", "EnableTimestampWaitForQueues": "0", "EnableTimestampWaitForEvents": "0"}
LARGE = "llama3-8b:u2"  # once, on one device: its weights take a while to make
PER_TOKEN = [(("--target", "cl:dpas"), "attention_split__dpas"), (("--target", "cl:portable"), "__portable")]
UNSEEN = re.compile("clRelease.*|clMemBlockingFreeINTEL|clGetEvent.*")  # of what the layer sees made, or how often: of time
MODELS, TOKENS, ROUNDS = (None, "mobilellm-1.5b:ternary", LARGE), 60, 2


def skip(why):
    print(f"null_device.py: {why}", file=sys.stderr)
    sys.exit(77)


def find_prefix():
    deps = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", "prefix", "intel-gpu"],
                          stdout=subprocess.PIPE, text=True)
    if deps.returncode != 0:
        sys.exit(deps.returncode)
    return Path(deps.stdout.strip())


def make_modules(folder, prefix):
    """The module, and a survey that runs with the prefix's C library, which its drivers need."""
    shutil.copy(BUILD / "libcrumb-cl.so", folder)
    survey = folder / "crumb-cl-survey"
    survey.write_text(f"#!/bin/sh\nexec '{prefix}/run' '{BUILD}/crumb-cl-survey' \"$@\"\n")
    survey.chmod(0o755)
    driver = next(prefix.glob("usr/lib/*/intel-opencl/libigdrcl.so"))
    vendors = folder / "vendors"
    vendors.mkdir()
    (vendors / "intel.icd").write_text(f"{driver}\n")


def crumb(prefix, folder, device, *arguments, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CRUMB_")}
    environment |= KEYS | {"ProductFamilyOverride": device, "HardwareInfoOverride": DEVICES[device],
                           "OCL_ICD_VENDORS": str(folder / "vendors"), "CRUMB_MODULE_DIR": str(folder),
                           "XDG_CACHE_HOME": str(folder / "cache")} | more
    return subprocess.run([prefix / "run", COMMAND, *arguments], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", timeout=300)


def counted(prefix, folder, device, *arguments, **more):
    """(what crumb did, calls of all its processes, lines about those that failed and about objects that were left)."""
    log = folder / "calls"
    log.unlink(missing_ok=True)
    more = {"OPENCL_LAYERS": CALLS_LAYER, "CRUMB_CALLS_LOG": str(log)} | more
    done = crumb(prefix, folder, device, *arguments, **more)
    lines = log.read_text().splitlines() if log.exists() else []
    calls = sum(int(line.split()[1]) for line in lines if line.startswith("calls "))
    return done, calls, [line for line in lines if not line.startswith("calls ")]


def check_counting(prefix, folder, device):
    """That the layer sees what it is to count: a call that another layer beneath makes fail, and nothing besides."""
    _, _, found = counted(prefix, folder, device, "run", "--device", "gpu0", "--verify", "off", "-n", "2",
                          OPENCL_LAYERS=f"{FAULTS_LAYER}:{CALLS_LAYER}", CRUMB_FAULT="clFinish")
    assert found and set(found) == {"error clFinish -5"}, found


def check_ladder(prefix, folder, device):
    """A device that computes nothing: crumb must notice, try all kernels from the best down, and end on the CPU, or say
    what differs where that device is asked for."""
    named = crumb(prefix, folder, device, "run", "--device", "gpu0", "-n", "4")
    assert named.returncode == 6, f"{device}: {named.returncode} {named.stderr}"
    for rung in ("dpas+exact", "dpas-i8", "dpas-i8+exact", "dp4a", "portable"):
        assert f"going on with 'cl:{rung}'" in named.stderr, f"{device} {rung}: {named.stderr}"
    assert re.search(r"kernels 'dpas': layer 0 differs .* first at embed", named.stderr), named.stderr
    again = crumb(prefix, folder, device, "run", "--device", "gpu0", "-n", "4")
    assert again.returncode == 6 and "going on" not in again.stderr, f"{device}: {again.stderr}"
    free = crumb(prefix, folder, device, "run", "-n", "4", "--temp", "0", "-p", "Once upon a time")
    assert free.returncode == 0 and "device cpu" in free.stderr and "gpu0" in free.stderr, f"{device}: {free.stderr}"
    assert free.stdout.startswith("Once upon a time") and len(free.stdout.split()) > 5, free.stdout


def check_kernels(prefix, folder, device):
    """Nothing executes here: tests find zeros, or the NaN that lay in the results before, and no kernel has a time. The command
    says so, and does not crash."""
    support = json.loads(crumb(prefix, folder, device, "kernels", "support", "--device", "gpu0", "--json").stdout)
    assert 0 < support["kernels_here"] < support["kernels"], support
    small = ["--device", "gpu0", "--filter", "linear_u2_gemv__dp4a", "--bits", "1.58", "--shape", "48x256x1"]
    test = crumb(prefix, folder, device, "kernels", "test", *small)
    assert test.returncode == 6 and "FAILED" in test.stdout, test.stdout + test.stderr
    assert re.search(r"y\[0\]\[0\] is (0x0p\+0|-?nan), not ", test.stdout), test.stdout
    for op in ("gated", "attention_split"):
        test = crumb(prefix, folder, device, "kernels", "test", "--device", "gpu0", "--filter", op)
        assert test.returncode == 6 and re.search(rf"{op} +FAILED .*\n  .*again: ", test.stdout), test.stdout + test.stderr
    perf = crumb(prefix, folder, device, "kernels", "perf", *small)
    assert perf.returncode == 4 and "tells no times" in perf.stderr, perf.stdout + perf.stderr
    path = folder / "report.txt"
    report = crumb(prefix, folder, device, "devices", "--report", str(path), "--budget", "5s", *small[2:])
    assert report.returncode == 0, report.stdout + report.stderr
    text = path.read_text()
    for part in ("the driver tells no times", "FAILED", "not timed: ", "tuning for 5 s\n", "not tuned: ", "has_matrix: 1", "\nend\n"):
        assert part in text, text
    assert str(folder) not in text and str(prefix) not in text, text


def check_large(prefix, folder, device):
    """Keys of a layer that take 4.8 GiB: dg2's driver gives no more than 4 at once, which crumb says; the others' do, until the
    device's memory is full."""
    done, _, found = counted(prefix, folder, device, "run", "--device", "gpu0", "--verify", "off", "-n", "2", "-p", "Once",
                             "-c", "40000000", "-ngl", "99")
    assert done.returncode == 5, f"{device}: {done.returncode} {done.stderr}"
    assert not found, f"{device}: {found}"
    if device == "dg2":
        assert re.search(r"the KV cache takes 4882.8 MiB, and the device allocates at most 409\d.\d MiB at once", done.stderr), done.stderr
        return
    full = re.search(r"not enough memory for the KV cache: 4882.8 MiB wanted, ([\d.]+) of [\d.]+ MiB are taken", done.stderr)
    assert full and float(full[1]) > 4882, f"{device}: {done.stderr}"


def check_long_kernels(prefix, folder, device):
    """Of a GPU with one Xe-core attention of so many rows would take longer than its kernel driver waits, without matrix
    instructions, which crumb says when it records the plan."""
    one_core = {"HardwareInfoOverride": f"1x1x{DEVICES[device].split('x')[2]}", "XDG_CACHE_HOME": str(folder / "one-core")}
    for target, rows, warns in (("cl:dpas+exact", 60000, True), ("cl:dpas+exact", 8192, False), ("cl:dpas", 60000, False)):
        done = crumb(prefix, folder, device, "run", "--device", "gpu0", "--verify", "off", "--target", target, "-n", "2", "-p",
                     "Once", "-c", "60000", "-b", str(rows), "-ub", str(rows), **one_core)
        warned = re.findall("attention of .* may take .* in one kernel, .* -ub \\d+ is safe", done.stderr)
        assert done.returncode == 0 and len(warned) == warns, f"{device} {target} {rows}: {done.stderr}"


def kernels_of(log):
    """The launches of a token."""
    return next(int(line.split(" rows is ")[1].split()[0]) for line in log.splitlines() if "a plan for 1 rows is " in line)


def calls_by_function(log, run):
    """What run(settings) did, and how often it called each function, as the layer of faults_layer.c writes them to `log`."""
    log.unlink(missing_ok=True)
    done = run({"CRUMB_FAULT_LOG": str(log), "CRUMB_LOOKUP_LOG": str(log)})
    assert done.returncode == 0, done.stderr
    return done, collections.Counter(line.split()[0] for line in log.read_text().splitlines())


def check_all_are_seen():
    """That no function of OpenCL's which the backend calls, or looks up, escapes that layer: their names are in the module."""
    named = set(re.findall(rb"(?<=\0)cl[A-Z][A-Za-z]+(?=\0)", (BUILD / "libcrumb-cl.so").read_bytes()))
    layers = "".join((ROOT / "tests/cl" / name).read_text() for name in ("layer.h", "faults_layer.c"))
    seen = set(re.findall(r"\bX\(\w+, [\w *]+, (cl\w+)|layer_(clEnqueueCommandBufferKHR)|\"(clGetExtension\w+)\"", layers))
    missed = {name.decode() for name in named} - {name for names in seen for name in names}
    assert len(named) > 30 and not [name for name in missed if not UNSEEN.fullmatch(name)], (named, missed)


def growth(prefix, folder, device, more, tokens):
    """Which functions a run of tokens[1] calls more often than one of tokens[0], and by how much; and the launches of a token."""
    def calls(n):
        return calls_by_function(folder / "functions", lambda settings: crumb(
            prefix, folder, device, "run", "--device", "gpu0", "--verify", "off", "--temp", "0", "--ignore-eos", "-n", str(n), "-v",
            *more, OPENCL_LAYERS=FAULTS_LAYER, **settings))
    _, (few, fewer_calls), (many, more_calls) = map(calls, (2, *tokens))  # the first asks for devices, and builds
    assert kernels_of(few.stderr) == kernels_of(many.stderr) and fewer_calls["clCreateKernel"] > 10, f"{fewer_calls} {few.stderr}"
    assert fewer_calls["clGetExtensionFunctionAddressForPlatform"] >= 6 and fewer_calls["clSetKernelArg"] > 100, fewer_calls
    more_calls.subtract(fewer_calls)
    return {function: n for function, n in more_calls.items() if n}, kernels_of(many.stderr), many.stderr


def check_per_token(prefix, folder, device):
    """Spans are recorded once: a token is the launches of its plan, and nothing is made, built, set, looked up or asked for it,
    also where its context outgrows 128 positions, and 256, and attention takes more chunks of keys."""
    check_all_are_seen()
    for more, kernel in PER_TOKEN:
        for tokens in ((8, 40), (100, 300)):
            found, kernels, told = growth(prefix, folder, device, more, tokens)
            n, where = tokens[1] - tokens[0], f"{device} {more} {tokens}: {found}"
            assert kernel in told, told
            assert found.pop("clEnqueueNDRangeKernel") == n * kernels, f"{where}, {kernels} launches a token"
            assert found.pop("clFinish") == n and found.pop("clEnqueueMemcpyINTEL", 0) in (0, n, 2 * n), where
            assert not found, where


def host_times(prefix, folder, device, model, tokens):
    """(launches of a token, the host's us per launch of each token, rising); model: SHAPE:TYPE, or None: the embedded."""
    synthetic = ["--synthetic", model] if model else []
    bench = crumb(prefix, folder, device, "bench", "--device", "gpu0", "--verify", "off", *synthetic, "-p", "0", "-n", "1",
                  "-r", str(tokens), "-o", "json", "-v")
    assert bench.returncode == 0, f"{device} {model}: {bench.stderr}"
    kernels = kernels_of(bench.stderr)
    return kernels, sorted(ns / kernels / 1e3 for ns in json.loads(bench.stdout)[0]["samples_ns"])


def measure(prefix, folders):
    """Devices in turns, several times, each token by itself: the smallest time is the host's own, the median what a machine
    with other work made of it. No test depends on them."""
    print(f"host time per launch on the null device, us: {TOKENS} tokens, {ROUNDS} times in turns; below 3 is wanted, and what "
          "the kernel driver adds on a card is not in it")
    found = {}
    for turn in range(ROUNDS):
        for model in MODELS:
            for device in folders if model != LARGE else [d for d in folders if d == "bmg" and turn == 0]:
                kernels, times = host_times(prefix, folders[device], device, model, TOKENS)
                found.setdefault((model, device), (kernels, []))[1].extend(times)
    for (model, device), (kernels, times) in found.items():
        times.sort()
        median = times[len(times) // 2]
        print(f"  {model or 'embedded':22} {device}: {kernels:3} launches a token, smallest {times[0]:.2f}, median {median:.2f}; "
              f"a token {kernels * times[0]:.0f} and {kernels * median:.0f} us")


def check(prefix, folder, device):
    """False: there is no such device with these keys."""
    make_modules(folder, prefix)
    listed = [d for d in json.loads(crumb(prefix, folder, device, "devices", "--json").stdout)["devices"]
              if d["name"] == "gpu0"]
    if not listed or "Intel" not in listed[0]["driver"]:
        return False
    gpu = listed[0]
    assert not gpu["unusable"], gpu["unusable"]
    check_counting(prefix, folder, device)
    most_calls = 0
    for more, kernel in (([], "dpas"), (["--kv-cache", "q8"], "dpas"), (["--target", "cl:portable"], "portable"),
                         (["--target", "cl:dp4a"], "dp4a"), (["--target", "cl:dpas-i8"], "-i8"),
                         (["--target", "cl:dpas+exact"], "dpas"), (["--target", "cl:dpas+bf16"], "bf16"),
                         (["--target", "cl:dpas"], "dpas")):
        done, calls, found = counted(prefix, folder, device, "run", "--device", "gpu0", "--verify", "off", *more, "-n", "8",
                                     "--temp", "0", "--ignore-eos", "-v")
        assert done.returncode == 0, f"{device} {more}: {done.stderr}"
        assert calls > 500 and not found, f"{device} {more}: {calls} calls, {found}"
        most_calls = max(calls, most_calls)
        assert re.search(rf"rows is .* (linear|gemv|gemm)_u2_\w*{kernel}", done.stderr), f"{device} {more}: {done.stderr}"
        on_matrix = "attention_split__dpas" in done.stderr and "attention_whole__dpas" in done.stderr
        assert on_matrix == (kernel in ("dpas", "-i8", "bf16") and more[-1:] not in (["q8"], ["cl:dpas+exact"])), f"{device} {more}"
    assert "device gpu0" in done.stderr, done.stderr
    check_ladder(prefix, folder, device)
    layers = 5  # of the embedded model; embedding, selecting, head and the largest logits are 6 launches at most
    assert kernels_of(done.stderr) <= 8 * layers + 6, f"{device}: {kernels_of(done.stderr)} launches a token"
    check_per_token(prefix, folder, device)
    check_kernels(prefix, folder, device)
    check_large(prefix, folder, device)
    if device == "bmg":
        check_long_kernels(prefix, folder, device)
    print(f"{device}: {gpu['detail']}, driver {gpu['driver']}; {gpu['features']}; kernels {gpu['target']}; of up to "
          f"{most_calls} calls in a run none failed, and nothing was left")
    return True


def main():
    prefix = find_prefix()
    with tempfile.TemporaryDirectory() as name:
        folders = {device: Path(name, device) for device in DEVICES}
        for folder in folders.values():
            folder.mkdir()
        missing = [device for device in DEVICES if not check(prefix, folders[device], device)]
        if len(missing) == len(DEVICES):
            skip("the driver's debug keys no longer make a null device")
        assert not missing, f"no null device for {missing}"
        measure(prefix, folders)


if __name__ == "__main__":
    main()
