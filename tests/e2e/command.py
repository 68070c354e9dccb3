"""Runs the command under test, whose path is in CRUMB_COMMAND, without CRUMB_* variables of the caller (but for
CRUMB_LAYER_*, which tests/xe/matrix_layer.c reads)."""
import contextlib
import os
import sqlite3
import subprocess
import unittest

COMMAND = os.environ["CRUMB_COMMAND"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_SECONDS = 400 if os.environ.get("CRUMB_SANITIZE") else 100  # of one command
MODEL = os.path.join(SOURCE, "tools", "train", "model", "crumb-tiny.gguf")
SUBCOMMANDS = ["run", "bench", "perplexity", "inspect", "tokenize", "kernels", "tune", "devices", "plan", "convert", "quantize", "help"]


def environment(**extra):
    clean = {k: v for k, v in os.environ.items()
             if k.startswith("CRUMB_LAYER_") or (not k.startswith("CRUMB_") and k != "NO_COLOR")}
    return {**clean, **extra}


def crumb(*arguments, env=None, **options):
    """The finished process; output as text."""
    options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
    if "input" in options:
        del options["stdin"]
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True, encoding="utf-8",
                          timeout=LIMIT_SECONDS, env=environment(**(env or {})), **options)


def start(*arguments):
    """A running process with both outputs piped."""
    return subprocess.Popen([COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=environment())


def alter(database, what, *values):
    """Changes what a tuning database holds, as if it had been measured so: alter(database, "rounds = ?", 25)."""
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        db.execute(f"UPDATE measurement SET {what}", values)


class CommandTest(unittest.TestCase):
    def succeeds(self, *arguments, **options):
        done = crumb(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}")
        return done

    def fails(self, code, *arguments, says="", **options):
        """It must end with this code and one error message that contains `says`, and not by a signal."""
        done = crumb(*arguments, **options)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stderr}")
        self.assertIn("crumb: error: ", done.stderr)
        self.assertIn(says, done.stderr)
        return done
