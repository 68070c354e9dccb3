#!/usr/bin/env python3
"""Writes what jinja2 makes of chat templates, configured as Hugging Face's transformers configures it:
tests/oracle/templates/expected.json (every *.jinja there with every conversation) and snippets.json (the small templates
below). The templates are ours; each has the structure of a model family's.

usage: make_templates.py            in an environment with jinja2: $(tests/support/deps.py venv jinja)/bin/python
       make_templates.py --check    compares with what is there instead of writing
"""
import datetime
import json
import os
import re
import sys
import time
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()

import jinja2  # noqa: E402
import jinja2.ext  # noqa: E402
import jinja2.sandbox  # noqa: E402

import template_snippets  # noqa: E402

HERE = Path(__file__).resolve().parent / "templates"
NOW = 1753531200  # 26 July 2025, 12:00 UTC; tests/unit/test_jinja.c has the same


class Generation(jinja2.ext.Extension):
    """Transformers' {% generation %}: what the assistant wrote. It prints its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def refuse(message):
    raise jinja2.TemplateError(message)


def environment():
    e = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                     extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return e


def render(source, variables):
    """The text, or None where jinja2 fails."""
    try:
        return environment().from_string(source).render(**variables)
    except Exception:  # whatever a template can do wrong
        return None


def expected():
    conversations = {p.stem: json.loads(p.read_text()) for p in sorted((HERE / "conversations").glob("*.json"))}
    return {t.stem: {name: render(t.read_text(), variables) for name, variables in conversations.items()}
            for t in sorted(HERE.glob("*.jinja"))}


def everything():
    """What jinja2, as it is configured here, has a name for: (kind, a pattern of its use)."""
    e = environment()
    for name in e.filters:
        yield f"filter {name}", rf"\|\s*{name}\b|map\('{name}'"
    for name in e.tests:
        if name.isidentifier():  # == and so on are the same tests
            yield f"test {name}", rf"\bis\s+(not\s+)?{name}\b|(select|reject)(attr)?\([^)]*'{name}'"
    for name in e.globals:
        yield f"function {name}", rf"\b{name}\("
    for name in [*jinja2.parser._statement_keywords, "call", "filter", *(t for x in e.extensions.values() for t in x.tags)]:
        yield f"statement {name}", rf"{{%[-+]?\s*{name}\b"
    for name in (n for kind in (str, list, dict) for n in dir(kind) if n.isidentifier() and not n.startswith("_")):
        yield f"method {name}", rf"\.{name}\("


SAME_TESTS = {"test greaterthan": "test gt", "test lessthan": "test lt"}  # other names, which crumb has too
CHANGING = {"method " + n for n in ("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort",
                                    "update")}  # lists and dictionaries are constants in transformers' sandbox


def check_all_are_there():
    """Nothing that jinja2 has is in neither list."""
    text = "\n".join([*template_snippets.SUPPORTED, *(s for s, _ in template_snippets.UNSUPPORTED)])
    missing = [what for what, pattern in everything() if not re.search(pattern, text)]
    missing = [what for what in missing if what not in SAME_TESTS and what not in CHANGING]
    assert not missing, f"in no snippet: {missing}"


def is_taken(source):
    """Whether jinja2 renders it; of statements that ask for other files, whether it reads them."""
    if re.match(r"{% (extends|include|import|from) ", source):
        return environment().parse(source) is not None
    return render(source, template_snippets.VARIABLES) is not None


def snippets():
    check_all_are_there()
    for source, _ in template_snippets.UNSUPPORTED:
        assert is_taken(source), source
    return {"variables": json.dumps(template_snippets.VARIABLES, ensure_ascii=False),
            "supported": [[s, render(s, template_snippets.VARIABLES)] for s in template_snippets.SUPPORTED],
            "unsupported": [list(pair) for pair in template_snippets.UNSUPPORTED]}


def main():
    good = True
    for name, content in (("expected.json", expected()), ("snippets.json", snippets())):
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if sys.argv[1:] == ["--check"]:
            same = (HERE / name).read_text() == text
            print(f"{name}: {'as' if same else 'NOT as'} jinja2 {jinja2.__version__} renders")
            good = good and same
        else:
            (HERE / name).write_text(text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
