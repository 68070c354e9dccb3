#!/usr/bin/env python3
"""Measures OpenVINO GenAI on a GGUF file, and prints JSON as llama-bench and crumb bench do.

usage: openvino-bench.py -m FILE [-t THREADS] [-p N] [-n N]

The prompt is N tokens by chance, of which the first new one is waited for; then N tokens are generated behind an empty
context. Both are run once before they are timed, with other tokens, since the pipeline keeps what it has read. All else
is as the package ships it. For tools/compare-peers.py --openvino, in a Python that has openvino_genai and numpy.
"""
import argparse
import json
import random

import numpy
import openvino
import openvino_genai

IDS = range(1000, 20000)  # words of any vocabulary


def generate(pipeline, n_prompt, n_new):
    """Reads n_prompt tokens and generates n_new -> milliseconds to the first, milliseconds for each of the others."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = n_new
    config.ignore_eos = True
    config.do_sample = False
    prompt = numpy.array([random.sample(IDS, n_prompt)], dtype=numpy.int64)
    metrics = pipeline.generate(openvino.Tensor(prompt), config).perf_metrics
    n_read, n_made = metrics.get_num_input_tokens(), metrics.get_num_generated_tokens()
    if (n_read, n_made) != (n_prompt, n_new):
        raise SystemExit(f"openvino-bench: {n_read} tokens were read and {n_made} made, not {n_prompt} and {n_new}")
    return metrics.get_ttft().mean, metrics.get_tpot().mean


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", dest="model", required=True)
    p.add_argument("-t", dest="threads", type=int, default=2)
    p.add_argument("-p", dest="n_prompt", type=int, default=512)
    p.add_argument("-n", dest="n_gen", type=int, default=128)
    a = p.parse_args()
    pipeline = openvino_genai.LLMPipeline(a.model, "CPU", INFERENCE_NUM_THREADS=a.threads)
    for _ in range(2):
        first = generate(pipeline, a.n_prompt, 1)[0]
        each = generate(pipeline, 1, a.n_gen + 1)[1]
    common = {"model_filename": a.model, "n_threads": a.threads, "build": openvino_genai.get_version()}
    print(json.dumps([{**common, "n_prompt": a.n_prompt, "n_gen": 0, "avg_ts": 1000 * a.n_prompt / first},
                      {**common, "n_prompt": 0, "n_gen": a.n_gen, "avg_ts": 1000 / each}]))


if __name__ == "__main__":
    main()
