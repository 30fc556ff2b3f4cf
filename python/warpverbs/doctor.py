"""``python -m warpverbs.doctor``: says what Python finds, one line a fact, so that a failed import or first step has a reason.

It imports the standard library alone, and must run where the package does not load. What may break runs in a child process. It
does not look at the machine, its NICs and its GPUs: ``wv doctor`` does.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

#: This copy of the package, and the programs, libraries and headers that its wheel carries.
PACKAGE = Path(__file__).resolve().parent
PREFIX = PACKAGE / "_prefix"
REINSTALL = "install the wheel of warpverbs that ./x wheel makes"


class Fact(NamedTuple):
    """One line. ``state`` is ``ok``, ``note`` or ``FAIL``; ``do`` is empty where nothing is to be done."""

    state: str
    what: str
    value: str
    do: str = ""


def main() -> None:
    """Prints the facts. The status is 1 if one of them is a FAIL."""
    parser = argparse.ArgumentParser(prog="python -m warpverbs.doctor", description="Says what Python finds.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timeout", type=fraction, default=60, metavar="SECONDS", help="longest wait for a child [default: 60]")
    options = parser.parse_args()
    try:
        facts = examine(options.timeout)
        show(json.dumps({"facts": [fact._asdict() for fact in facts]}) if options.json else text(facts))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(any(fact.state == "FAIL" for fact in facts))


def fraction(written: str) -> float:
    """A decimal number without a sign, as the type of an option of ``argparse``."""
    if not re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?", written):
        raise argparse.ArgumentTypeError(f"{written!r} is not a decimal number as 2 or 0.5")
    return float(written)


def examine(seconds: float) -> list[Fact]:
    """All facts. No child process runs longer than ``seconds``."""
    checks: list[tuple[str, Callable[[], Iterator[Fact]]]] = [
        ("python", python),
        ("glibc", glibc),
        ("package", package),
        ("copies", copies),
        ("native module", partial(native, seconds)),
        ("files", files),
        ("wv --version", partial(wv, seconds)),
        ("torch", partial(torch, seconds)),
        ("numpy", numpy),
        ("deep_ep", deep_ep),
        ("libraries", partial(libraries, seconds)),
        ("variables", variables),
        ("rank", rank),
    ]
    return [fact for what, check in checks for fact in guarded(what, check)]


def guarded(what: str, check: Callable[[], Iterator[Fact]]) -> Iterator[Fact]:
    """The facts of one check; if it raises, the error is a fact."""
    try:
        yield from check()
    except Exception as error:  # an error of one check must not hide the other facts
        yield Fact("FAIL", what, f"{type(error).__name__}: {error}", "this is an error of the doctor itself; report it")


def text(facts: list[Fact]) -> str:
    width = max(len(fact.what) for fact in facts)
    lines = (f"{fact.state:4}  {fact.what:{width}}  {fact.value}{'; ' if fact.do else ''}{fact.do}" for fact in facts)
    # Errors of other libraries may have several lines.
    return "\n".join(" ".join(re.split(r"\s*\n\s*", line.strip())) for line in lines)


def show(output: str) -> None:
    try:
        # Any terminal and any name of a file.
        sys.stdout.buffer.write(output.encode(sys.stdout.encoding, "backslashreplace") + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python writes what is left once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def python() -> Iterator[Fact]:
    system, machine = platform.system(), platform.machine()
    value = f"{platform.python_version()}, {sys.executable}, {system} {machine}"
    wrong = unsupported(tuple(sys.version_info[:2]), system, machine)
    yield Fact("FAIL", "python", value, wrong) if wrong else Fact("ok", "python", value)


def unsupported(version: tuple[int, ...], system: str, machine: str) -> str:
    """What to do about such a Python, or nothing."""
    if version < (3, 10):
        return "use Python 3.10 or newer"
    return "" if (system, machine) == ("Linux", "x86_64") else "use Linux on x86_64; there is no other wheel"


def glibc() -> Iterator[Fact]:
    library, version = platform.libc_ver()
    own = own_distribution()
    tags = own.read_text("WHEEL") if own else None
    tag = re.search(r"manylinux_(\d+)_(\d+)_", tags or "")
    needed = ".".join(tag.groups()) if tag else "0"
    if library != "glibc":
        yield Fact("FAIL", "glibc", f"not found ({library or 'another C library'})", "use a Linux with glibc")
    elif numbers(version) < numbers(needed):
        yield Fact("FAIL", "glibc", version, f"the wheel needs {needed}: use a newer Linux, or make the wheel on this one")
    else:
        yield Fact("ok", "glibc", version)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def package() -> Iterator[Fact]:
    found = distribution()
    if found is None:
        yield Fact("note", "package", f"no version, {PACKAGE}", f"pip does not know this folder; {REINSTALL}")
    elif own_distribution() is None:
        other = found.locate_file("warpverbs")
        yield Fact("note", "package", f"no version, {PACKAGE}", f"pip knows warpverbs {found.version} in {other} alone: see copies")
    else:
        yield Fact("ok", "package", f"{found.version}, {PACKAGE}")


def distribution() -> metadata.Distribution | None:
    """Whatever pip knows as warpverbs."""
    try:
        return metadata.distribution("warpverbs")
    except metadata.PackageNotFoundError:
        return None


def own_distribution() -> metadata.Distribution | None:
    """The same, if it is this copy of the package."""
    found = distribution()
    folder = found and Path(str(found.locate_file("warpverbs")))
    # An editable install has no folder in site-packages.
    return None if folder and folder.exists() and folder.resolve() != PACKAGE else found


def version_differs(version: str) -> str:
    """What to do about a part of the package with this version, or nothing."""
    own = own_distribution()
    return f"the package is {own.version}, so two releases are mixed; {REINSTALL}" if own and own.version != version else ""


def copies() -> Iterator[Fact]:
    places = (Path(entry or ".") / "warpverbs" for entry in sys.path)
    found = list(dict.fromkeys(place.resolve() for place in places if (place / "__init__.py").is_file()))
    if len(found) > 1:
        do = "Python takes the first: uninstall the others, or take them off PYTHONPATH, or go to another folder"
        yield Fact("note", "copies", ", ".join(map(str, found)), do)
    else:
        yield Fact("ok", "copies", "one warpverbs on sys.path")


def native(seconds: float) -> Iterator[Fact]:
    """Whether the package imports, which takes its native module first."""
    try:
        version, path = ask("import warpverbs\nreturn warpverbs._native.__version__, warpverbs._native.__file__", seconds)
    except ChildError as error:
        there = any(PACKAGE.glob("_native*.so"))
        value = str(error) if there else f"{PACKAGE / '_native.abi3.so'} is missing ({error})"
        yield Fact("FAIL", "native module", value, REINSTALL)
        return
    wrong = version_differs(version)
    yield Fact("FAIL" if wrong else "ok", "native module", f"{version}, {path}", wrong)


def files() -> Iterator[Fact]:
    for name, use in (
        ("bin/wv", "python -m warpverbs.sim needs it"),
        ("lib/warpverbs/libsofthca.so", "python -m warpverbs.sim needs it"),
        ("include/warpverbs/abi.h", "kernels of your own need it"),
    ):
        path = PREFIX / name
        # wv is started, the others are read.
        mode = os.X_OK if name == "bin/wv" else os.R_OK
        if not path.is_file():
            yield Fact("FAIL", name, f"{path} is missing", f"{use}; {REINSTALL}")
        elif not os.access(path, mode):
            yield Fact("FAIL", name, f"{path} may not be {'run' if mode == os.X_OK else 'read'}", f"{use}; {REINSTALL}")
        else:
            yield Fact("ok", name, str(path))


def wv(seconds: float) -> Iterator[Fact]:
    try:
        said = run([str(PREFIX / "bin" / "wv"), "--version"], seconds).strip()
    except ChildError as error:
        yield Fact("FAIL", "wv --version", str(error), REINSTALL)
        return
    wrong = version_differs(said.rpartition(" ")[2])
    yield Fact("FAIL" if wrong else "ok", "wv --version", said, wrong)


#: The oldest that the package works with.
OLDEST_TORCH = (2, 5)

TORCH = """
import torch
cuda = getattr(torch, "cuda", None)
built = getattr(getattr(torch, "version", None), "cuda", None)
return str(torch.__version__), torch.__file__, built, bool(cuda and cuda.is_available())
"""


def torch(seconds: float) -> Iterator[Fact]:
    if importlib.util.find_spec("torch") is None:
        yield Fact("note", "torch", "not installed", "pip install torch: deep_ep, mooncake_ep and tensors that Moe makes need it")
        return
    try:
        version, path, built, available = ask(TORCH, seconds)
    except ChildError as error:
        yield Fact("FAIL", "torch", f"import torch: {error}", "repair torch; --timeout lets the import take longer")
        return
    do = "" if is_new(version) else f"install torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer"
    yield Fact("FAIL" if do else "ok", "torch", f"{version}, {path}", do)
    if not built:
        yield Fact("note", "torch CUDA", "built without CUDA", "tensors are on the CPU; for a GPU install a torch with CUDA")
    elif not available:
        do = "tensors are on the CPU; if there is a GPU, see nvidia-smi and CUDA_VISIBLE_DEVICES"
        yield Fact("note", "torch CUDA", f"built for {built}, which finds no GPU", do)
    else:
        yield Fact("ok", "torch CUDA", f"built for {built}, which finds a GPU")


def is_new(version: str) -> bool:
    """Whether a torch of this version is not too old; one that has no number is not judged."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= OLDEST_TORCH


def numpy() -> Iterator[Fact]:
    if importlib.util.find_spec("numpy") is None:
        yield Fact("note", "numpy", "not installed", "only programs that pass numpy's arrays need it")
        return
    try:
        yield Fact("ok", "numpy", metadata.version("numpy"))
    except metadata.PackageNotFoundError:
        yield Fact("note", "numpy", "no version", "pip does not know this numpy; install it again if it does not import")


def deep_ep() -> Iterator[Fact]:
    """The package whose module ``import deep_ep`` would import."""
    spec = importlib.util.find_spec("deep_ep")
    if spec is None:
        do = "engines find it after warpverbs.deep_ep.install(), or where warpverbs-as-deep-ep is installed"
        yield Fact("note", "deep_ep", "no module of this name", do)
        return
    place = spec.origin or ", ".join(spec.submodule_search_locations or [])
    owner = owner_of("deep_ep", place)
    value = f"{owner or 'of no package that pip knows'}, {place}"
    if owner.partition(" ")[0] != "warpverbs-as-deep-ep":
        do = "engines get this one: uninstall it and install warpverbs-as-deep-ep, or call warpverbs.deep_ep.install() first"
        yield Fact("note", "deep_ep", value, do)
    elif importlib.util.find_spec("deep_ep_cpp") is not None:
        yield Fact("FAIL", "deep_ep", f"{value}, beside the deep_ep_cpp of a real DeepEP", "uninstall one of them")
    else:
        yield Fact("ok", "deep_ep", value)


def owner_of(module: str, place: str) -> str:
    """Name and version of the distribution that has installed the module, or nothing."""
    for found in metadata.distributions():
        own = (file for file in found.files or () if file.parts[0] == module)
        if any(str(Path(str(found.locate_file(file))).resolve()) == str(Path(place).resolve()) for file in own):
            return f"{found.metadata['Name']} {found.version}"
    return ""


LIBRARY = """
import ctypes
ctypes.CDLL({name!r})
with open("/proc/self/maps") as maps:
    return next((line.split(maxsplit=5)[5].strip() for line in maps if {stem!r} in line), "loaded")
"""


def libraries(seconds: float) -> Iterator[Fact]:
    """What the native module opens when a team is made."""
    no_team = "without it there is no Team, with python -m warpverbs.sim neither: apt-get install"
    for name, state, do in (
        ("libibverbs.so.1", "FAIL", f"{no_team} libibverbs1"),
        ("libmlx5.so.1", "FAIL", f"{no_team} ibverbs-providers"),
        ("libcuda.so.1", "note", "kernels run on the CPU; for a GPU install NVIDIA's driver, which brings it"),
    ):
        try:
            yield Fact("ok", name, ask(LIBRARY.format(name=name, stem=name[:-1]), seconds))
        except ChildError as error:
            yield Fact(state, name, str(error), do)


#: Rank and number of ranks as launchers tell them. The first pair that is set counts (`LAUNCHERS` in src/config.rs).
LAUNCHERS = (
    ("WARPVERBS_RANK", "WARPVERBS_RANKS"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def variables() -> Iterator[Fact]:
    names = {name for pair in LAUNCHERS for name in pair}
    found = sorted(name for name in os.environ if name in names or name.startswith("WARPVERBS_"))
    for name in found:
        # The user and the password of an etcd are in its URL.
        yield Fact("ok", name, re.sub(r"://.*@", "://..@", os.environ[name], flags=re.DOTALL))
    if not found:
        yield Fact("ok", "variables", "no WARPVERBS_* is set, and none of a launcher")


def rank() -> Iterator[Fact]:
    for number, ranks in LAUNCHERS:
        if number in os.environ and ranks in os.environ:
            yield Fact("ok", "rank", f"{os.environ[number]} of {os.environ[ranks]}, by {number} and {ranks}")
            return
    half = [name for pair in LAUNCHERS for name in pair if name in os.environ]
    value = f"{', '.join(half)} without its other half" if half else "no launcher has told one"
    yield Fact("note", "rank", value, "give rank and ranks to Team(..), or start with torchrun, mpirun or srun")


class ChildError(Exception):
    """A child process did not do what it was asked for. The text says why."""


#: A child that answers with what ``found`` returns. It leaves at once, since threads of a broken library may never end.
CHILD = """
import json, os, sys
sys.path[:] = {path!r}
def found():
{body}
try:
    answer = dict(found=found())
except BaseException as error:
    answer = dict(error=type(error).__name__ + ": " + str(error))
print("\\n" + json.dumps(answer), flush=True)
os._exit(0)
"""


def ask(body: str, seconds: float) -> Any:
    """What the body of a function returns, in a Python that looks for modules where this one does."""
    program = CHILD.format(path=[str(entry) for entry in sys.path], body=textwrap.indent(body, "    "))
    said = run([sys.executable, "-c", program], seconds).strip()
    # A module may print before.
    answer = json.loads(said.rpartition("\n")[2] or '{"error": "it ended without a word"}')
    if "error" in answer:
        raise ChildError(answer["error"])
    return answer["found"]


def run(command: list[str], seconds: float) -> str:
    """What the command prints. It is killed after ``seconds``, with all that it has started."""
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise ChildError(str(error)) from None
    with child:
        try:
            out, err = (stream.decode(errors="replace") for stream in child.communicate(timeout=seconds))
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise ChildError(f"no end within {seconds:g} seconds") from None
            raise
    if child.returncode == 0:
        return out
    how = f"ended by {signal.Signals(-child.returncode).name}" if child.returncode < 0 else f"ended with status {child.returncode}"
    last = err.strip().rpartition("\n")[2]
    raise ChildError(f"{how}: {last}" if last else how)


if __name__ == "__main__":
    main()
