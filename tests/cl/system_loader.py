"""An OpenCL loader that knows layers: the system's, where it is new enough, in the place of a runtime's own."""
import os
import subprocess
import sys
from pathlib import Path


def system_loader(what):
    """Its path; ends the test with 77 and says that `what` was not checked where there is none."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        path = Path(line.partition("=>")[2].strip())
        if line.strip().startswith("libOpenCL.so.1 ") and b"OPENCL_LAYERS" in path.read_bytes():
            return path
    print(f"the system has no OpenCL loader with layers: {what} was not checked", file=sys.stderr)
    sys.exit(77)


def under_layer(folder, layer, what, **settings):
    """The environment in which a real driver is under that layer, through the system's loader in the folder, which becomes the
    cache's as well. `what` is checked so."""
    Path(folder, "libOpenCL.so.1").symlink_to(system_loader(what))
    return {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}", "OPENCL_LAYERS": layer,
            "XDG_CACHE_HOME": str(Path(folder, "cache")), **settings}
