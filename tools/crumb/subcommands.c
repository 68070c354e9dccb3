/* The subcommands, as the command, its help, its man page and completion know them. */
#include "tools/crumb/cli.h"

#include <string.h>

const cli_subcommand cli_subcommands[] = {
    {"run", CLI_RUN, "[FILE] [PROMPT] [options]", "continue a text, or talk",
     "Continues the prompt and streams the text. Without a model, the small one that is part of crumb tells a story. "
     "Ctrl-C ends the generation with the timings. On a terminal and without a prompt, a model with a chat template "
     "talks: each line is a message, Ctrl-C stops an answer, Ctrl-D ends; -cnv, -st and -sys ask for it elsewhere.",
     cli_run},
    {"bench", CLI_BENCH, "[FILE...] [options]", "measure how fast models read and generate",
     "Measures how fast models read prompts (ppN) and generate (tgN), as llama-bench does: random tokens, a warm-up, "
     "then the mean and the standard deviation of the repetitions. Lists are N,N,... or first-last, first-last+step, "
     "first-last*factor; all combinations are measured. --suite prints the project's targets instead: what was "
     "measured, what the machine or another kernel did in the same rounds, and whether the ratio is as wanted.",
     cli_bench},
    {"perplexity", CLI_PERPLEXITY, "[FILE] -f TEXT [options]", "measure how well a model predicts a text",
     "Measures how well a model predicts a text, by llama-perplexity's rules: chunks of -c tokens, of which the second "
     "half is scored. With --kl-divergence-base FILE what it predicts is kept; with --kl-divergence as well, another "
     "model is compared with that: perplexities, Kullback-Leibler divergence, and how far probabilities moved.",
     cli_perplexity},
    {"inspect", CLI_INSPECT, "[FILE] [options]", "show what is in a GGUF or safetensors file",
     "Shows the metadata, the tensors and their types in a GGUF file, also in one that crumb cannot run; of "
     "safetensors "
     "files (one, an index, or a folder with them) the tensors.",
     cli_inspect},
    {"tokenize", CLI_TOKENIZE, "[FILE] [TEXT] [options]", "show the tokens of a text",
     "Shows the tokens that a model's vocabulary makes of a text. FILE may also be a tokenizer.json, or a folder with "
     "one.",
     cli_tokenize},
    {"kernels", CLI_KERNELS, "list|support|test|perf [options]", "list, check and time the compute kernels",
     "list: the kernels that the options select. support: what this machine can run, why it cannot run the others, and "
     "which kernel is chosen for what. test: compares every kernel that runs here with the scalar reference. perf: "
     "times them beside what the "
     "machine can do at best; gamma is cycles per 256-bit vector of 8 outputs x 4 inputs with weights in the core's "
     "own cache, as in the paper that crumb grew from; the limit is bandwidth (with --cold: 85% of the read rate or "
     "more), port (no "
     "faster from that cache) or latency (neither). KB are the codes, scales and mins that it reads; '% read' is of "
     "memory, the rate in GB/s at which all threads read in the same seconds, and '% peak' of peak, the int8 GOPS of "
     "the kernel's own dot product. 'prep us' is what one thread takes to make of the floats what a kernel reads: "
     "int8, "
     "in its order, or tables; it is no part of the kernel's own time. 'error' is the squared error of results as a "
     "part of them, against the same codes times the activations as floats; 'in all' against the weights, of a normal "
     "distribution, that were rounded to these codes. With --backend cl, "
     "--backend ze or --device gpu0: the GPU's "
     "kernels, timed by the "
     "driver's clock beside small probes of the device; the limit may then be compute (85% of the int8 rate or more) "
     "or "
     "launch (not much more than an empty kernel takes). Those of attention, norms, dense weights and other ops run in "
     "plans of one op, of a model's size; without --cold what they move may come from a cache, and with it they are "
     "also timed without, for the limit. Their KB are all that the op must move, and their % peak is there, for "
     "kernels with such products.",
     cli_kernels},
    {"tune", CLI_TUNE, "[run|show|export|import FILE|prune] [options]", "find the fastest settings of the kernels here",
     "Times the settings of the kernels on this machine, for the shapes of a model (-m, each with 1, 4, 16 and 512 "
     "rows of activations) or for those that are given, and keeps what it measures in a database that every later "
     "run reads. With neither it goes through four large shapes in every format, which share the --budget, so that "
     "each has little of it: better name what is to be run, by -m, or what is of interest, by --bits, --shape or "
     "--kernel. Each candidate is checked for correctness first; settings that come to the same program for a shape "
     "are one candidate. On the CPU they are rows of weights read at once, lines taken at once, how far ahead they "
     "are fetched, sizes of blocks and of the chunks that threads take, and how many threads compute: a small matrix "
     "may be faster with a few of them. Of small problems there are fewer than a hundred candidates: their blocks "
     "and distances come to the same. What leads is measured 25 times beside the default, and plans take nothing "
     "that was not, or that beats the default by no more than the noise of these rounds; where the time is up before, "
     "that is said. Ctrl-C keeps all that is measured, and another run goes on there. show: the best of each problem; "
     "export: all measurements, as JSON lines; import: those of a file, whose kernels and settings are verified "
     "again, and whose figures count when tune has measured them here; prune: keep only the best. With --backend cl, "
     "--backend ze or --device gpu0 it tunes the GPU's kernels: work-group "
     "tiles, parts of K, registers, quantizing in the same launch.",
     cli_tune},
    {"devices", CLI_DEVICES, "[options]", "show the devices, and measure them",
     "Shows the devices that crumb can use, and where a GPU cannot be used, why and what to do about it. With "
     "--measure: what the processor can do at best, in medians of several rounds: the roofs that 'crumb kernels perf' "
     "and 'crumb bench' compare with; and what every device reaches with each kind of kernel, and what launches and "
     "exchanges between devices take, which is kept for 'crumb plan --profile this'. With --report: a file about the "
     "GPUs that can be sent to whoever works on crumb.",
     cli_devices},
    {"plan", CLI_PLAN, "[FILE] [options]", "predict which device computes what, and how fast",
     "Says which device of a machine would compute which layer, in reading the prompt and in decoding, with predicted "
     "times and what bounds them, and what else was considered. Needs neither the machine nor the weights: --synthetic "
     "takes a known model's shapes, --profile a known machine. The prediction is arithmetic on the figures of the "
     "machine's profile: bytes by bandwidth, operations by throughput, launches, transfers, and memory. 'crumb plan "
     "--kernels paper' compares that arithmetic with published results.",
     cli_plan},
    {"convert", CLI_CONVERT, "IN OUT [options]", "write a model as a GGUF file",
     "Writes a model as one GGUF file, which llama.cpp reads as well: from a folder as Hugging Face's transformers "
     "writes it, or from the parts of a split GGUF file. Weights keep their type; those of GPTQ and AWQ, for which "
     "GGUF has none, become Q4_0 or Q8_0 where these have their codes, as they mostly do, else (and in groups of "
     "16) f16; those that "
     "ParetoQ trained on few levels become Q1_0, TQ2_0, Q2_K or Q4_0 likewise. Scales of all these are f16: one that "
     "is not (ParetoQ's may be f32, and run as such) is rounded, which moves no weight by more than 1/2048 of it. "
     "Until all is there the file is called "
     "OUT.partial; the same command takes up what an earlier run left of it. The model's own files are never "
     "written over.",
     cli_convert},
    {"quantize", CLI_QUANTIZE, "IN OUT TYPE [options]", "write a model with weights of fewer bits",
     "Writes a model's weights in another type, each rounded to the nearest code: F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
     "MXFP4, Q2_0, TQ2_0, TQ1_0, I2_S, Q1_0; or to fewer levels by --method: seq writes Q2_K and Q4_0, absmean TQ1_0, "
     "TQ2_0 and I2_S. The model may be a GGUF file of any type that crumb runs, or a folder as "
     "transformers writes it. GPTQ4, GPTQ3 and GPTQ2 "
     "make a folder of transformers of it, OUT, with the layers' matrices packed as GPTQ packs them, embedding and "
     "output matrix as they are or in f16, and config.json and tokenizer.json, which a GGUF file's keys become. With "
     "--method gptq the layers are gone through in order, each with the inputs that the packed ones before it make of "
     "a "
     "calibration text: memory for one layer, its inputs and their second derivatives (16 bytes for each pair of "
     "columns); time "
     "for reading the text once, and more for wide layers. Norms and biases stay as they "
     "are. Types of 1 to 2 bits are for models trained so; "
     "others "
     "lose most of what they know ('crumb perplexity' tells). Other methods need memory for one tensor. Until all is "
     "there the file "
     "is called OUT.partial, and a folder has no config.json; the same command takes up what an earlier run left of "
     "it. The model's own files are never written over.",
     cli_quantize},
    {"help", CLI_HELP, "[TOPIC] [options]", "explain a command or a topic",
     "Explains a command or a topic: errors, environment, formats, coming-from-llama.cpp.", cli_help},
};
const size_t cli_n_subcommands = sizeof cli_subcommands / sizeof cli_subcommands[0];

const cli_subcommand *cli_subcommand_find(const char *name) {
    for (size_t i = 0; i < cli_n_subcommands; i++)
        if (strcmp(cli_subcommands[i].name, name) == 0) return &cli_subcommands[i];
    return NULL;
}
