"""What nvcc's tools say of a compiled kernel: its instructions, its out-of-line functions, its registers.

A cubin is read by `cuobjdump -sass` (instructions) and `-res-usage` (registers, stack). The ELF symbol table says where a `__noinline__`
function begins and ends inside a kernel's section.
"""

import re
import struct
import subprocess
from dataclasses import dataclass, field

LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


class Illegal(Exception):
    """The disassembler met bytes that are no instruction."""


@dataclass
class Instruction:
    """One SASS instruction: `@!P0 ATOMG.E.ADD PT, R4, [R2], R6`."""

    address: int
    guard: str  # "@!P0" or ""
    opcode: str  # "ATOMG.E.ADD"
    operands: list

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def modifiers(self):
        return self.opcode.split(".")[1:]

    def __str__(self):
        return " ".join(filter(None, [self.guard, self.opcode, ", ".join(self.operands)]))


@dataclass
class Kernel:
    """One entry function of a cubin. `functions`: name -> (first address, one past the last) of what is out of line."""

    name: str
    code: list
    functions: dict = field(default_factory=dict)
    registers: int = 0
    stack: int = 0
    local: int = 0

    def function_at(self, address):
        """The out-of-line function that holds `address`; None: the kernel's own body."""
        for name, (start, end) in self.functions.items():
            if start <= address < end:
                return name
        return None


def parse_instruction(address, text):
    guard = ""
    if text.startswith("@"):
        guard, text = text.split(None, 1)
    opcode, _, rest = text.partition(" ")
    operands = [o.strip() for o in rest.split(",")] if rest.strip() else []
    return Instruction(address, guard, opcode, operands)


def parse_sass(text):
    """Kernel name -> instructions, without NOPs and without the jump to itself that ends a function."""
    found, code = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            code = found.setdefault(match.group(1), [])
        elif (match := LINE.match(line)) and code is not None:
            instruction = parse_instruction(int(match.group(1), 16), match.group(2))
            to_itself = instruction.base == "BRA" and instruction.operands == [hex(instruction.address)]
            if instruction.base != "NOP" and not to_itself:
                code.append(instruction)
    return found


def parse_functions(elf):
    """Kernel name -> {function: (start, end)}: local functions in a section `.text.kernel` of a 64-bit ELF file."""
    offset, size, count = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]
    names = sections[struct.unpack_from("<H", elf, 0x3E)[0]][4]

    def string(at):
        return elf[at : elf.index(b"\0", at)].decode()

    found = {}
    for kind, at, length, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:  # SHT_SYMTAB
            continue
        for symbol in range(at, at + length, 24):
            name, info, _, section, value, extent = struct.unpack_from("<IBBHQQ", elf, symbol)
            text = string(sections[link][4] + name)
            if info & 0xF == 2 and text.startswith("$"):  # STT_FUNC, out of line
                kernel = string(names + sections[section][0]).removeprefix(".text.")
                found.setdefault(kernel, {})[text.removeprefix(f"${kernel}$")] = (value, value + extent)
    return found


def run_both(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "llegal instruction" in done.stdout + done.stderr:
        raise Illegal(" ".join(map(str, command)))
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def run(*command):
    """Standard output of a command that succeeds."""
    return run_both(command)[0]


def run_all(*command):
    """The same with what it says on standard error, where ptxas reports."""
    return "".join(run_both(command))


def read_cubin(cuobjdump, path):
    """All kernels of a cubin, by name. Raises Illegal with the names of the kernels that hold such bytes."""
    usage = {m[0]: m[1:] for m in USAGE.findall(re.sub(r":\n\s*", ": ", run(cuobjdump, "-res-usage", path)))}
    try:
        sass = parse_sass(run(cuobjdump, "-sass", path))
    except Illegal:
        raise Illegal(", ".join(filter(lambda name: is_illegal(cuobjdump, path, name), sorted(usage)))) from None
    with open(path, "rb") as file:
        functions = parse_functions(file.read())
    kernels = {}
    for name, code in sass.items():
        registers, stack, _, local = map(int, usage[name])
        kernels[name] = Kernel(name, code, functions.get(name, {}), registers, stack, local)
    return kernels


def is_illegal(cuobjdump, path, name):
    try:
        run(cuobjdump, "-sass", "-fun", name, path)
    except Illegal:
        return True
    return False
