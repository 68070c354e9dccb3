#include "tools/crumb/options.h"

#include <stdio.h>
#include <string.h>

#define AT(member)   .field = offsetof(cli_options, member)
#define NOWHERE      .field = SIZE_MAX /* accepted for llama.cpp's sake; has no value in cli_options */
#define RANGE(a, b)  .min = (a), .max = (b)
#define THREADS_HELP "threads for decoding; 0: one per physical core"

const cli_option cli_option_table[] = {
    /* ---- model and machine ---- */
    {"-m --model", CLI_TEXT, "FILE", AT(model),
     .commands = CLI_RUN | CLI_PERPLEXITY | CLI_INSPECT | CLI_TOKENIZE | CLI_PLAN,
     .help = "GGUF file (the first part of a split one), or a folder as transformers writes it; may also stand as a "
             "plain argument; without one, the model that is part of crumb"},
    {"-m --model", CLI_TEXT, "FILE", AT(model), .commands = CLI_TUNE,
     .help = "tune for the layers of this model: a GGUF file, or a folder as transformers writes it; without one, for "
             "those that --shape, --bits and --group name, by default large ones in every format"},
    {"-m --model", CLI_TEXT, "FILE", AT(model), .commands = CLI_CONVERT | CLI_QUANTIZE,
     .help = "the model that is read: a GGUF file, or a folder as transformers writes it (config.json, safetensors, "
             "tokenizer.json); may also stand as a plain argument"},
    {"-m --model", CLI_TEXTS, "FILE,...", AT(bench_models), .commands = CLI_BENCH,
     .help = "GGUF files or folders; may be repeated, or stand as plain arguments; without one, the model that is part "
             "of crumb"},
    {"--synthetic", CLI_TEXTS, "SHAPE:TYPE[:HEAD]", AT(synthetic), .commands = CLI_BENCH,
     .help = "random weights at a known model's shapes, so that speed can be measured without a download: SHAPE "
             "falcon3-1b, mobilellm-1.5b, llama3-8b, bitnet-2b4t; TYPE bf16, i8, mxfp4, u4, u3, u2, ternary, u1; HEAD "
             "f16, i8"},
    {"-dev --device", CLI_TEXT, "auto|cpu|gpuN|cpu+gpuN", AT(device), "auto", .commands = CLI_ENGINE,
     .help =
         "what runs the model: auto takes what is predicted to be fastest once 'crumb devices --measure' has run, one "
         "device or both, and before that an Intel GPU that can run it, or the CPU; gpu0 and so on as 'crumb "
         "devices' lists them; cpu+gpu0: both (see --split and -ngl)",
     .note = "by crumb's names, not a list; 'none' means cpu"},
    {"--backend", CLI_TEXT, "auto|cpu|cl|ze", AT(backend), "auto", .commands = CLI_ENGINE,
     .help = "which implementation drives the device; cl: OpenCL; ze: Level Zero, which auto prefers"},
    {"--target", CLI_TEXT, "TIER", AT(target), .commands = CLI_ENGINE,
     .help = "force a kernel tier that this machine has: cpu:scalar, cpu:avx2, cpu:avxvnni, "
             "cpu:avxvnniint8, cpu:avx512ymm, cpu:avx512vnni, cpu:avx512vbmi, cl:portable, cl:dp4a, cl:dpas-i8, "
             "cl:dpas; through Level Zero ze:portable and so on. A GPU's may end with +exact: attention and 16-bit "
             "weights not on matrix instructions, which add up floats in another order than the CPU; +bf16: rows "
             "between ops in "
             "bf16, near the CPU's results and not the same; of cl also +clblast: prompts' f32 weights by CLBlast, "
             "which must be installed (libclblast1), also in another order"},
    {"-ngl --gpu-layers --n-gpu-layers", CLI_INT, "N", AT(gpu_layers), "-1", RANGE(-1, INT32_MAX),
     CLI_ENGINE | CLI_PLAN,
     .help = "so many of the last layers on the GPU, the output matrix being one, and the others on the CPU; -1: as "
             "is predicted to be best, or as many as fit into its memory"},
    {"--split", CLI_TEXT, "auto|X", AT(split), "auto", .commands = CLI_ENGINE | CLI_PLAN,
     .help =
         "with --device cpu+gpuN: the part of every layer that the GPU computes while tokens are generated, the CPU "
         "the others: 0 to 1; 0: layers are not split; auto: as predicted, or half, then as the devices' times ask "
         "for, for as long as that is faster. Of a card with memory of its own: of prompts too, the part stays, and "
         "auto "
         "splits only where it is predicted to pay"},
    {"--verify", CLI_OPTIONAL, "on|off|auto", AT(verify), "auto", .commands = CLI_ENGINE,
     .help =
         "check a GPU's kernels against the CPU's, layer by layer, before anything runs: no layer may differ by "
         "more than 1e-4 of its power (1e-2 with +bf16), and none of its outputs by more than a tenth of what it adds "
         "(a quarter); auto: once for each driver and kind of model"},
    {"--activation", CLI_CHOICE, "auto|float|row|group", AT(activation), "auto", .commands = CLI_ENGINE,
     .help = "how activations are quantized: as the weights' type wants it, not at all (slow, for comparing with float "
             "references), int8 with one scale per token, or int8 with one scale per weight group"},
    {"--kv-cache", CLI_CHOICE, "f16|q8", AT(kv_cache), .commands = CLI_ENGINE | CLI_PLAN,
     .help =
         "how the context's keys and values are kept; q8: int8 with a scale per 32 values, half the memory and half "
         "the reading of f16, which is the default"},
    {"-t --threads", CLI_INT, "N", AT(n_threads), "0", RANGE(0, 1024), CLI_RUN | CLI_PERPLEXITY, .help = THREADS_HELP,
     .note = "the default is one per physical core, not per logical processor"},
    {"-t --threads", CLI_INT, "N", AT(n_threads), "0", RANGE(0, 256), CLI_CONVERT | CLI_QUANTIZE,
     .help = "0: one per physical core"},
    {"-t --threads", CLI_INTS, "N,...", AT(bench_threads), "0", RANGE(0, 1024), CLI_BENCH, .help = THREADS_HELP},
    {"-tb --threads-batch", CLI_INT, "N", AT(n_threads_batch), "0", RANGE(0, 1024), CLI_RUN | CLI_PERPLEXITY,
     .help = "threads for reading the prompt; 0: as many as -t"},
    {"--cpu-kind", CLI_CHOICE, "auto|p|e|all", AT(cpu_kind), "auto", .commands = CLI_ENGINE,
     .help = "cores to run on where a processor has fast (P) and efficient (E) ones; auto: all but low-power ones"},
    {"--balance", CLI_CHOICE, "auto|split|chunks", AT(balance), "auto", .commands = CLI_ENGINE,
     .help = "how threads share a layer: split in proportion to what each core has lately done, in chunks that they "
             "take one after the other, or whichever is measured to be faster"},
    {"-c --ctx-size", CLI_INT, "N", AT(n_ctx), "0", RANGE(0, UINT32_MAX), CLI_RUN,
     .help = "tokens that the context holds; 0: what the model was trained with, at most 4096",
     .note = "0 means at most 4096, so that a long-context model does not take all memory"},
    {"-c --ctx-size", CLI_INT, "N", AT(n_ctx), "512", RANGE(4, UINT32_MAX), CLI_PERPLEXITY, .help = "tokens per chunk"},
    {"-b --batch-size", CLI_INT, "N", AT(n_batch), "2048", RANGE(1, UINT32_MAX), CLI_RUN | CLI_PERPLEXITY,
     .help = "most tokens handed over at once", .note = "the smaller of -b and -ub counts"},
    {"-ub --ubatch-size", CLI_INT, "N", AT(n_ubatch), "512", RANGE(1, UINT32_MAX), CLI_RUN | CLI_PERPLEXITY | CLI_PLAN,
     .help = "most tokens evaluated at once; devices are chosen for that, for -c and for --kv-cache"},
    {"-b --batch-size", CLI_INTS, "N,...", AT(bench_batch), "2048", RANGE(1, UINT32_MAX), CLI_BENCH,
     .help = "most tokens handed over at once"},
    {"-ub --ubatch-size", CLI_INTS, "N,...", AT(bench_ubatch), "512", RANGE(1, UINT32_MAX), CLI_BENCH,
     .help = "most tokens evaluated at once"},
    {"--tuning", CLI_TEXT, "FILE|none", AT(tuning), .commands = CLI_ENGINE,
     .help = "the database of what 'crumb tune' has measured; none: kernels are chosen by rank"},
    {"--tuning", CLI_TEXT, "FILE", AT(tuning), .commands = CLI_TUNE | CLI_DEVICES,
     .help = "the database of what 'crumb tune' measures, instead of the user's"},
    {"--mlock", CLI_ON, AT(mlock), .commands = CLI_ENGINE, .help = "keep the weights from being swapped out"},

    /* ---- text ---- */
    {"-p --prompt", CLI_TEXT, "TEXT", AT(prompt), .commands = CLI_RUN | CLI_TOKENIZE,
     .help = "the text; may also stand as a plain argument behind the model"},
    {"-f --file", CLI_TEXT, "FILE", AT(prompt_file), .commands = CLI_RUN | CLI_PERPLEXITY | CLI_TOKENIZE,
     .help = "a file with the text; - for standard input", .note = "escapes in a file are left alone"},
    {"-n --predict --n-predict", CLI_INT, "N", AT(n_predict), "-1", RANGE(-1, INT32_MAX), CLI_RUN,
     .help = "tokens to generate; -1: until the model ends or the context is full"},
    {"-e --escape", CLI_ON, AT(escape), "on", .commands = CLI_RUN | CLI_TOKENIZE,
     .help = "process \\n, \\t, \\\\, \\', \\\" and \\xNN in the prompt"},
    {"--no-escape", CLI_OFF, AT(escape), .commands = CLI_RUN | CLI_TOKENIZE, .help = "take the prompt literally"},
    {"--no-display-prompt", CLI_OFF, AT(display_prompt), "on", .commands = CLI_RUN, .help = "print only what is new"},
    {"--color", CLI_OPTIONAL, "on|off|auto", AT(color), "auto", .commands = CLI_RUN,
     .help = "show the prompt in another colour; auto: on a terminal without NO_COLOR"},
    {"--ignore-eos", CLI_ON, AT(ignore_eos), .commands = CLI_RUN, .help = "go on behind the end of the text"},

    /* ---- chat ---- */
    {"-cnv --conversation", CLI_ON, AT(conversation), .commands = CLI_RUN,
     .help = "talk instead of continuing a text: the prompt is the first message, and further ones are lines of the "
             "terminal or of standard input. By itself on a terminal without -p, where the model has a chat template. "
             "--device auto chooses devices for messages of 512 tokens, or of more where -p has them, and -sys"},
    {"-no-cnv --no-conversation", CLI_ON, AT(no_conversation), .commands = CLI_RUN,
     .help = "continue the prompt as it is"},
    {"-st --single-turn", CLI_ON, AT(single_turn), .commands = CLI_RUN, .help = "one message, one answer"},
    {"-sys --system-prompt", CLI_TEXT, "TEXT", AT(system_prompt), .commands = CLI_RUN,
     .help = "talk, beginning with a system message"},
    {"--chat-template", CLI_TEXT, "chatml|TEXT", AT(chat_template), .commands = CLI_RUN,
     .help = "a Jinja template, or the name of one, instead of the model's; counts in a chat only",
     .note = "of llama.cpp's names, chatml"},
    {"--chat-template-file", CLI_TEXT, "FILE", AT(chat_template_file), .commands = CLI_RUN,
     .help = "the same from a file"},
    {"--tools", CLI_TEXT, "FILE", AT(tools), .commands = CLI_RUN,
     .help = "tell the model which tools it may call: a JSON list of {\"type\": \"function\", \"function\": {...}}, "
             "which its chat template writes out; counts in a chat only"},

    /* ---- sampling ---- */
    {"-s --seed", CLI_INT, "N", AT(seed), "-1", RANGE(-1, UINT32_MAX), CLI_RUN,
     .help = "same seed, same text, for any number of threads; -1: a random one, which is printed"},
    {"--temp --temperature", CLI_REAL, "X", AT(temperature), "0.8", RANGE(0, 1000), CLI_RUN,
     .help = "0: always the likeliest token"},
    {"--top-k", CLI_INT, "N", AT(top_k), "40", RANGE(0, INT32_MAX), CLI_RUN,
     .help = "choose among the N likeliest tokens; 0: all"},
    {"--top-p", CLI_REAL, "X", AT(top_p), "0.95", RANGE(0, 1), CLI_RUN,
     .help = "choose among the likeliest tokens that together reach this probability; 1: all"},
    {"--min-p", CLI_REAL, "X", AT(min_p), "0.05", RANGE(0, 1), CLI_RUN,
     .help = "drop tokens less likely than X times the likeliest; 0: none"},
    {"--repeat-penalty", CLI_REAL, "X", AT(repeat_penalty), "1.0", RANGE(0.01, 100), CLI_RUN,
     .help = "make tokens that were used lately less likely; 1: off"},
    {"--repeat-last-n", CLI_INT, "N", AT(repeat_last_n), "64", RANGE(0, UINT32_MAX), CLI_RUN,
     .help = "how many tokens count as lately"},

    /* ---- bench ---- */
    {"-p --n-prompt", CLI_INTS, "N,...", AT(bench_prompt), "512", RANGE(0, INT32_MAX), CLI_BENCH,
     .help = "prompt lengths to read (tests ppN); 0: none"},
    {"-n --n-gen", CLI_INTS, "N,...", AT(bench_gen), "128", RANGE(0, INT32_MAX), CLI_BENCH,
     .help = "numbers of tokens to generate (tests tgN); 0: none"},
    {"-pg", CLI_INTS, "P,G", AT(bench_pair), .min = 1, .max = INT32_MAX, .commands = CLI_BENCH,
     .help = "read P tokens, then generate G; may be repeated"},
    {"-d --n-depth", CLI_INTS, "N,...", AT(bench_depth), "0", RANGE(0, INT32_MAX), CLI_BENCH,
     .help = "tokens already in the context"},
    {"-r --repetitions", CLI_INT, "N", AT(repetitions), "5", RANGE(1, 100000), CLI_BENCH,
     .help = "times that each test is repeated"},
    {"-o --output", CLI_CHOICE, "md|csv|json|jsonl", AT(output), "md", .commands = CLI_BENCH,
     .help = "format of the results; llama-bench's fields first, then bandwidth, roofline, latencies and energy"},
    {"--energy", CLI_ON, AT(energy), .commands = CLI_BENCH,
     .help = "also joules per token, watts, the clock and what holds it down, from the devices' own counters (Level "
             "Zero's Sysman, hwmon, RAPL); without a counter, why there is none"},
    {"--suite", CLI_CHOICE, "cpu", AT(suite), .commands = CLI_BENCH,
     .help = "instead of a model's speed, how near to the machine's limits everything on a token's path comes: a row "
             "for each target of the project; see --filter"},
    {"--filter", CLI_TEXT, "TEXT", AT(kernel_filter), .commands = CLI_BENCH,
     .help = "with --suite: only cases with this in their name: threads, near/BITS, few/BITS/ROWS, gemv/SHAPE/BITS, "
             "gemm/BITS/GROUP, tuned, layer/SHAPE/BITS, model/NAME, paper/SHAPE, depth/TOKENS, "
             "quality/kv-q8, peers/NAME"},
    {"--bits", CLI_TEXTS, "FORMAT,...", AT(kernel_bits), .commands = CLI_BENCH,
     .help = "with --suite: only weights of these formats: 1, 1.58 (ternary), 2, 3, 4, 5, 6, 8, mxfp4, iq4_nl"},
    {"--shape", CLI_TEXTS, "MxKxN,...", AT(kernel_shapes), .commands = CLI_BENCH,
     .help = "with --suite: these layers instead of the models', in the cases of single kernels"},
    {"--rounds", CLI_INT, "N", AT(rounds), "15", RANGE(1, 100000), CLI_BENCH,
     .help = "with --suite: times that each measurement is repeated, in turns with the machine's limits; medians are "
             "printed"},
    {"--no-warmup", CLI_OFF, AT(warmup), "on", .commands = CLI_BENCH, .help = "no untimed run before the timed ones"},

    /* ---- perplexity ---- */
    {"--chunks", CLI_INT, "N", AT(n_chunks), "-1", RANGE(-1, INT32_MAX), CLI_PERPLEXITY,
     .help = "chunks to score; -1: all"},
    {"--kl-divergence", CLI_ON, AT(kl_divergence), .commands = CLI_PERPLEXITY,
     .help = "compare what the model predicts with a baseline, for the baseline's tokens: no text is needed"},
    {"--save-all-logits --kl-divergence-base", CLI_TEXT, "FILE", AT(kl_base), .commands = CLI_PERPLEXITY,
     .help = "the baseline, in llama-perplexity's form; without --kl-divergence it is written, from this model"},

    /* ---- inspect ---- */
    {"--keys", CLI_ON, AT(keys), .commands = CLI_INSPECT, .help = "only the metadata"},
    {"--tensors", CLI_ON, AT(tensors), .commands = CLI_INSPECT, .help = "only the tensors"},
    {"--full", CLI_ON, AT(full), .commands = CLI_INSPECT, .help = "all elements of arrays, and long strings, in full"},

    /* ---- tokenize ---- */
    {"--ids", CLI_ON, AT(ids), .commands = CLI_TOKENIZE, .help = "only the ids, as [1, 2, 3]"},
    {"--no-bos", CLI_OFF, AT(bos), "on", .commands = CLI_TOKENIZE, .help = "do not add the token that begins a text"},
    {"--no-parse-special", CLI_OFF, AT(parse_special), "on", .commands = CLI_TOKENIZE,
     .help = "text such as <|im_start|> is text, not a special token"},
    {"--stdin", CLI_ON, AT(from_stdin), .commands = CLI_TOKENIZE, .help = "read the text from standard input"},
    {"--show-count", CLI_ON, AT(show_count), .commands = CLI_TOKENIZE, .help = "also print how many tokens there are"},

    /* ---- kernels, devices ---- */
    {"--op", CLI_CHOICE, "gemv|gemm|float|dense|split|quantize|attention|rope|norm|gated|embed|select|top|place|gather",
     AT(kernel_op), .commands = CLI_KERNELS,
     .help =
         "only kernels of this op: gemv: low-bit linear layers for a few rows of activations, gemm: for many; float: "
         "without quantizing; those and split, embed, select, top, place and gather are a GPU's"},
    {"--op", CLI_CHOICE, "gemv|gemm", AT(kernel_op), .commands = CLI_TUNE,
     .help = "only kernels for a few rows of activations, or only those for many"},
    {"--bits", CLI_TEXTS, "FORMAT,...", AT(kernel_bits), .commands = CLI_KERNELS | CLI_TUNE,
     .help = "only weights of these formats: 1, 1.58 (ternary), 2, 3, 4, 5, 6, 8, mxfp4, iq4_nl"},
    {"-dev --device", CLI_TEXT, "cpu|gpuN", AT(device), .commands = CLI_KERNELS | CLI_TUNE,
     .help = "whose kernels: the CPU's, which is the default, or those of a GPU as 'crumb devices' lists it"},
    {"--backend", CLI_TEXT, "cpu|cl|ze", AT(backend), .commands = CLI_KERNELS | CLI_TUNE,
     .help = "cl: the GPU's through OpenCL, ze: through Level Zero; on gpu0 unless --device says otherwise"},
    {"--group", CLI_INTS, "N,...", AT(kernel_groups), .min = 0, .max = 65536, .commands = CLI_KERNELS | CLI_TUNE,
     .help =
         "weights that share a scale: 16 or a multiple of 32; 0: a whole row. kernels support: by default as files of "
         "the format have it"},
    {"--shape", CLI_TEXTS, "MxKxN,...", AT(kernel_shapes), .commands = CLI_KERNELS,
     .help = "shapes of the layer: outputs x inputs x rows of activations; of attention: positions before x columns of "
             "all heads x rows"},
    {"--shape", CLI_TEXTS, "MxKxN,...", AT(kernel_shapes), .commands = CLI_TUNE,
     .help = "without -m: shapes of the layer, outputs x inputs x rows of activations; by default 8192x2048 and "
             "2048x8192, each with 1 and 512 rows"},
    {"--target", CLI_TEXT, "TIER", AT(target), .commands = CLI_KERNELS,
     .help =
         "only kernels of this tier, and for support what its plans take: cpu:scalar, cpu:avx2, cpu:avxvnni, "
         "cpu:avxvnniint8, cpu:avx512ymm, "
         "cpu:avx512vnni, cpu:avx512vbmi, cl:portable, cl:dp4a, cl:dpas-i8, cl:dpas; cl:dpas+bf16: for values in bf16"},
    {"--target", CLI_TEXT, "TIER", AT(target), .commands = CLI_TUNE,
     .help = "for runs with this --target: cpu:avx2 and the CPU's other tiers, cl:portable, cl:dp4a, cl:dpas-i8, "
             "cl:dpas, cl:dpas+bf16; by default for the best one"},
    {"--activation", CLI_CHOICE, "auto|float|row|group", AT(activation), "auto", .commands = CLI_KERNELS | CLI_TUNE,
     .help = "how activations are quantized: as models of the format want it, not at all, or int8 with one scale per "
             "row or per weight group"},
    {"--filter", CLI_TEXT, "TEXT", AT(kernel_filter), .commands = CLI_KERNELS,
     .help = "only kernels with this in their name"},
    {"-t --threads", CLI_INT, "N", AT(n_threads), "0", RANGE(0, 256), CLI_KERNELS | CLI_DEVICES | CLI_TUNE,
     .help = "0: one per physical core"},
    {"--cold", CLI_ON, AT(cold), .commands = CLI_KERNELS,
     .help = "perf: weights, and what ops in plans read, come from memory, not from a cache"},
    {"--rounds", CLI_INT, "N", AT(rounds), "15", RANGE(1, 100000), CLI_KERNELS | CLI_DEVICES,
     .help = "times that each measurement is repeated, in turns with the others; medians are printed"},
    {"--seed", CLI_INT, "N", AT(kernel_seed), "-1", RANGE(-1, UINT32_MAX), CLI_KERNELS,
     .help = "test: the random data; -1: new ones, whose seed is printed"},
    {"--form", CLI_INT, "N", AT(kernel_form), "0", RANGE(0, UINT32_MAX), CLI_KERNELS,
     .help =
         "test: only this form of problem, by the number that it prints where it fails; of low-bit products 1: scales "
         "in f16, 2: in f32, 3: in two levels, 4 to 6: the same with mins; 0: all"},
    {"--report", CLI_TEXT, "FILE", AT(report), .commands = CLI_DEVICES,
     .help = "write one text file about this machine's GPUs to send: what they are, their drivers, tests and speeds of "
             "crumb's kernels, the fastest settings that 'crumb tune' finds in --budget; minutes long. No user names, "
             "no paths"},
    {"--filter", CLI_TEXT, "TEXT", AT(kernel_filter), .commands = CLI_DEVICES,
     .help = "with --report: only kernels with this in their name"},
    {"--bits", CLI_TEXTS, "FORMAT,...", AT(kernel_bits), .commands = CLI_DEVICES,
     .help = "with --report: only weights of these formats, as for 'crumb kernels'"},
    {"--shape", CLI_TEXTS, "MxKxN,...", AT(kernel_shapes), .commands = CLI_DEVICES,
     .help = "with --report: these layers, instead of awkward ones for tests and some models' for speeds"},
    {"--budget", CLI_TEXT, "TIME", AT(budget), "60s", .commands = CLI_DEVICES,
     .help = "with --report: how long kernels are tuned for each GPU: 90s, 10m; 0: not at all"},
    {"--measure", CLI_ON, AT(measure), .commands = CLI_DEVICES,
     .help =
         "measure what the devices can do at best: memory, alone and while the other reads, dot products, barriers, "
         "kernels; and keep it for 'crumb plan'"},

    {"--kernel --filter", CLI_TEXT, "TEXT", AT(kernel_filter), .commands = CLI_TUNE,
     .help = "only kernels with this in their name"},
    {"--budget", CLI_TEXT, "TIME", AT(budget), "10m", .commands = CLI_TUNE,
     .help = "how long to measure: 90s, 10m, 1h"},
    {"--fraction", CLI_REAL, "X", AT(fraction), "1", RANGE(0.001, 1), CLI_TUNE,
     .help = "measure only this part of the candidates, drawn at random"},
    {"--again", CLI_ON, AT(again), .commands = CLI_TUNE, .help = "also measure what the database has already"},

    /* ---- plan ---- */
    {"--synthetic", CLI_TEXT, "SHAPE:TYPE[:HEAD]", AT(plan_synthetic), .commands = CLI_PLAN,
     .help = "a known model's shapes, as for 'crumb bench', instead of a file"},
    {"--profile", CLI_TEXT, "this|none|NAME|FILE", AT(profile), "this", .commands = CLI_ENGINE,
     .help =
         "what the machine's devices can do, by which layers are placed: as 'crumb devices --measure' has found it, "
         "nothing, or a machine as for 'crumb plan'"},
    {"--profile", CLI_TEXT, "this|arl|arlh|lnl|bmg|a770|ptl|FILE", AT(profile), "this", .commands = CLI_PLAN,
     .help = "the machine: this one as 'crumb devices --measure' has found it, one that crumb knows (Arrow Lake, Arrow "
             "Lake-H, Lunar Lake, Arc B580, Arc A770, Panther Lake), or a file like those in scheduler/profiles"},
    {"--kernels", CLI_CHOICE, "crumb|paper", AT(plan_kernels), "crumb", .commands = CLI_PLAN,
     .help = "whose kernels: crumb's, or those of the paper that it grew from. Without a model, paper prints what the "
             "paper has published beside what its own components predict"},
    {"-p --prompt --n-prompt", CLI_INT, "N", AT(plan_prompt), "512", RANGE(1, INT32_MAX), CLI_PLAN,
     .help = "tokens of the prompt"},
    {"-n --predict --n-predict", CLI_INT, "N", AT(n_predict), "128", RANGE(1, INT32_MAX), CLI_PLAN,
     .help = "tokens to generate, which is what decoding weighs against the prompt"},
    {"-c --context --ctx-size", CLI_INT, "N", AT(n_ctx), "0", RANGE(0, UINT32_MAX), CLI_PLAN,
     .help = "tokens that the context holds, which takes memory; 0: the prompt and what is generated"},
    {"-dev --device", CLI_TEXT, "auto|cpu|gpuN|cpu+gpuN", AT(device), "auto", .commands = CLI_PLAN,
     .help = "only these of the machine's devices; auto: all"},

    /* ---- quantize ---- */
    {"--pure", CLI_ON, AT(pure), .commands = CLI_QUANTIZE,
     .help = "the type for the embedding and the output matrix as well, which otherwise have at least 8 bits"},
    {"--method", CLI_CHOICE, "rtn|gptq|seq|absmean", AT(quantize_method), "rtn", .commands = CLI_QUANTIZE,
     .help =
         "how weights are rounded: to the nearest code; GPTQ's way (GPTQ2, GPTQ3, GPTQ4), where the weights still to "
         "come make up for what each one loses; to ParetoQ's four stretched levels (Q2_K, Q4_0), with the "
         "scale of the least squared error; or to three levels with one scale per tensor, the mean magnitude, as "
         "BitNet b1.58 does (TQ1_0, TQ2_0, I2_S)"},
    {"--group-size", CLI_INT, "N", AT(group_size), "128", RANGE(-1, 65536), CLI_QUANTIZE,
     .help = "GPTQ2, GPTQ3, GPTQ4: weights that share a scale and a zero point: 16, 32, 64, 128 ...; -1: a row"},
    {"--calibration", CLI_TEXT, "FILE", AT(calibration), .commands = CLI_QUANTIZE,
     .help = "--method gptq: a text that shows what the layers get as input; without it the model writes one itself"},
    {"--calibration-tokens", CLI_INT, "N", AT(calibration_tokens), "16384", RANGE(1, 1 << 24), CLI_QUANTIZE,
     .help = "--method gptq: so many tokens of the text, from its start; more are better, slower and take memory"},
    {"--act-order", CLI_OPTIONAL, "on|off|free", AT(act_order), "off", .commands = CLI_QUANTIZE,
     .help = "--method gptq: columns are rounded in the order of what they matter. on: weights that share a scale stay "
             "neighbours; free: they are neighbours in that order, as GPTQ's desc_act has it"},
    {"--damping", CLI_REAL, "X", AT(damping), "0.01", RANGE(0, 10), CLI_QUANTIZE,
     .help = "--method gptq: part of the mean of the second derivatives that is added to them"},
    {"-s --seed", CLI_INT, "N", AT(seed), "0", RANGE(-1, UINT32_MAX), CLI_QUANTIZE,
     .help = "--method gptq: of the text that the model writes"},
    {"--token-embedding-type", CLI_TEXT, "TYPE", AT(embedding_type), .commands = CLI_QUANTIZE,
     .help = "another type for the embedding, which is the output matrix too where a model ties them"},
    {"--output-tensor-type", CLI_TEXT, "TYPE", AT(output_type), .commands = CLI_QUANTIZE,
     .help = "another type for the output matrix"},

    /* ---- help ---- */
    {"--man", CLI_ON, AT(man), .commands = CLI_HELP, .help = "the manual page, for man(1)"},
    {"--completion", CLI_CHOICE, "bash|zsh", AT(completion), .commands = CLI_HELP, .help = "completion for a shell"},

    /* ---- everywhere ---- */
    {"--roofline", CLI_ON, AT(roofline), .commands = CLI_RUN,
     .help = "measure this machine's memory, and say what part of it decoding reached"},
    {"--explain", CLI_ON, AT(explain), .commands = CLI_RUN | CLI_BENCH,
     .help = "say at the end (bench: after each test) which device ran which layers and why, what time was predicted, "
             "and what it took"},
    {"--list-devices", CLI_ON, AT(list_devices), .commands = CLI_ENGINE, .help = "print the devices and exit"},
    {"--json", CLI_ON, AT(json), .commands = CLI_ALL & ~CLI_HELP,
     .help = "one JSON object with a schema_version (run: JSON lines)"},
    {"-v --verbose", CLI_ON, AT(verbose), .commands = CLI_ENGINE, .help = "say what is chosen and why"},
    {"--log-disable", CLI_ON, AT(quiet), .commands = CLI_ENGINE | CLI_TOKENIZE | CLI_CONVERT | CLI_QUANTIZE,
     .help = "nothing but errors on standard error"},
    {"-h --help", CLI_ON, AT(help), .commands = CLI_ALL, .help = "print this"},

    /* ---- llama.cpp's, accepted so that scripts run ---- */
    {"-hf -hfr --hf-repo", CLI_TEXT, "REPO", AT(hf_repo), .commands = CLI_ENGINE | CLI_TOKENIZE,
     .note = "crumb downloads nothing: fetch the GGUF file, then give -m FILE"},
    {"-fa --flash-attn", CLI_OPTIONAL, "on|off|auto|1|0", NOWHERE, .commands = CLI_ENGINE,
     .note = "attention has one implementation, which never stores the score matrix", .quiet = "on|auto|1"},
    {"-ctk --cache-type-k", CLI_CHOICE, "f16|q8_0", AT(cache_type_k), .commands = CLI_ENGINE | CLI_PLAN,
     .note = "keys and values are kept alike: give -ctk and -ctv the same type, or --kv-cache f16 or q8"},
    {"-ctv --cache-type-v", CLI_CHOICE, "f16|q8_0", AT(cache_type_v), .commands = CLI_ENGINE | CLI_PLAN,
     .note = "as -ctk"},
    {"--no-mmap", CLI_UNUSED, NOWHERE, .commands = CLI_ENGINE,
     .note = "weights are packed into memory anyway; the file is not read again after loading"},
    {"--jinja", CLI_UNUSED, NOWHERE, .commands = CLI_RUN, .note = "what crumb does in any case", .quiet = ""},
};
const size_t cli_n_option_table = sizeof cli_option_table / sizeof cli_option_table[0];

bool cli_option_listed(const cli_option *option) {
    return option->help != NULL;
}

bool cli_option_takes_value(const cli_option *option) {
    return option->kind != CLI_ON && option->kind != CLI_OFF && option->kind != CLI_UNUSED;
}

bool cli_option_next_name(const char **cursor, char *out, size_t size) {
    while (**cursor == ' ') (*cursor)++;
    size_t n = strcspn(*cursor, " ");
    if (n == 0 || n >= size) return false;
    memcpy(out, *cursor, n);
    out[n] = 0;
    *cursor += n;
    return true;
}

void cli_option_variable(const cli_option *option, char *out, size_t size) {
    static const unsigned without = CLI_HELP;
    char name[64] = "";
    for (const char *cursor = option->names; cli_option_next_name(&cursor, name, sizeof name);) continue;
    out[0] = 0;
    if (option->commands == without || strcmp(name, "--help") == 0 || strlen(name) + 8 > size) return;
    size_t used = (size_t)snprintf(out, size, "CRUMB_");
    for (const char *p = name + strspn(name, "-"); *p; p++) {
        char upper = *p;
        if (upper == '-') upper = '_';
        if (upper >= 'a' && upper <= 'z') upper = (char)(upper - 'a' + 'A');
        out[used++] = upper;
    }
    out[used] = 0;
}
