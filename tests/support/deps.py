#!/usr/bin/env python3
"""Third-party files that tests use, at the versions and hashes of tests/deps.lock.

usage: deps.py venv GROUP      a Python environment with the group's packages; prints its folder
       deps.py prefix GROUP    a prefix of Debian unstable's packages; prints its folder (PREFIX/run PROGRAM ARGS)
       deps.py lock GROUP      resolves the group anew and rewrites its lines of tests/deps.lock

Downloads are kept by hash in the user's cache (XDG_CACHE_HOME or ~/.cache, crumb/store), so that a locked version
stays usable after its registry has dropped it. Debian unstable does drop old versions: then the current ones are taken
and named. With CRUMB_TEST_OFFLINE=1 nothing is downloaded. Exit status 77: cannot be had here, for the reason on stderr.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "tests" / "deps.lock"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb"
STORE = CACHE / "store"
OFFLINE = os.environ.get("CRUMB_TEST_OFFLINE") == "1"


class Unavailable(Exception):
    """What is asked for cannot be had on this machine; the test that needs it is skipped."""


# ---- the lock file ------------------------------------------------------------------------------------------------


def read_lock(group):
    """(kind, names asked for, [(name, version, sha256)]) of a group."""
    kind, names, entries = None, [], []
    for line in LOCK.read_text().splitlines():
        words = line.split("#")[0].split()
        if len(words) > 2 and words[:2] == ["group", group]:
            kind, names = words[2], words[3:]
        elif len(words) == 4 and words[0] == group:
            entries.append((words[1], words[2], words[3]))
    if kind is None:
        sys.exit(f"deps.py: {LOCK} has no group {group}")
    return kind, names, entries


def write_lock(group, entries):
    lines = [line for line in LOCK.read_text().splitlines() if line.split()[:1] != [group]]
    at = next(i for i, line in enumerate(lines) if line.split()[:2] == ["group", group]) + 1
    lines[at:at] = [" ".join((group, *entry)) for entry in entries]
    LOCK.write_text("\n".join(lines) + "\n")


# ---- the store ----------------------------------------------------------------------------------------------------


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def keep(path):
    """Moves a downloaded file into the store; returns its hash."""
    digest = sha256_of(path)
    STORE.mkdir(parents=True, exist_ok=True)
    if not (STORE / digest).exists():
        partial = STORE / f".{digest}.{os.getpid()}"
        shutil.copyfile(path, partial)
        partial.rename(STORE / digest)
    return digest


def build_once(name, hashes, build):
    """Makes CACHE/name-HASH with build(folder) unless it is there; a folder under that name is always complete."""
    recipe = sha256_of(__file__) + "".join(sorted(hashes))
    folder = CACHE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=CACHE))
        try:
            work.chmod(0o755)
            build(work)
            work.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise Unavailable(f"{' '.join(map(str, command[:6]))} ... failed:\n{tail}")
    return done.stdout


# ---- packages of PyPI ---------------------------------------------------------------------------------------------


def pip_download(python, requirements, folder):
    listing = folder / "requirements.txt"
    listing.write_text("\n".join(requirements) + "\n")
    run(python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, "-r", listing)
    return sorted(folder.glob("*.whl"))


def wheels_for(python, entries, folder):
    """Puts the group's wheels that suit this Python into the folder: from the store, else from PyPI by hash."""
    listed = folder / "listed"
    names = dict.fromkeys((name, version) for name, version, _ in entries)
    have = read_names()
    missing = []
    for name, version in names:
        hashes = [sha for n, _, sha in entries if n == name]
        stored = [sha for sha in hashes if sha in have and (STORE / sha).exists() and suits(python, have[sha])]
        if stored:
            shutil.copyfile(STORE / stored[0], folder / have[stored[0]])
        else:
            missing.append(" ".join([f"{name}=={version}", *(f"--hash=sha256:{sha}" for sha in hashes)]))
    if missing and OFFLINE:
        raise Unavailable(f"not in {STORE}, and nothing may be downloaded: {missing[0].split()[0]}")
    if missing:
        listed.mkdir()
        for wheel in pip_download(python, missing, listed):
            remember(keep(wheel), wheel.name)
            wheel.rename(folder / wheel.name)


def remember(sha, filename):
    """pip reads a wheel's tags from its file name, which a store by hash would lose."""
    with open(STORE / "names", "a") as f:
        f.write(f"{sha} {filename}\n")


def read_names():
    names = STORE / "names"
    return dict(line.split() for line in names.read_text().splitlines()) if names.exists() else {}


def suits(python, filename):
    tags = run(python, "-c", "import pip._vendor.packaging.tags as t; print(*t.sys_tags())").split()
    python_tags, abis, platforms = (part.split(".") for part in filename[: -len(".whl")].split("-")[-3:])
    return any(f"{p}-{a}-{f}" in tags for p in python_tags for a in abis for f in platforms)


def venv(group):
    _, _, entries = read_lock(group)
    version = "{}.{}".format(*sys.version_info[:2])

    def build(folder):
        run(sys.executable, "-m", "venv", folder)
        python = folder / "bin" / "python"
        wheels = folder / "wheels"
        wheels.mkdir()
        wheels_for(python, entries, wheels)
        run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", *sorted(wheels.glob("*.whl")))
        shutil.rmtree(wheels)

    return build_once(f"venv-{group}-{version}", [sha for _, _, sha in entries], build)


def lock_pypi(group, names, _):
    """The newest versions that have wheels for every Python in PYTHONS. A group names all it needs: what a package
    asks for and our tests never import (tokenizers and the hub's client, for example) stays out."""
    entries = set()
    with tempfile.TemporaryDirectory() as work:
        for target in PYTHONS:
            folder = Path(work) / target
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version",
                target, "-d", folder, *names)
            for wheel in folder.glob("*.whl"):
                sha = keep(wheel)
                remember(sha, wheel.name)
                name, version = wheel.name.split("-")[:2]
                entries.add((name.lower().replace("_", "-"), version, sha))
    versions = {name: {v for n, v, _ in entries if n == name} for name, _, _ in entries}
    for name, found in versions.items():
        if len(found) != 1:
            sys.exit(f"deps.py: {name} has no version for all of {PYTHONS}: {found}; pin it in the group's line")
    write_lock(group, sorted(entries))


PYTHONS = ["3.11", "3.12", "3.13"]  # Debian 12, Ubuntu 24.04, Debian 13


# ---- packages of Debian unstable ----------------------------------------------------------------------------------


def unstable_sources():
    """The machine's own Debian mirror, with the suite changed."""
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if path.suffix in (".list", ".sources") and path.exists():
            for uri in re.findall(r"^(?:URIs:|deb\s(?:\[[^]]*\])?)\s*(\S+/debian/?)(?:\s|$)", path.read_text(), re.M):
                return f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {uri} sid main\n"
    raise Unavailable("apt has no mirror of Debian configured")


class Apt:
    """apt with lists, cache and status of its own: it sees Debian unstable, and an empty system."""

    def __init__(self, folder):
        self.archives = folder / "cache" / "archives"
        (folder / "lists" / "partial").mkdir(parents=True)
        (self.archives / "partial").mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(unstable_sources())
        settings = {"Dir::Etc::SourceList": folder / "sources.list", "Dir::Etc::SourceParts": "/nonexistent",
                    "Dir::State": folder, "Dir::State::Lists": folder / "lists", "Dir::Cache": folder / "cache",
                    "Dir::State::status": folder / "status", "Debug::NoLocking": "true",
                    "APT::Sandbox::User": "root", "Acquire::Languages": "none"}
        self.command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items())]
        run(*self.command, "update")

    def download(self, packages):
        run(*self.command, "-y", "--no-install-recommends", "--download-only", "install", *packages)
        return sorted(self.archives.glob("*.deb"))


def describe(deb):
    fields = run("dpkg-deb", "-f", deb, "Package", "Version")
    return tuple(line.split(": ", 1)[1] for line in fields.splitlines())


def fetch_debs(names, entries):
    """The hashes of the packages to unpack; says which are not the locked ones."""
    if entries and all((STORE / sha).exists() for _, _, sha in entries):
        return [sha for _, _, sha in entries]
    if OFFLINE:
        raise Unavailable(f"the locked packages are not all in {STORE}, and nothing may be downloaded")
    with tempfile.TemporaryDirectory() as work:
        apt = Apt(Path(work))
        try:
            debs = apt.download([f"{name}={version}" for name, version, _ in entries] or names)
        except Unavailable:
            debs = apt.download(names)
        found = [(*describe(deb), keep(deb)) for deb in debs]
    for name, version, _ in sorted(set(found) - set(entries)):
        locked = next((v for n, v, _ in entries if n == name), "none")
        print(f"deps.py: unstable has {name} {version}, locked is {locked}: taking the current one", file=sys.stderr)
    return [sha for _, _, sha in found]


RUNNER = """#!/bin/sh
# PREFIX/run PROGRAM ARGS: a program of the prefix with the prefix's own loader and libraries.
P=$(dirname "$(readlink -f "$0")")
L=$P/usr/lib/$(uname -m)-linux-gnu
has() { for flag in "$@"; do grep -qw -m1 "$flag" /proc/cpuinfo || return 1; done; }
if has avx512_vnni avx512vbmi; then cpu=icelake
elif has avx512_vnni; then cpu=cascadelake
elif has avx_vnni; then cpu=alderlake
elif has avx2 fma f16c bmi2; then cpu=haswell
else cpu=x64; fi
: "${GGML_BACKEND_PATH:=$L/ggml/backends0/libggml-cpu-$cpu.so}"
export GGML_BACKEND_PATH
case $1 in */*) program=$1 ;; *) program=$P/usr/bin/$1 ;; esac
shift
exec "$L/ld-linux-x86-64.so.2" --library-path "$L:$L/llama:$L/ggml" "$program" "$@"
"""


def prefix(group):
    _, names, entries = read_lock(group)
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise Unavailable(f"{tool} is missing: this is not a Debian system")
    hashes = fetch_debs(names, entries)

    def build(folder):
        for sha in hashes:
            run("dpkg-deb", "-x", STORE / sha, folder)
        (folder / "run").write_text(RUNNER)
        (folder / "run").chmod(0o755)

    return build_once(f"prefix-{group}", hashes, build)


def lock_sid(group, names, _):
    with tempfile.TemporaryDirectory() as work:
        debs = Apt(Path(work)).download(names)
        write_lock(group, sorted((*describe(deb), keep(deb)) for deb in debs))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("venv", "prefix", "lock"):
        sys.exit(__doc__)
    action, group = sys.argv[1:]
    try:
        if action == "lock":
            kind, names, entries = read_lock(group)
            {"pypi": lock_pypi, "sid": lock_sid}[kind](group, names, entries)
        else:
            print({"venv": venv, "prefix": prefix}[action](group))
    except Unavailable as reason:
        print(f"deps.py: {group}: {reason}", file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    main()
