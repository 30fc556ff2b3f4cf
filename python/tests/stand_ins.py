"""Stand-ins for the CUDA libraries that torch's wheel links, so that its CPU half can be tested without 4 GB of them.

``python stand_ins.py DIRECTORY`` looks at the libraries of this Python's torch. In DIRECTORY it makes each library that they need and
that neither torch nor the system has. Each function in it says its name and aborts: a test that comes to one has left the CPU. They serve
the tests' own environment and are never shipped.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def text_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> list[str]:
    """The libraries that this one names as needed."""
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", text_of("readelf", "-dW", str(library)))


def symbols(library: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """The names that a library defines, and those that it needs, each with its version or an empty text."""
    defined: set[str] = set()
    undefined: set[tuple[str, str]] = set()
    for line in text_of("readelf", "--dyn-syms", "-W", str(library)).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":"):
            continue
        binding, where, name = fields[4], fields[6], fields[7]
        plain, _, version = name.partition("@")
        if where != "UND":
            defined.add(plain)
        elif binding != "LOCAL":
            undefined.add((plain, version.lstrip("@")))
    return defined, undefined


def owners(library: Path) -> dict[str, str]:
    """Which library has which version node, as this one needs them."""
    found, of = {}, ""
    for line in text_of("readelf", "-VW", str(library)).splitlines():
        if match := re.search(r"File: (\S+)", line):
            of = match[1]
        elif (match := re.search(r"Name: (\S+)", line)) and of:
            found[match[1]] = of
    return found


def on_the_system() -> set[str]:
    return set(re.findall(r"^\s+(\S+) \(", text_of("/sbin/ldconfig", "-p"), re.MULTILINE))


def make(directory: Path, name: str, versions: dict[str, set[str]]) -> None:
    """One library of that name, with these functions by version."""
    functions = sorted(set().union(*versions.values()))
    source, script = directory / f"{name}.c", directory / f"{name}.map"
    body = "".join(f'void {each}(void) {{ leave("{each}"); }}\n' for each in functions)
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "static void leave(const char *name) {\n"
        f'    fprintf(stderr, "stand-in of {name}: %s was called; these tests have no CUDA\\n", name);\n'
        "    abort();\n}\n" + body
    )
    nodes = [
        f"{version} {{ global: {' '.join(each + ';' for each in sorted(names))} }};"
        for version, names in sorted(versions.items())
        if version and names
    ]
    script.write_text("\n".join(nodes) + "\n")
    command = ["cc", "-shared", "-fPIC", "-O0", "-w", "-fno-builtin", f"-Wl,-soname,{name}", "-o", str(directory / name)]
    if nodes:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, str(source)], check=True)


def main(directory: Path) -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("stand_ins: this Python has no torch")
    torch = Path(spec.origin).parent / "lib"
    libraries = sorted(path for path in torch.glob("*.so*") if path.is_file())
    site = torch.parent.parent
    wheels = {path.name for path in site.glob("nvidia/**/*.so*")}
    present = {path.name for path in libraries} | wheels | on_the_system()
    missing: set[str] = set()
    version_of: dict[str, str] = {}
    defined: set[str] = set()
    undefined: set[tuple[str, str]] = set()
    for library in libraries:
        missing.update(name for name in needed(library) if name not in present)
        version_of.update(owners(library))
        has, lacks = symbols(library)
        defined |= has
        undefined |= lacks
    wanted: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    rest: set[str] = set()
    for name, version in undefined:
        if version:
            owner = version_of.get(version, "")
            if owner in wanted:
                wanted[owner][version].add(name)
        elif name not in defined and re.match(r"(cu|nccl|nvshmem|nv|_ZN\d*nv)", name):
            rest.add(name)
    directory.mkdir(parents=True, exist_ok=True)
    for name in sorted(missing):
        # A name without a version may be looked for in any of the libraries without versions.
        make(directory, name, dict(wanted[name]) or {"": rest})
    print(f"stand-ins for {len(missing)} libraries in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
