#!/usr/bin/env python3
"""Writes what llama.cpp answers (tests/oracle/llama/NAME.json): greedy continuations of ten prompts with the lead of
the best token at every position, and for SmolLM2 the perplexity of a text, as it develops chunk by chunk.

K-quants continue as the f16 file that llama-quantize makes of them does ("prompts"): llama.cpp multiplies them with
activations that share one scale among 256, whose error is larger than ours (with Q4_K_M, 1.2 at worst against 0.7 in these
logits). What it says with the file as it is, to all prompts, stands beside ("as_it_is"), and is judged less strictly.

usage: llama_fixtures.py [NAME...]      all of smollm2-Q4_1 smollm2-Q8_0 smollm2-Q4_0 smollm2-F16
                                        ternary-TQ2_0 ternary-TQ1_0 (about 20 minutes)
                                        smollm2-Q2_K -Q3_K_M -Q4_K_M -Q5_K_M -Q6_K (less of each)
                                        smollm2-chat: ten questions to Q4_1 through its chat template

Models, text and programs come from tools/peer_models.py. One thread each: llama.cpp's threads spin while they wait
for each other, and take a hundred times as long on a machine that has other work.
"""
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import peer_models  # noqa: E402

OUT = Path(__file__).resolve().parent / "llama"
N_PREDICT = 32
N_K_QUANT_PROMPTS, N_K_QUANT_CHUNKS = 4, 12
PROMPTS = {
    "smollm2": ["The capital of France is", "Once upon a time, in a small village by the sea,",
                "def fibonacci(n):\n    ", "Water boils at", "The three primary colors are",
                "Dear Sir or Madam,\n\nI am writing to", "1, 2, 3, 4, 5,", "Q: Why is the sky blue?\nA:",
                "<|im_start|>user\nName two planets.<|im_end|>\n<|im_start|>assistant\n",
                "Les chats sont des animaux qui"],
    "chat": ["What is the capital of France?", "How many days does a week have?", "Name three colors.",
             "What is 2 + 2?", "Who wrote Romeo and Juliet?", "Is the sun a star or a planet?",
             "What do bees make?", "Translate 'good morning' into Spanish.", "Which animal says 'meow'?",
             "Write one sentence about the sea.\n\nKeep it short: <b>ten</b> words, \"please\"."],
    "ternary": ["w12 w77 w512", "w1", "w2 w3", "w31000 w5", "w100 w200 w300 w400", "w9 w9 w9 w9 w9", "hello, world",
                "w4711 w815", "w1024 w2048 w4096 w8192 w16384", "w28000 w1 w28000 w1 w28000"],
}


class Server:
    """llama-server on a free port of this machine, for as long as the `with` lasts."""

    def __init__(self, path):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = peer_models.llama("llama-server", "-m", path, "-t", 1, "-c", 512, "-np", 1, "--no-webui", "--jinja",
                                         "--host", "127.0.0.1", "--port", port)

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).read()
                return self
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit("llama-server ended: " + " ".join(self.command)) from None
                time.sleep(0.1)
        raise SystemExit("llama-server does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path, **request):
        body = json.dumps(request).encode()
        answer = urllib.request.urlopen(urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}))
        return json.load(answer)


def continuation(server, prompt):
    tokens = server.ask("/tokenize", content=prompt, add_special=True, parse_special=True)["tokens"]
    answer = server.ask("/completion", prompt=tokens, n_predict=N_PREDICT, temperature=0, n_probs=2, cache_prompt=False,
                        post_sampling_probs=False)
    positions = []
    for p in answer["completion_probabilities"]:
        best, second = sorted(p["top_logprobs"], key=lambda t: -t["logprob"])[:2]
        if best["id"] != p["id"]:
            raise SystemExit(f"{prompt!r}: the token taken is not the best one")
        positions.append([best["id"], second["id"], round(best["logprob"] - second["logprob"], 4)])
    return {"text": prompt, "tokens": tokens, "continuation": positions, "says": answer["content"]}


def conversation(server, question):
    """The question as the model's own template renders it, continued."""
    messages = [{"role": "user", "content": question}]
    return {"question": question, **continuation(server, server.ask("/apply-template", messages=messages)["prompt"])}


def as_f16(path, folder):
    """What llama.cpp's own decoder makes of a model's weights."""
    out = folder / "f16.gguf"
    subprocess.run(peer_models.llama("llama-quantize", "--allow-requantize", path, out, "F16", "2"), check=True,
                   stdin=subprocess.DEVNULL, capture_output=True)
    return out


def perplexity(path, chunks):
    """Of the first chunks of the text; 0: of all."""
    text = peer_models.text()
    limit = ("--chunks", chunks) if chunks else ()
    done = subprocess.run(peer_models.llama("llama-perplexity", "-m", path, "-f", text, "-t", 1, *limit), check=True,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    by_chunk = re.findall(r"\[(\d+)\](\d+\.\d+),", done.stdout)
    final = float(re.search(r"Final estimate: PPL = (\d+\.\d+)", done.stdout + done.stderr).group(1))
    if [int(i) for i, _ in by_chunk] != list(range(1, len(by_chunk) + 1)):
        raise SystemExit("llama-perplexity's output is not as expected")
    return {"text_sha256": peer_models.sha256(text), "final": final, "by_chunk": [float(v) for _, v in by_chunk]}


def main():
    names = sys.argv[1:] or [f"smollm2-{t}" for t in peer_models.SMOLLM2_TYPES + peer_models.K_QUANT_TYPES] + [
        f"ternary-{t}" for t in peer_models.TERNARY_TYPES] + ["smollm2-chat"]
    OUT.mkdir(exist_ok=True)
    for name in names:
        model = "smollm2-Q4_1" if name == "smollm2-chat" else name
        path = peer_models.model(model)
        fixture = {"llama.cpp": peer_models.llama_version(), "model": model, "model_sha256": peer_models.sha256(path)}
        shape, kind = name.split("-")
        few = kind in peer_models.K_QUANT_TYPES
        with tempfile.TemporaryDirectory() as folder:
            reference = as_f16(path, Path(folder)) if few else path
            with Server(reference) as server:
                if kind == "chat":
                    fixture["prompts"] = [conversation(server, q) for q in PROMPTS["chat"]]
                else:
                    fixture["prompts"] = [continuation(server, p)
                                          for p in PROMPTS[shape][:N_K_QUANT_PROMPTS if few else None]]
        if few:
            with Server(path) as server:
                fixture["as_it_is"] = [continuation(server, p) for p in PROMPTS[shape]]
        if shape == "smollm2" and kind != "chat":
            fixture["perplexity"] = perplexity(path, N_K_QUANT_CHUNKS if few else 0)
        lines = json.dumps(fixture, indent=1, ensure_ascii=True)
        lines = re.sub(r"\[\s+([-\d.]+(?:,\s+[-\d.]+)*)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", lines)
        (OUT / f"{name}.json").write_text(lines + "\n")
        print(name, fixture.get("perplexity", {}).get("final", ""), flush=True)


if __name__ == "__main__":
    main()
