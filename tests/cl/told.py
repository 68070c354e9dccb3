"""What `crumb run` says of a model, for tests that compare devices by it."""
import os
import subprocess


def tell(model, *arguments):
    """The ended command: twelve tokens, the likeliest each, with nothing that was measured on this machine."""
    done = subprocess.run([os.environ["CRUMB_COMMAND"], "run", "-m", model, "-n", "12", "--temp", "0", "-p",
                           "Once upon a time there was", "--tuning", "none", "--profile", "none", *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done
