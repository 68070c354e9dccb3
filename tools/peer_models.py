"""Where the models, the text and the llama.cpp programs come from that crumb is compared with and on. Everything big
lies in the user's cache; what cannot be had raises Unavailable with the reason.

CRUMB_LLAMA_PREFIX  a folder with `run` and llama.cpp's programs; else the one of tests/deps.lock
CRUMB_OPENVINO_PYTHON  a Python that has openvino_genai; else one with the packages of tests/deps.lock
CRUMB_TEST_SMOLLM2  SmolLM2-135M-Instruct.Q4_1.gguf; else where tools/get-model.sh keeps it
"""
import gzip
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb"
SMOLLM2_TYPES = ("Q4_1", "Q8_0", "Q4_0", "F16")
# What llama-quantize makes of these has other types where rows are no whole blocks of 256: Q2_K and Q3_K become IQ4_NL,
# Q4_K Q5_0, Q5_K Q5_1, and Q6_K Q8_0.
K_QUANT_TYPES = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K")
TERNARY_TYPES = ("TQ2_0", "TQ1_0")
TEXT_BYTES = 102400


class Unavailable(Exception):
    pass


def deps(action, group):
    done = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", action, group], capture_output=True, text=True)
    if done.returncode == 77:
        raise Unavailable(done.stderr.strip())
    done.check_returncode()
    return Path(done.stdout.strip())


def llama_prefix():
    prefix = os.environ.get("CRUMB_LLAMA_PREFIX")
    return Path(prefix) if prefix else deps("prefix", "llama.cpp")


def llama(program, *arguments):
    """The command line of one of llama.cpp's programs."""
    return [str(a) for a in (llama_prefix() / "run", program, *arguments)]


def llama_library(processor):
    """llama.cpp's CPU library for a processor ("haswell"), which GGML_BACKEND_PATH makes it take."""
    found = list(llama_prefix().glob(f"usr/lib/*/ggml/backends*/libggml-cpu-{processor}.so"))
    if not found:
        raise Unavailable(f"{llama_prefix()} has no libggml-cpu-{processor}.so")
    return found[0]


def llama_version():
    done = subprocess.run(llama("llama-completion", "--version"), capture_output=True, text=True)
    return re.search(r"version: (.*)", done.stdout + done.stderr).group(1)


def openvino_python():
    given = os.environ.get("CRUMB_OPENVINO_PYTHON")
    return given or str(deps("venv", "openvino") / "bin" / "python")


def openvino_version():
    done = subprocess.run([openvino_python(), "-c", "import openvino_genai; print(openvino_genai.get_version())"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{openvino_python()} has no OpenVINO GenAI: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def smollm2():
    given = os.environ.get("CRUMB_TEST_SMOLLM2")
    path = Path(given) if given else CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        raise Unavailable(f"{path} is missing: run tools/get-model.sh smollm2, or set CRUMB_TEST_SMOLLM2")
    return path


def made(name, command):
    """A file of the cache, made once by command(path) under another name."""
    path = CACHE / "models" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            done = subprocess.run(command(part), stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                raise Unavailable(f"cannot make {name}: {(done.stdout + done.stderr).strip()[-500:]}")
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
    return path


def ternary_by(quantize, kind, shape="ternary"):
    """The ternary model as `quantize`, a llama-quantize of some descendant of llama.cpp, writes it in one of its types
    from the F16 file: its output matrix stays f16, or becomes 8 bits (shape ternary8)."""
    head = {"ternary": "f16", "ternary8": "q8_0"}[shape]
    command = quantize if isinstance(quantize, list) else [str(quantize)]
    return made(f"{shape}-{kind}.gguf",
                lambda out: [*command, "--output-tensor-type", head, "--token-embedding-type", "f16",
                             str(model("ternary-F16")), str(out), kind])


def model(name):
    """smollm2-TYPE, ternary-TYPE, or ternary8-TYPE (an output matrix of 8 bits) as a file."""
    shape, kind = name.split("-")
    if shape == "ternary8":
        return ternary_by(llama("llama-quantize"), kind, shape)
    if shape == "ternary":
        tool = ROOT / "tools" / "make-ternary-model.py"
        python = deps("venv", "oracle") / "bin" / "python"  # the locked numpy: its random numbers make the file
        return made(f"{name}.gguf", lambda out: [str(python), str(tool), "--type", kind, str(out)])
    source = smollm2()
    if kind == "Q4_1":
        return source
    return made(f"SmolLM2-135M-Instruct.{kind}.gguf",
                lambda out: llama("llama-quantize", "--allow-requantize", source, out, kind, "2"))


def text():
    """The first 100 KiB of the Debian FAQ, English prose of the package debian-faq, as a file."""
    folder = deps("prefix", "text")
    path = folder / "debian-faq.txt"
    if not path.exists():
        with gzip.open(folder / "usr/share/doc/debian/FAQ/debian-faq.en.txt.gz") as f:
            part = folder / f".{os.getpid()}.part"
            part.write_bytes(f.read(TEXT_BYTES))
            part.rename(path)
    return path


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
