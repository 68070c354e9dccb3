"""Layers where the scheduler says, on a real driver that claims to be an integrated GPU (claims_layer.c): `--device auto`
with profiles of this machine that were made up, so that each placement is the best one once. Whatever is chosen, the text
is the CPU's. Weights lie in memory once, whoever reads them."""
import copy
import json
import os
import re
import resource
import subprocess
import tempfile
import unittest
from pathlib import Path

from system_loader import under_layer

COMMAND, LAYER = os.environ["CRUMB_COMMAND"], os.environ["CRUMB_CLAIMS_LAYER"]
TOKENS = 48


def figure(value):
    return [value, "made up"]


def device(name, kind, read, together, gops):
    work = {w: {"gops": figure(gops), "share": figure(1)} for w in ("u1", "u2", "u3", "u4", "u8", "f16", "attention")}
    return {"name": name, "kind": kind, "detail": "made up", "memory_gb": figure(8), "read_gb_s": figure(read),
            "together_gb_s": figure(together), "exchange_us": figure(0),
            "kernels": {"crumb": {"launch_us": figure(0), "layer_launches": figure(7), "head_launches": figure(3),
                                  "work": work}}}


def machine(cpu, gpu):
    """(GB/s alone, GB/s together, 10^9 operations a second) of each"""
    return {"schema_version": 1, "name": "made up", "detail": "for a test",
            "devices": [device("cpu", "processor", *cpu), device("gpu0", "integrated", *gpu)]}


class Schedule(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.environment = under_layer(cls.folder.name, LAYER, "where layers are placed")
        cls.right = cls.run_crumb("--device", "cpu")[0]

    @classmethod
    def run_crumb(cls, *arguments, profile=None, n=TOKENS, talk="", **settings):
        """The text, and the events at start and end."""
        path = Path(cls.folder.name, "machine.json")
        path.write_text(json.dumps(profile))
        settings = {"CRUMB_CLAIM": "gpu", **settings}
        environment = {**cls.environment, "XDG_CACHE_HOME": str(Path(cls.folder.name, settings["CRUMB_CLAIM"])), **settings}
        done = subprocess.run([COMMAND, "run", "--json", "--explain", "--verify", "off", "-p", "One day a small dog " * 6,
                               "-n", str(n), "--temp", "0", "--ignore-eos", "--profile", path if profile else "none",
                               *arguments], env=environment, input=talk, capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return "".join(e["text"] for e in events if e["event"] == "text"), events[0], events[-1]["explain"]

    def placed(self, cpu, gpu, *arguments, **options):
        text, start, explained = self.run_crumb(*arguments, profile=machine(cpu, gpu), **options)
        if not options.get("n"):
            self.assertEqual(text, self.right)
        self.check_prediction(explained)
        return start, explained

    def check_prediction(self, explained):
        """What is said to be expected is what was predicted of the tokens that really ran, unless they ran in several ways."""
        each = explained["decode"]["predicted_ms"] / explained["decode"]["n_tokens"]
        if not explained["split"]:
            self.assertAlmostEqual(explained["placed_for"]["decode_ms"] / each, 1, delta=0.1)

    def test_without_a_profile_the_gpu_is_taken(self):
        text, start, explained = self.run_crumb()
        self.assertEqual((text, start["device"], start["placement"]), (self.right, "gpu0", ""))
        self.assertIn("--profile none", explained["why"])
        other = machine((10, 5, 100), (50, 25, 1000))
        del other["devices"][1]
        text, start, explained = self.run_crumb(profile=other)
        self.assertEqual((text, start["device"], explained["profile"]), (self.right, "gpu0", None))
        self.assertIn("no figures for gpu0", explained["why"])

    def test_the_faster_device_takes_all(self):
        start, explained = self.placed((10, 5, 100), (50, 25, 1000))
        self.assertEqual((start["device"], start["placement"]), ("gpu0", ""))
        self.assertIn("prefill on gpu0", explained["why"])
        self.assertEqual(explained["decode"]["n_tokens"], TOKENS - 1)
        start, explained = self.placed((50, 25, 1000), (10, 5, 100))
        self.assertEqual((start["device"], start["placement"]), ("cpu", ""))
        self.assertIn("predicted to be faster", start["why_cpu"])

    def test_prefill_here_decoding_there(self):
        start, explained = self.placed((50, 25, 10), (10, 5, 5000))
        self.assertEqual(start["placement"], "prefill gpu0; decode cpu")
        self.assertEqual(explained["moved_bytes"], 0)  # both devices see one cache
        devices = {(r["device"], r["phase"]) for r in explained["ratios"]}
        self.assertEqual(devices, {("gpu0", "prefill"), ("cpu", "decode")})
        self.assertEqual(self.placed((50, 25, 10), (10, 5, 5000), "--device", "gpu0")[0]["placement"], "")
        start, _ = self.placed((50, 25, 10), (10, 5, 5000), "--device", "cpu+gpu0")
        self.assertEqual(start["placement"], "prefill gpu0; decode cpu")

    def test_a_chat_is_placed_for_long_messages(self):
        """A short prompt is read as fast where tokens are decoded, which needs no GPU; a chat may have a long one."""
        profile, template = machine((50, 25, 200), (10, 5, 5000)), "{{ messages[0].content }}"
        for chat, placement in (([], ""), (["-st"], ""), (["-cnv"], "prefill gpu0; decode cpu")):
            chat += ["--chat-template", template] if chat else []
            _, start, _ = self.run_crumb("-p", "x", *chat, profile=profile, n=4)
            self.assertEqual(start["placement"], placement, chat)

    def test_a_message_is_read_where_its_length_is_read_fastest(self):
        """A chat's prompts are placed on the GPU and decoding on the CPU, by the lengths that are expected. What a message
        really has may be read the faster elsewhere, whether it has more rows than a handful or less. Both see one cache."""
        chat = ["-cnv", "--chat-template", "{% for m in messages %}{{ m.content }} {% endfor %}", "-c", "1024"]
        some, many = "One day a small dog " * 6, "One day a small dog " * 50
        weak, strong = (50, 25, 50), (50, 25, 2000)
        for cpu, first, on_gpu, on_cpu in ((weak, "Hi", True, False), (weak, some, True, False),
                                           (strong, some, False, True), (strong, many, True, True)):
            arguments = ["-p", first, *chat]
            right = self.run_crumb("--device", "cpu", *arguments, n=8, talk="Hi\nWho is she?\n")[0]
            text, start, explained = self.run_crumb(*arguments, profile=machine(cpu, (10, 5, 5000)), n=8,
                                                    talk="Hi\nWho is she?\n")
            read = explained["prompt_tokens_placed_as"]
            self.assertEqual((text, start["placement"]), (right, "prefill gpu0; decode cpu"))
            self.assertEqual((read["prefill"] > 0, read["decode"] > 0), (on_gpu, on_cpu), (cpu, len(first), read))
            self.assertEqual(explained["moved_bytes"], 0)

    def test_what_is_not_carried_out_is_not_explained(self):
        """A profile that calls a card integrated: prompts there and decoding on the CPU would take its memory's weights."""
        start, explained = self.placed((50, 25, 50), (10, 5, 5000), CRUMB_CLAIM="card")
        self.assertEqual((start["device"], start["placement"], explained["layers"]), ("gpu0", "", "gpu0"))
        self.assertEqual(explained["why"], "not 'prefill gpu0, decode cpu': gpu0 does not share the CPU's memory")
        carried_out = self.placed((50, 25, 50), (10, 5, 5000))[1]
        self.assertIn("decode on cpu: ", carried_out["why"])
        self.assertGreater(explained["placed_for"]["decode_ms"], 2 * carried_out["placed_for"]["decode_ms"])

    def test_a_small_gain_is_not_worth_it(self):
        start, _ = self.placed((51, 25, 1000), (50, 25, 1000))
        self.assertEqual(start["placement"], "")

    def test_memory_is_counted(self):
        profile = machine((10, 10, 100), (50, 50, 1000))
        small = copy.deepcopy(profile)
        small["devices"][1]["memory_gb"] = figure(0.05)  # less than what a device's plans take
        text, start, _ = self.run_crumb(profile=small)
        self.assertEqual((text, start["device"]), (self.right, "cpu"))
        self.assertEqual(self.run_crumb(profile=profile)[1]["device"], "gpu0")

    def test_both_at_once_with_a_part_that_is_learned(self):
        """It is predicted to pay, and may not: whether the part moves, and whether one device goes on alone, is up to the
        machine's speed (test_split has a clock of its own). The text is the same all the time."""
        changes = 0
        for cpu, gpu in (((20, 20, 50), (20, 20, 5000)), ((10, 10, 50), (40, 40, 5000)), ((21, 20, 50), (11, 10, 5000))):
            start, explained = self.placed(cpu, gpu)
            self.assertRegex(start["placement"], r"decode gpu0 and cpu, \d+ % and \d+ % of each layer to begin with")
            self.assertRegex(explained["split"], "split")
            changes += explained["split_changes"]
            longer, _, more = self.run_crumb(profile=machine(cpu, gpu), n=220)
            self.assertTrue(longer.startswith(self.right))
            changes += more["split_changes"]
        print(f"the part was changed {changes} times in six runs")

    def test_a_part_that_is_asked_for_stays(self):
        start, explained = self.placed((10, 10, 100), (50, 50, 1000), "--device", "cpu+gpu0", "--split", "0.3")
        self.assertIn("30 % and 70 %", start["placement"])
        self.assertEqual((explained["split_changes"], explained["split"]), (0, "split 0.30 of the rows, as asked for"))

    def test_a_card_shares_layers_where_that_pays_in_both_phases(self):
        profile = machine((20, 20, 5000), (20, 20, 5000))
        profile["devices"][1] |= {"kind": "discrete", "transfer_gb_s": figure(1000), "transfer_us": figure(0)}
        text, start, explained = self.run_crumb(profile=profile, CRUMB_CLAIM="card")
        self.assertEqual((text, start["placement"]), (self.right, "gpu0 and cpu, 50 % and 50 % of each layer"))
        self.assertEqual((explained["moved_bytes"], explained["split_changes"]), (0, 0))
        for phase in ("prefill", "decode"):
            self.assertGreater(explained[phase]["predicted_ms"], 0)
        profile["devices"][1]["exchange_us"] = figure(1000)
        text, start, explained = self.run_crumb(profile=profile, CRUMB_CLAIM="card")
        self.assertEqual((text, start["placement"]), (self.right, ""))
        # without a profile it is not tried, unless a part is asked for
        self.assertEqual(self.run_crumb("--device", "cpu+gpu0", CRUMB_CLAIM="card")[1]["placement"], "")
        text, start, explained = self.run_crumb("--device", "cpu+gpu0", "--split", "0.3", CRUMB_CLAIM="card")
        self.assertEqual((text, start["placement"]), (self.right, "gpu0 and cpu, 30 % and 70 % of each layer"))

    def test_deciding_takes_little(self):
        """With every layer on the other device than the one before: nobody would want more of it."""
        _, _, explained = self.run_crumb("--device", "gpu0", CRUMB_PLACE="gc")
        print(f"{explained['scheduling_us_per_token']:.2f} us a token for {explained['n_layers']} layers in turns")
        self.assertGreater(explained["scheduling_us_per_token"], 0)


if __name__ == "__main__":
    unittest.main()
