"""crumb quantize that is ended early: killed, without room, without permission. Nothing is lost, and the next run goes on."""
import fcntl
import json
import os
import resource
import shutil
import signal
import time
import unittest

from command import MODEL, crumb, start
from quantizing import SMALL, QuantizeTest, read_safetensors


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Ended(QuantizeTest):
    def test_killed_at_any_point(self):
        """No final file before it is whole; the next run finishes it, and it is what one run makes."""
        self.succeeds("quantize", MODEL, self.out, "Q4_1")
        whole = read(self.out)
        for delay in (0, 0.002, 0.01, 0.02, 0.04):
            os.unlink(self.out)
            running = start("quantize", MODEL, self.out, "Q4_1", "-t", "1")
            time.sleep(delay)  # wherever this meets it, what follows must hold
            running.send_signal(signal.SIGKILL)
            running.communicate()
            if os.path.exists(self.out):
                self.assertEqual(read(self.out), whole)
            self.succeeds("quantize", MODEL, self.out, "Q4_1")
            self.assertEqual(read(self.out), whole)
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])

    def test_folders_are_taken_up(self):
        """Wherever a run was killed: no config.json before all is there, and the next one ends with the same bytes."""
        self.kill_and_go_on((0, 0.002, 0.005, 0.01))

    def test_gptq_method_is_taken_up(self):
        self.kill_and_go_on((0, 0.01, 0.02, 0.04, 0.06), "--method", "gptq", "--calibration", self.text())

    def kill_and_go_on(self, delays, *options):
        whole, out = os.path.join(self.folder, "whole"), os.path.join(self.folder, "out")
        self.succeeds("quantize", SMALL, whole, "GPTQ4", "--group-size", 32, *options)
        data = read(os.path.join(whole, "model.safetensors"))
        for delay in delays:
            running = start("quantize", SMALL, out, "GPTQ4", "--group-size", "32", *options)
            time.sleep(delay)
            running.send_signal(signal.SIGKILL)
            running.communicate()
            if not os.path.exists(os.path.join(out, "config.json")):
                self.succeeds("quantize", SMALL, out, "GPTQ4", "--group-size", 32, *options)
            self.assertEqual(read(os.path.join(out, "model.safetensors")), data)
            self.assertFalse([name for name in os.listdir(out) if "partial" in name])
            shutil.rmtree(out)

    def runs_out_of_room(self, n_bytes, *arguments):
        """No file may become larger, as where a disk is full: told so, and what is done stays."""
        self.fails(1, "quantize", *arguments, says="partial: File too large",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes)))

    def test_no_room_for_a_file(self):
        arguments = (MODEL, self.out, "Q4_1")
        self.succeeds("quantize", *arguments)
        whole = read(self.out)
        os.unlink(self.out)
        for part in (0.5, 0.8):  # the vocabulary takes the first third
            self.runs_out_of_room(int(part * len(whole)), *arguments)
            self.assertEqual(sorted(os.listdir(self.folder)), ["out.gguf.partial", "out.gguf.partial.done"])
        done = json.loads(self.succeeds("quantize", *arguments, "--json").stdout)
        self.assertGreater(done["n_tensors_taken_up"], done["n_tensors"] / 3)
        self.assertEqual(read(self.out), whole)

    def test_no_room_for_a_folder(self):
        for options in ((), ("--method", "gptq", "--calibration", self.text())):
            whole, out = os.path.join(self.folder, "whole"), os.path.join(self.folder, "out")
            self.succeeds("quantize", SMALL, whole, "GPTQ4", "--group-size", 32, *options)
            data = read(os.path.join(whole, "model.safetensors"))
            self.runs_out_of_room(int(0.9 * len(data)), SMALL, out, "GPTQ4", "--group-size", 32, *options)
            self.assertFalse(os.path.exists(os.path.join(out, "config.json")))
            done = json.loads(self.succeeds("quantize", SMALL, out, "GPTQ4", "--group-size", 32, *options, "--json").stdout)
            self.assertGreater(done["n_matrices_taken_up"], 0)
            self.assertEqual(read(os.path.join(out, "model.safetensors")), data)
            self.assertEqual(sorted(os.listdir(out)), sorted(os.listdir(whole)))
            shutil.rmtree(whole)
            shutil.rmtree(out)

    def test_a_small_file_that_fails_loses_no_weights(self):
        out = os.path.join(self.folder, "out")
        os.makedirs(os.path.join(out, "tokenizer.json.partial"))
        self.fails(1, "quantize", SMALL, out, "GPTQ4", "--group-size", 32, says="tokenizer.json.partial: Is a directory")
        self.assertFalse(os.path.exists(os.path.join(out, "model.safetensors")))
        os.rmdir(os.path.join(out, "tokenizer.json.partial"))
        done = json.loads(self.succeeds("quantize", SMALL, out, "GPTQ4", "--group-size", 32, "--json").stdout)
        packed = [name for name in read_safetensors(os.path.join(out, "model.safetensors")) if name.endswith(".qweight")]
        self.assertEqual(done["n_matrices_taken_up"], len(packed))

    def test_folders_that_cannot_be_written(self):
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        as_other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            crumb("--version", **as_other)
        except PermissionError:
            self.skipTest("the build folder is for root only")
        self.fails(1, "quantize", MODEL, self.out, "Q4_1", says="out.gguf.partial: Permission denied", **as_other)
        self.fails(1, "quantize", SMALL, self.out, "GPTQ4", says="cannot make the folder: Permission denied", **as_other)
        self.fails(1, "quantize", MODEL, "/nonexistent/out.gguf", "Q4_1", says="/nonexistent/out.gguf.partial: No such file")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_model_is_not_written_over(self):
        """By whatever name."""
        model, folder = os.path.join(self.folder, "model.gguf"), os.path.join(self.folder, "folder")
        shutil.copy(MODEL, model)
        shutil.copytree(SMALL, folder)
        os.symlink(model, os.path.join(self.folder, "link"))
        os.link(model, os.path.join(self.folder, "second"))
        for source, out in ((model, model), (model, os.path.join(self.folder, "link")),
                            (model, os.path.join(self.folder, "second")), (os.path.join(self.folder, "link"), model),
                            (folder, os.path.join(folder, "model.safetensors"))):
            self.fails(2, "quantize", source, out, "Q4_0", says="is a file of the model that is read")
            self.fails(2, "convert", source, out, says="is a file of the model that is read")
        self.fails(2, "quantize", folder, folder, "GPTQ4", says="is there already")
        self.assertEqual(read(model), read(MODEL))
        self.assertEqual(sorted(os.listdir(folder)), sorted(os.listdir(SMALL)))

    def test_work_of_another_process_is_left_alone(self):
        with open(self.out + ".partial", "wb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            done = crumb("quantize", MODEL, self.out, "Q4_1")
            self.assertEqual(done.returncode, 1)
            self.assertIn("another process is writing it", done.stderr)


if __name__ == "__main__":
    unittest.main()
