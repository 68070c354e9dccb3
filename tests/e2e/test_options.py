"""The option table: help, parsing, variables, the manual page, completion."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from command import SUBCOMMANDS, CommandTest

# A value for each placeholder that help shows.
VALUES = {"N": "8", "X": "0.5", "FILE": "x", "TEXT": "x", "TIER": "cpu:scalar", "FILE,...": "x,y", "N,...": "1,2",
          "P,G": "8,4", "SHAPE:TYPE[:HEAD]": "llama3-8b:u2", "REPO": "a/b", "TYPE": "f16", "NAME": "x", "auto|X": "auto"}


def options_of(page, indent="  "):
    """(names, placeholder or None) of each option that a help page lists."""
    for line in page.splitlines():
        match = re.match(indent + r"(-[^ ,]+(?:, -[^ ,]+)*)(?: ([^ ]+))?(?:  |$)", line)
        if match:
            yield match.group(1).split(", "), match.group(2)


def value_for(placeholder):
    words = placeholder.strip("[]")
    return VALUES[placeholder] if placeholder in VALUES else words.split("|")[0]


class Help(CommandTest):
    def test_each_command_explains_itself(self):
        for name in SUBCOMMANDS:
            page = self.succeeds(name, "--help").stdout
            self.assertTrue(page.startswith(f"usage: crumb {name} "))
            self.assertEqual(page, self.succeeds(name, "-h").stdout)
            self.assertEqual(page, self.succeeds("help", name).stdout)
            self.assertLessEqual(max(map(len, page.splitlines())), 100)

    def test_overview_lists_commands_and_topics(self):
        page = self.succeeds().stdout
        self.assertEqual(page, self.succeeds("--help").stdout)
        for word in SUBCOMMANDS + ["errors", "environment", "formats", "coming-from-llama.cpp"]:
            self.assertRegex(page, rf"(?m)^  {re.escape(word)} ")

    def test_version(self):
        self.assertRegex(self.succeeds("--version").stdout, r"^crumb \d+\.\d+\.\d+\n$")

    def test_topics(self):
        errors = self.succeeds("help", "errors").stdout
        for code, name in [(0, "ok"), (2, "argument"), (3, "format"), (4, "device"), (5, "memory"), (130, "interrupted")]:
            self.assertRegex(errors, rf"(?m)^  {code} +{name} ")
        self.assertIn("CRUMB_N_PREDICT", self.succeeds("help", "environment").stdout)
        self.assertIn("TQ2_0", self.succeeds("help", "formats").stdout)
        self.assertIn("-ngl", self.succeeds("help", "coming-from-llama.cpp").stdout)
        self.fails(2, "help", "erors", says="errors")


class Parsing(CommandTest):
    def test_every_listed_option_parses(self):
        n = 0
        for name in SUBCOMMANDS:
            for names, placeholder in options_of(self.succeeds(name, "--help").stdout):
                for option in names:
                    value = [value_for(placeholder)] if placeholder else []
                    self.assertIn("usage:", self.succeeds(name, option, *value, "--help").stdout)
                    n += 1
        self.assertGreater(n, 100)

    def test_every_option_of_llama_parses(self):
        page = self.succeeds("help", "coming-from-llama.cpp").stdout.split("Accepted")[1]
        found = list(options_of(page.replace("\n" + 40 * " ", " ")))
        self.assertGreater(len(found), 5)
        for names, placeholder in found:
            for option in names:
                value = [value_for(placeholder)] if placeholder else []
                self.assertIn("usage:", self.succeeds("run", option, *value, "--help").stdout)

    def test_unknown_options_name_the_nearest(self):
        self.fails(2, "run", "--tmep", "0", says="'--temp'")
        self.fails(2, "run", "--ctx", "9", says="'--ctx-size'")  # no abbreviations
        self.fails(2, "bench", "--repetition", "1", says="'--repetitions'")
        self.fails(2, "run", "--ids", says="crumb tokenize")
        self.fails(2, "rnu", says="crumb run")
        self.fails(2, "-m", "x", says="crumb run -m")

    def test_bad_values(self):
        self.fails(2, "run", "-n", says="needs a value")
        self.fails(2, "run", "-n", "many", says="whole number")
        self.fails(2, "run", "-n", "1x", says="whole number")
        self.fails(2, "run", "-n", "99999999999999999999", says="whole number")
        self.fails(2, "run", "-t", "-1", says="out of range")
        self.fails(2, "run", "--top-p", "1.5", says="out of range")
        self.fails(2, "kernels", "list", "--op", "x", says="|top|place|gather); see 'crumb kernels --help'")
        self.fails(2, "run", "--temp", "nan", says="not a number")
        self.fails(2, "run", "--activation", "flat", says="auto|float|row|group")
        self.fails(2, "run", "--cpu-kind", "x", says="auto|p|e|all")
        self.fails(2, "bench", "-p", "8-2+0", says="step")
        self.fails(2, "bench", "-p", "0-8*2", says="zero")
        self.fails(2, "bench", "-p", "1,", says="whole numbers")
        self.fails(2, "run", "-p", "a", "x.gguf", "b", says="unexpected argument 'b'")

    def test_tb_is_not_t_with_value_b(self):
        self.succeeds("run", "-tb", "4", "--help")
        self.fails(2, "run", "-t4", "--help", says="'-t'")

    def test_equals_sign_and_double_dash(self):
        self.fails(2, "run", "--n-predict=x", says="--n-predict: 'x'")
        self.fails(1, "run", "--", "-no-such-file", "text", says="-no-such-file")

    def test_variables(self):
        self.fails(2, "run", env={"CRUMB_N_PREDICT": "x"}, says="CRUMB_N_PREDICT: 'x'")
        self.fails(2, "run", env={"CRUMB_IGNORE_EOS": "perhaps"}, says="neither on nor off")
        self.succeeds("inspect", env={"CRUMB_N_PREDICT": "x"})  # not an option of inspect
        one = self.succeeds("tokenize", "-p", "hello", "--ids", env={"CRUMB_SHOW_COUNT": "1"}).stdout
        self.assertIn("Total number of tokens", one)
        self.fails(1, "run", env={"CRUMB_MODEL": "/nonexistent/a", "CRUMB_PROMPT": "x"}, says="/nonexistent/a")
        self.fails(1, "run", "/nonexistent/b", env={"CRUMB_MODEL": "/nonexistent/a", "CRUMB_PROMPT": "x"},
                   says="/nonexistent/b")

    def test_every_variable_is_named(self):
        listed = set(re.findall(r"CRUMB_[A-Z_]+", self.succeeds("help", "environment").stdout))
        shown = set(re.findall(r"\[(CRUMB_[A-Z_]+)\]", "".join(self.succeeds(n, "-h").stdout for n in SUBCOMMANDS)))
        no_option = {"CRUMB_PATIENCE_MS", "CRUMB_MODULE_DIR", "CRUMB_CLBLAST_PARAMETERS"}
        self.assertEqual(listed, shown | no_option)
        described = self.succeeds("help", "--man").stdout.split(".SH ENVIRONMENT")[1].split(".SH")[0]
        self.assertEqual(set(re.findall(r"(?m)^\.B (\w+)$", described)), no_option | {"NO_COLOR"})

    def test_what_a_target_may_add_is_named(self):
        page = " ".join(self.succeeds("help", "run").stdout.split())
        for extra in ("+exact", "+bf16", "+clblast"):  # those of cl/device.c
            self.assertIn(extra, page)


class Devices(CommandTest):
    NO_MODULES = {"CRUMB_MODULE_DIR": "/nonexistent"}

    def test_gpus_that_are_not_there(self):
        for flags in [("--device", "gpu0"), ("--backend", "cl")]:
            self.fails(4, "run", "-n", "1", *flags, env=self.NO_MODULES, says=flags[1])
        self.fails(4, "run", "-n", "1", env={"CRUMB_DEVICE": "gpu0", **self.NO_MODULES}, says="gpu0")

    def test_names_that_mean_nothing(self):
        for flags in [("-dev", "gpu0+cpu"), ("--device", "gpu"), ("--backend", "ze")]:
            self.fails(4, "run", "-n", "1", *flags, says=flags[1])
        self.fails(2, "run", "-n", "1", "--device", "cpu", "--backend", "cl", says="does not drive")
        self.fails(2, "run", "-n", "1", "--device", "gpu0", "--backend", "cpu", says="does not drive")

    def test_the_cpu_serves_without_modules(self):
        done = self.succeeds("run", "-n", "1", env=self.NO_MODULES)
        self.assertIn("no GPU: this build of crumb has no GPU backend", done.stderr)
        self.assertIn("no GPU: the CPU is asked for", self.succeeds("run", "-n", "1", "--device", "cpu").stderr)
        self.assertIn("no GPU: this build", self.succeeds("devices", env=self.NO_MODULES).stdout)

    def test_a_module_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "libcrumb-cl.so"), "w") as module:
                module.write("not a library")
            done = self.succeeds("run", "-n", "1", env={"CRUMB_MODULE_DIR": folder})
            self.assertRegex(done.stderr, "no GPU: .*libcrumb-cl.so")

    def test_hugging_face_is_not_reached(self):
        self.fails(2, "run", "-hf", "a/b", "-p", "x", says="-m FILE")

    def test_list_devices(self):
        self.assertIn("cpu: ", self.succeeds("run", "--list-devices").stdout)


class Generated(CommandTest):
    def test_manual_page(self):
        page = self.succeeds("help", "--man").stdout
        self.assertTrue(page.startswith(".TH CRUMB 1"))
        for word in ["NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT"]:
            self.assertIn(f".SH {word}\n", page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bash_completion(self):
        script = self.succeeds("help", "--completion", "bash").stdout
        probe = script + """
try() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _crumb 2>/dev/null; echo "${COMPREPLY[*]}"; }
try crumb per
try crumb run --top
try crumb bench -o js
"""
        done = subprocess.run(["bash", "-euc", probe], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.split("\n")[:3]),
                         (0, ["perplexity", "--top-k --top-p", "json jsonl"]), done.stderr)

    def test_zsh_completion(self):
        script = self.succeeds("help", "--completion", "zsh").stdout
        self.assertTrue(script.startswith("#compdef crumb\n"))
        if shutil.which("zsh"):
            done = subprocess.run(["zsh", "-n"], input=script, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
