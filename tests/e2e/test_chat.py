"""crumb run -cnv: turns, templates, and what a person at a terminal sees."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import unittest

from command import COMMAND, MODEL, SOURCE, CommandTest, environment

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
CHAT = ["run", "-cnv", "--chat-template", PLAIN, "--temp", "0", "-n", "12"]


def events(done, kind):
    return [e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == kind]


class Turns(CommandTest):
    def test_lines_are_messages(self):
        done = self.succeeds(*CHAT, "--json", input="One day\n\nWho \\\nis she?\n")
        self.assertEqual([e["text"] for e in events(done, "message")], ["One day", "Who \nis she?"])
        self.assertEqual(len(events(done, "answered")), 2)
        self.assertTrue(events(done, "start")[0]["chat"])

    def test_each_turn_continues_the_rendered_conversation(self):
        """Also where the context keeps what it can: the answer is that of the whole text, evaluated at once."""
        first, second = "Tell me about " + "the dog and " * 20 + "the cat", "And then?"
        done = self.succeeds(*CHAT, "--json", "--ignore-eos", input=f"{first}\n{second}\n")
        answers, answer = [], ""
        for e in map(json.loads, done.stdout.splitlines()):
            if e["event"] == "text":
                answer += e["text"]
            if e["event"] == "answered":
                answers.append(answer)
                answer = ""
        whole = f"user: {first}\nassistant: {answers[0]}\nuser: {second}\nassistant:"
        raw = self.succeeds("run", "--no-escape", "-p", whole, "-n", "12", "--temp", "0", "--ignore-eos", "--json",
                            "--no-display-prompt")
        self.assertEqual(answers[1], "".join(e["text"] for e in events(raw, "text")))
        alone = events(self.succeeds(*CHAT, "--json", "--ignore-eos", "-st", "-p", first), "end")[0]["n_prompt"]
        self.assertLess(events(done, "end")[0]["n_prompt"], 2 * alone)

    def test_single_turn(self):
        one = self.succeeds(*CHAT, "-st", "-p", "One day").stdout
        self.assertEqual(one, self.succeeds(*CHAT, "-st", input="One day\nnot read\n").stdout)
        self.assertEqual(one, self.succeeds("run", "-st", *CHAT[2:], "-p", "One day").stdout)
        raw = self.succeeds("run", "-no-cnv", "-p", "user: One day\nassistant:", *CHAT[4:], "--no-display-prompt").stdout
        self.assertEqual(one, raw)

    def test_a_system_message(self):
        template = "{{ messages|length }}{{ messages[0].role }}{{ messages[0].content }}"
        told = self.succeeds("run", "-sys", r"a\nb", "-st", "-p", "x", "--temp", "0", "-n", "9", "--chat-template", template)
        raw = self.succeeds("run", "-p", "2systema\nb", "--temp", "0", "-n", "9", "--no-display-prompt")
        self.assertEqual(told.stdout, raw.stdout)

    def test_devices_are_chosen_for_long_messages(self):
        """A chat whose first message is short, or not known, may have a long one later; the system prompt comes on top."""
        explains = ["--device", "cpu", "--profile", "lnl", "--explain", "-c", "2048"]

        def placed_for(*arguments, **options):
            done = self.succeeds(*CHAT, *explains, "--json", *arguments, **options)
            return events(done, "end")[0]["explain"]["placed_for"]["n_prompt"]
        self.assertEqual(placed_for(input="One day\n"), 512)
        self.assertEqual(placed_for("-p", "One day", input=""), 512)
        self.assertEqual(placed_for("-p", 400 * "One day ", "-c", "4096", input=""), 801)
        self.assertEqual(placed_for("-sys", 100 * "Be short. ", input="One day\n"), 512 + 251)
        self.assertEqual(placed_for("-st", "-p", "One day"), 2)  # all that there will be
        self.assertEqual(placed_for("-st", "-p", "One day", "-sys", 100 * "Be short. "), 2 + 251)
        self.assertEqual(placed_for(input="One day\n", *["-c", "256"]), 256)  # no more than the context holds
        told = self.succeeds(*CHAT, *explains, input="One day\n").stderr
        self.assertIn("chosen for a prompt of 512 tokens, 512 at once, and 12 after it, in a context of 2048 in f16", told)
        self.assertIn("messages of 512 tokens", re.sub(r"\s+", " ", self.succeeds("run", "--help").stdout))

    def test_template_files(self):
        with open(os.path.join(os.environ.get("TMPDIR", "/tmp"), f"crumb-{os.getpid()}.jinja"), "w") as f:
            f.write(PLAIN + "\n")
        self.addCleanup(os.unlink, f.name)
        flags = ["-st", "-p", "One day", "--temp", "0", "-n", "9"]
        self.assertEqual(self.succeeds("run", *flags, "--chat-template-file", f.name).stdout,
                         self.succeeds("run", *flags, "--chat-template", PLAIN).stdout)

    def test_tools_are_told_to_the_model(self):
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"crumb-{os.getpid()}.json")
        self.addCleanup(os.unlink, path)
        template = "{{ tools|length }} {{ tools[0].function.name }} {{ messages[0].content }}"
        flags = ["-st", "-p", "x", "--temp", "0", "-n", "9", "--chat-template", template, "--tools", path]
        with open(path, "w") as f:
            json.dump([{"type": "function", "function": {"name": "weather"}}], f)
        raw = self.succeeds("run", "-p", "1 weather x", "--temp", "0", "-n", "9", "--no-display-prompt")
        self.assertEqual(self.succeeds("run", *flags).stdout, raw.stdout)
        with open(path, "w") as f:
            f.write('[{"type": 1]')
        self.fails(3, "run", *flags, says="tools: JSON, byte 11")
        self.fails(1, "run", *flags[:-1], path + ".no", says=path + ".no")

    def test_what_is_missing_or_wrong(self):
        self.fails(2, "run", "-cnv", "-p", "x", says="--chat-template")
        self.fails(2, "run", "-st", MODEL, "-p", "x", says="no chat template")
        self.fails(2, "run", "-cnv", "--chat-template", "llama17", says="chatml")
        self.fails(3, "run", "-cnv", "--chat-template", "{{ messages|nope }}", says="line 1: filter 'nope'")
        self.fails(3, "run", "-cnv", "--chat-template", "{% for %}", says="line 1")
        self.fails(2, "run", "-cnv", "--chat-template", "{{ raise_exception('no') }}", says="the template refuses this: no")
        self.fails(1, "run", "-cnv", "--chat-template-file", "/nonexistent/t", says="/nonexistent/t")

    def test_a_byte_0_cuts_nothing_off(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text")
            with open(path, "wb") as f:
                f.write(b"[]\0 {{ x }}")
            self.fails(3, *CHAT, "-st", "-p", "x", "--tools", path, says=f"{path}: a byte 0")
            self.fails(3, "run", "-st", "-p", "x", "--chat-template-file", path, says=f"{path}: a byte 0")
            self.fails(2, *CHAT, "-st", "-f", path, says="the prompt: a byte 0")
            self.assertGreater(events(self.succeeds("run", "-f", path, "-n", "0", "--json"), "end")[0]["n_prompt"], 4)
        self.fails(2, *CHAT, "-e", "-p", r"a\x00b", says="the prompt: a byte 0")
        self.fails(2, *CHAT, input="One\nday\0she\n", says="standard input: a byte 0")

    def test_a_byte_0_in_an_answer_cuts_nothing_off(self):
        """Neither what is printed nor, with U+FFFD in its place, what the conversation remembers."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(os.path.join(SOURCE, "tests", "oracle", "checkpoints", "llama-f16"), model)
            asks = ("run", "-m", model, "-st", "-p", "x", "-n", "6", "--temp", "0", "--ignore-eos", "--device", "cpu",
                    "--no-display-prompt", "--chat-template")
            said = self.succeeds(*asks, "{{ 'in the hat' }}").stdout
            with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
                document = json.load(f)
            vocabulary = document["model"]["vocab"]
            vocabulary[said[0]], vocabulary["\u0100"] = vocabulary["\u0100"], vocabulary[said[0]]  # GPT-2's byte 0
            with open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8") as f:
                json.dump(document, f)
            printed = self.succeeds(*asks, "{{ 'in the hat' }}").stdout
            self.assertEqual(printed, said.replace(said[0], "\0"))
            template = "{% if messages|length > 2 %}{{ raise_exception(messages[1].content) }}{% endif %}in the hat"
            done = self.fails(2, *asks[:3], "-cnv", *asks[4:], template, input="y\n")
            remembered = printed.strip().replace("\0", "\ufffd")
            self.assertIn("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in remembered), done.stderr)

    def test_a_template_that_does_not_work_is_named(self):
        """A file's, and a model's: with the model's path; a prompt by itself needs none of it."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(os.path.join(SOURCE, "tests", "oracle", "checkpoints", "llama-q4_1"), model)
            path = os.path.join(model, "chat_template.jinja")
            for template, says in (("{{ messages[0].content|truncate(3) }}", "line 1: filter 'truncate'"),
                                   ("a\n{% include 'x' %}", "line 2: the statement 'include'"), ("{{ messages", "line 1"),
                                   ("{% for x in range(10000) %}" * 4 + "{% endfor %}" * 4, "too many steps")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(template)
                self.fails(3, "run", "-m", model, "-st", "-p", "x", says=f"{model}: chat template, line")
                self.fails(3, "run", "-m", model, "-st", "-p", "x", says=says)
                self.fails(3, "run", "-st", "-p", "x", "--chat-template-file", path, says=f"{path}: chat template, line")
                self.succeeds("run", "-m", model, "-p", "a b", "-n", "1", "--temp", "0")
            with open(path, "wb") as f:
                f.write(b"{{ messages[0].content }}\0{{ nothing")
            self.fails(3, "run", "-m", model, "-p", "x", says=f"{path}: a byte 0")
        self.assertEqual(self.succeeds(*CHAT).stdout, "")

    def test_a_full_context_ends_clean(self):
        done = self.succeeds(*CHAT, "-c", "64", "--ignore-eos", "-n", "30", input="One day she\n" * 20)
        self.assertIn("context of 64 tokens is full", done.stderr)
        done = self.succeeds(*CHAT, "-c", "32", input="word " * 100 + "\n")
        self.assertIn("context of 32 tokens is full", done.stderr)

    def test_jinja_is_no_news(self):
        self.assertNotIn("--jinja", self.succeeds(*CHAT, "--jinja", "-st", "-p", "x").stderr)


class Terminal(CommandTest):
    """A person at a terminal, who types and presses keys."""

    edits = b"libedit" in subprocess.run(["ldd", COMMAND], capture_output=True).stdout

    def start(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(COMMAND, ["crumb", *arguments], {**environment(), "TERM": "xterm"})
        self.seen = ""
        self.addCleanup(self.stop)

    def stop(self):
        os.close(self.fd)
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def waits_for(self, pattern, seconds=60):
        """Reads until the pattern has come, and drops all up to its end."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            self.assertLess(time.monotonic(), end, f"{pattern} does not come: {self.seen!r}")
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    self.fail(f"ended before {pattern} came: {self.seen!r}")
        found, self.seen = self.seen[:match.end()], self.seen[match.end():]
        return found

    def types(self, text):
        os.write(self.fd, text.encode())

    def is_prompted(self):
        """Waits for a prompt, and for the terminal that it stands on: libedit shows it a moment before it turns line by
        line reading off, and keys that come in between may get lost."""
        self.waits_for("(^|\n|\r)> ")
        end = time.monotonic() + 60
        while self.edits and termios.tcgetattr(self.fd)[3] & termios.ICANON:
            self.assertLess(time.monotonic(), end, "the terminal is not read key by key")
            time.sleep(0.01)

    def ends(self, seconds=60):
        """Its exit status."""
        end = time.monotonic() + seconds
        while (done := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            self.assertLess(time.monotonic(), end, f"it does not end: {self.seen!r}")
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    time.sleep(0.01)
        return os.waitstatus_to_exitcode(done[1])

    def test_ctrl_d_ends(self):
        self.start(*CHAT)
        self.is_prompted()
        self.types("One day\n")
        self.is_prompted()
        self.types("\x04")
        self.assertEqual(self.ends(), 0)

    def test_ctrl_c_at_the_prompt_ends(self):
        self.start(*CHAT)
        self.is_prompted()
        self.types("One")
        self.waits_for("One")
        self.types("\x03")
        self.assertEqual(self.ends(), 130)

    def test_ctrl_c_stops_an_answer_only(self):
        self.start(*CHAT[:-2], "-c", "2000000", "--ignore-eos")
        self.is_prompted()
        self.types("One day\n")
        self.waits_for(r"One day\r?\n[^>]{40}")
        self.types("\x03")
        self.is_prompted()
        self.types("\x04")
        self.assertEqual(self.ends(), 0)

    def test_lines_are_edited_and_remembered(self):
        if not self.edits:
            self.skipTest("built without libedit")
        self.start(*CHAT, "--json")
        self.is_prompted()
        self.types("Gr\u00fc\u00dfen\x7f\n")
        self.is_prompted()
        self.types("\x1b[A")
        self.waits_for("Gr\u00fc\u00dfe")
        self.types("\x01New \n")
        self.waits_for('"text":"New Gr\u00fc\u00dfe"')
        self.is_prompted()
        self.types("\x04")
        self.assertEqual(self.ends(), 0)

    def test_without_a_template_the_embedded_model_tells_its_story(self):
        self.start("run", "-n", "5", "--temp", "0")
        self.waits_for("Once upon a time")
        self.assertEqual(self.ends(), 0)


if __name__ == "__main__":
    unittest.main()
