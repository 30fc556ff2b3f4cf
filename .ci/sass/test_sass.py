"""Tests of the counting on saved SASS with planted violations: `python3 -m unittest discover -s .ci/sass`."""

import os
import stat
import tempfile
import tomllib
import unittest
from pathlib import Path

import converge
import loads
import measure
import report
import resources
from count import Counts
from flow import results, sources
from listing import Illegal, Kernel, parse_functions, parse_instruction, parse_sass, read_cubin
from report import facts, judge, table, verdicts
from walk import NoWalk, shortest

HERE = Path(__file__).resolve().parent
PLANTED = parse_sass((HERE / "planted/planted.90.sass").read_text())
USUAL = dict.fromkeys(measure.CHOSEN, 0) | {"result": 1}


def counted(name, **functions):
    return Counts(Kernel(name, PLANTED[name], functions, 20), 90)


def walk(name, **wanted):
    return shortest(counted(name), USUAL | wanted)[0]


def from_lines(*lines):
    """A kernel of these instructions, 16 bytes apart."""
    code = [parse_instruction(16 * n, line) for n, line in enumerate(lines)]
    return Counts(Kernel("lines", code), 90)


class Parsing(unittest.TestCase):
    def test_an_instruction_has_guard_opcode_and_operands(self):
        i = parse_instruction(16, "@!P0 ATOMG.E.ADD.64.STRONG.GPU PT, R4, desc[UR6][R2.64+0x18], R4")
        self.assertEqual((i.guard, i.base, i.modifiers[0], len(i.operands)), ("@!P0", "ATOMG", "E", 4))
        self.assertEqual(parse_instruction(0, "ERRBAR").operands, [])

    def test_padding_is_not_counted(self):
        text = "\tFunction : f\n /*0000*/ EXIT ;\n /*0010*/ BRA 0x10;\n /*0020*/ NOP;\n"
        self.assertEqual([i.opcode for i in parse_sass(text)["f"]], ["EXIT"])

    def test_results_and_sources_of_an_instruction_are_told_apart(self):
        carry = parse_instruction(0, "IADD3 R0, P1, R20.reuse, 0x1, RZ")
        self.assertEqual(results(carry), (["R0"], ["P1"], 2))
        self.assertEqual(sources(carry), (["R20"], []))
        compare = parse_instruction(0, "ISETP.GT.U32.AND.EX P0, PT, R20, R13, PT, P0")
        self.assertEqual(results(compare)[:2], ([], ["P0", "PT"]))
        self.assertEqual(sources(compare), (["R20", "R13"], ["P0"]))
        self.assertEqual(results(parse_instruction(0, "LDG.E.128.CONSTANT R8, desc[UR4][R2.64]"))[0], ["R8", "R9", "R10", "R11"])
        self.assertEqual(results(parse_instruction(0, "STG.E.128 desc[UR4][R2.64], R8"))[0], [])
        self.assertEqual(results(parse_instruction(0, "IMAD.WIDE.U32 R2, R14, UR7, RZ"))[0], ["R2", "R3"])


class Rules(unittest.TestCase):
    def violations(self, name):
        return counted(name).violations()

    def test_a_clean_kernel_breaks_no_rule(self):
        self.assertEqual(self.violations("clean"), [])
        self.assertEqual(self.violations("invalidation"), [])

    def test_a_wqe_store_of_four_bytes_is_reported(self):
        (found,) = self.violations("narrow_wqe_store")
        self.assertIn("not 16 bytes wide: ST.E.STRONG.SYS", found)

    def test_a_generic_atomic_is_reported(self):
        self.assertTrue(all("generic atomic" in v for v in self.violations("generic_atomic")))
        self.assertTrue(self.violations("generic_atomic"))

    def test_a_non_coherent_load_of_window_memory_is_reported(self):
        (found,) = self.violations("non_coherent_load")
        self.assertIn("non-coherent load of window memory: LDG.E.64.CONSTANT", found)

    def test_local_memory_is_reported(self):
        self.assertIn("local memory: LDL.64 R2, [R2]", self.violations("stack"))

    def test_a_possible_ring_address_is_followed_past_the_join_of_two_paths(self):
        kernel = from_lines(
            "LDC.64 R2, c[0x0][0x218]",
            "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]",
            "ISETP.NE.AND P0, PT, R9, RZ, PT",
            "@P0 BRA 0x50",
            "CS2R R4, SRZ",
            "IADD3 R4, P1, R4, R10, RZ",
            "STG.E.64 desc[UR4][R4.64+0x8], R12",
            "STG.E.64 desc[UR4][R6.64], R12",  # the flags, not the ring
            "EXIT",
        )
        self.assertEqual(kernel.violations(), ["WQE store that is not 16 bytes wide: STG.E.64 desc[UR4][R4.64+0x8], R12"])

    def test_what_one_caller_keeps_in_a_register_is_of_no_concern_to_another(self):
        lines = [
            "LDC.64 R2, c[0x0][0x218]",
            "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]",
            "MOV R0, 0x40",
            "CALL.REL.NOINC 0xa0",
            "MOV R4, R8",
            "MOV R0, 0x70",
            "CALL.REL.NOINC 0xa0",
            "STG.E.64.STRONG.GPU desc[UR4][R4.64+0x8], R6",  # not the ring any more
            "EXIT",
            "EXIT",
            "IADD3 R10, R10, 0x1, RZ",  # 0xa0: the function
            "RET.REL.NODEC R0 0x0",
        ]
        code = [parse_instruction(16 * n, line) for n, line in enumerate(lines)]
        called = Kernel("called", code, {"function": (0xA0, 0xC0)})
        self.assertEqual(Counts(called, 90).violations(), [])
        code[4] = parse_instruction(0x40, "NOP2")
        self.assertEqual(len(Counts(called, 90).violations()), 1)

    def test_an_illegal_opcode_is_named_with_its_kernel(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = Path(folder, "cuobjdump")
            fake.write_text(
                '#!/bin/sh\ncase "$*" in\n*-res-usage*) printf " Function good:\\n  REG:8 STACK:0 SHARED:0 LOCAL:0\\n'
                ' Function bad:\\n  REG:8 STACK:0 SHARED:0 LOCAL:0\\n" ;;\n*good*) echo "Function : good" ;;\n'
                '*) echo "nvdisasm error   : Illegal instruction found"; exit 1 ;;\nesac\n'
            )
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            with self.assertRaisesRegex(Illegal, "^bad$"):
                read_cubin(fake, os.devnull)


# A post by one thread: claim, index, WQE, look at the flag word. {claim} and {index} are instructions after each of the two.
POST = """LDC.64 R2, c[0x0][0x218]
LDG.E.128.CONSTANT R4, desc[UR4][R2.64]
BSSY B0, 0x110
BSSY B2, 0x80
ATOMG.E.ADD.64.STRONG.GPU PT, R8, desc[UR10][R2.64+0x80], R6
ISETP.NE.AND P0, PT, R8, RZ, PT
@P0 BRA 0xf0
{claim}
ATOMG.E.ADD.64.STRONG.GPU PT, R8, desc[UR10][R2.64+0x88], R6
BSSY B1, 0xc0
{index}
BSYNC B1
STG.E.128 desc[UR4][R4.64], R12
LDG.E.64.STRONG.GPU R10, desc[UR10][R16.64]
BRA 0x100
REDG.E.ADD.64.STRONG.GPU desc[UR10][R2.64+0x80], R18
BSYNC B0
EXIT"""


class Convergence(unittest.TestCase):
    def found(self, claim="NANOSLEEP 0x20", index="NANOSLEEP 0x20"):
        return converge.violations(from_lines(*POST.format(claim=claim, index=index).splitlines()))

    def test_lanes_that_meet_behind_a_post_or_with_indices_break_no_rule(self):
        self.assertEqual(self.found(), [])

    def test_lanes_that_meet_with_their_claims_are_reported(self):
        for meets in ("BSYNC B2", "BSYNC.RECONVERGENT B2", "WARPSYNC.ALL", "BAR.SYNC 0x0"):
            (found,) = self.found(claim=meets)
            self.assertEqual(found, f"lanes wait for each other with claims on ring space: 0x70 {meets}")
        for meets in ("WARPSYNC.ALL", "BAR.SYNC 0x0"):
            (found,) = self.found(index=meets)
            self.assertIn(f"0xa0 {meets}", found)

    def test_a_kernel_without_a_claim_is_reported(self):
        (found,) = converge.violations(counted("clean"))
        self.assertIn("looks at nothing", found)

    def test_only_single_threads_on_shared_qps_are_judged(self):
        self.assertTrue(report.posts_alone("put_thread_shared") and report.posts_alone("put_thread_cta"))
        for name in ("put_warp_shared", "put_thread_exclusive", "wait_ticket_thread_shared"):
            self.assertFalse(report.posts_alone(name), name)


class Counting(unittest.TestCase):
    def test_fences_are_told_apart_by_scope(self):
        total = counted("clean").total
        self.assertEqual((total["fence_gpu"], total["fence_sys"], total["fence_sc"], total["invalidate"]), (1, 1, 1, 1))
        self.assertEqual((total["wqe"], total["mmio"], total["atomic"], total["result"]), (3, 1, 2, 1))
        self.assertEqual(from_lines("MEMBAR.ALL.CTA", "EXIT").total["fence_cta"], 1)

    def test_what_is_out_of_line_is_counted_apart(self):
        both = counted("out_of_line", slow=(0x140, 0x380))
        self.assertEqual((both.total["atomic"], both.cold["atomic"]), (0, 2))
        self.assertEqual(both.total["instructions"] + both.cold["instructions"], len(PLANTED["out_of_line"]))

    def test_a_mailbox_is_not_an_atomic(self):
        total = from_lines("REDG.E.MAX.64.STRONG.SYS desc[UR4][R2.64], R4", "EXIT").total
        self.assertEqual((total["mailbox"], total["atomic"]), (1, 0))


class Walks(unittest.TestCase):
    def test_the_walk_takes_the_short_way_and_counts_what_lies_on_it(self):
        short = walk("clean", atomic=1, wqe=2, mmio=1)
        self.assertEqual((short["fence_gpu"], short["fence_sys"], short["invalidate"]), (1, 0, 0))
        long = walk("clean", atomic=2, wqe=3, mmio=1)
        self.assertEqual((long["fence_gpu"], long["fence_sys"], long["invalidate"]), (1, 1, 1))
        self.assertGreater(long["instructions"], short["instructions"])

    def test_a_walk_that_nothing_does_is_not_found(self):
        with self.assertRaisesRegex(NoWalk, "2 mmio"):
            walk("clean", atomic=1, wqe=2, mmio=2)

    def test_a_call_is_followed_and_returns_to_where_it_came_from(self):
        kernel = counted("out_of_line", slow=(0x140, 0x380))
        self.assertEqual(shortest(kernel, USUAL)[0]["call"], 0)
        self.assertEqual(shortest(kernel, USUAL | {"atomic": 1})[0]["call"], 1)

    def test_a_shortcut_that_its_own_branch_forbids_is_not_taken(self):
        # R0 is 6 where the atomic is jumped over; then the store is jumped over too.
        lines = [
            "LDC.64 R2, c[0x0][0x220]",
            "IMAD.MOV.U32 R0, RZ, RZ, 0x6",
            "@P1 BRA 0x60",
            "ATOMG.E.ADD.64.STRONG.GPU PT, R4, desc[UR6][R8.64], R6",
            "NANOSLEEP 0x20",
            "IMAD.MOV.U32 R0, RZ, RZ, RZ",
            "ISETP.NE.AND P0, PT, R0, RZ, PT",
            "@P0 EXIT",
            "STG.E.64.STRONG.GPU desc[UR4][R2.64], R4",
            "EXIT",
        ]
        with self.assertRaises(NoWalk):
            shortest(from_lines(*lines), USUAL)
        self.assertEqual(shortest(from_lines(*lines), USUAL | {"atomic": 1})[0]["instructions"], 10)
        lines[7] = "NANOSLEEP 0x20"
        self.assertEqual(shortest(from_lines(*lines), USUAL)[0]["instructions"], 7)

    def test_a_branch_decides_a_loaded_value_until_it_is_loaded_again(self):
        lines = [
            "LDC.64 R2, c[0x0][0x220]",
            "LDG.E.STRONG.GPU R5, desc[UR4][R6.64]",
            "ISETP.NE.AND P0, PT, R5, RZ, PT",
            "@P0 BRA 0x60",
            "MEMBAR.ALL.GPU",
            "MEMBAR.ALL.GPU",
            "NANOSLEEP 0x20",
            "ISETP.NE.AND P1, PT, R5, RZ, PT",
            "@P1 EXIT",
            "STG.E.64.STRONG.GPU desc[UR4][R2.64], R4",
            "EXIT",
        ]
        self.assertEqual(shortest(from_lines(*lines), USUAL)[0]["fence_gpu"], 2)
        lines[6] = "LDG.E.STRONG.GPU R5, desc[UR4][R6.64]"
        self.assertEqual(shortest(from_lines(*lines), USUAL)[0]["fence_gpu"], 0)

    def test_the_walk_of_a_leader_stays_the_leaders(self):
        lines = [
            "LDC.64 R2, c[0x0][0x220]",
            "S2R R0, SR_TID.X",
            "LOP3.LUT P0, RZ, R0, 0x1f, RZ, 0xc0, !PT",
            "@P0 BRA 0x50",
            "MEMBAR.ALL.GPU",
            "NANOSLEEP 0x20",
            "S2R R7, SR_TID.X",
            "LOP3.LUT P1, RZ, R7, 0x1f, RZ, 0xc0, !PT",
            "@!P1 ATOMG.E.ADD.64.STRONG.GPU PT, R4, desc[UR6][R8.64], R6",
            "STG.E.64.STRONG.GPU desc[UR4][R2.64], R4",
            "EXIT",
        ]
        self.assertEqual(shortest(from_lines(*lines), USUAL | {"atomic": 1})[0]["fence_gpu"], 1)
        self.assertEqual(shortest(from_lines(*lines), USUAL)[0]["fence_gpu"], 0)


class Budgets(unittest.TestCase):
    def measured(self, name="clean", arch=90, **budget):
        counts = counted(name)
        return measure.measure(counts, "fence.acquire.sys; fence.acquire.sys;", arch, budget), budget

    def judged(self, name="clean", arch=90, **budget):
        m, budget = self.measured(name, arch, **({"invalidate": 1} if name == "clean" else {}) | budget)
        return judge(m, budget, {(m.name, arch): m})

    def test_within_budget_there_is_nothing_to_say(self):
        rings = {"atomic": 1, "wqe": 2, "mmio": 1, "fence": 1, "instructions": 80}
        self.assertEqual(self.judged(instructions=[90, 90, 90], walk={"rings": rings}), [])

    def test_each_way_of_going_over_is_a_sentence(self):
        rings = {"atomic": 1, "wqe": 2, "mmio": 1}
        self.assertIn("instructions, budget 20", self.judged(instructions=[99, 20, 99])[0])
        self.assertIn("20 registers, budget 19", self.judged(registers=19)[0])
        self.assertEqual(self.judged(walk={"rings": rings}), ["walk 'rings': 1 fence, budget 0"])
        self.assertIn("no walk with", self.judged(walk={"rings": rings | {"mmio": 3}})[0])
        self.assertIn("instructions, budget 3", self.judged(walk={"rings": rings | {"fence": 1, "instructions": 3}})[0])
        self.assertIn("2 times fence.acquire.sys", self.judged(ptx={"fence.acquire.sys": 1})[0])
        self.assertIn("no longer reads the window", self.judged(name="stack", window_loads=1)[0])
        self.assertIn("(0.5 x clean)", self.judged(of="clean", ratio=0.5)[0])

    def test_an_invalidation_is_over_budget_unless_no_other_fence_exists(self):
        done = {"done": {"fence": 1}}
        once = "1 L1 invalidations, budget 0"
        self.assertEqual(self.judged("invalidation", walk=done), [once, "walk 'done': 1 invalidate, budget 0"])
        m, budget = self.measured("invalidation", 90, walk=done)
        m.arch = 80
        self.assertEqual(judge(m, budget, {}), [])

    def test_kernels_and_budgets_name_each_other(self):
        m, _ = self.measured()
        self.assertEqual(verdicts([m], {}), ["clean, sm_90: no budget in budgets.toml"])
        self.assertEqual(verdicts([], {"gone": {}}), ["gone: has a budget and no cost kernel"])

    def test_facts_have_each_walk_or_why_there_is_none(self):
        m, _ = self.measured(walk={"rings": {"atomic": 1, "wqe": 2, "mmio": 1}, "none": {"atomic": 9}})
        (fact,) = facts([m])
        self.assertEqual((fact["kernel"], fact["arch"], fact["registers"]), ("clean", 90, m.kernel.registers))
        self.assertEqual(fact["instructions"], m.counts.total["instructions"])
        self.assertEqual([fact["walks"]["rings"][kind] for kind in ("atomic", "wqe", "mmio")], [1, 2, 1])
        self.assertIsInstance(fact["walks"]["none"], str)

    def test_the_table_shows_a_walk_below_its_kernel(self):
        m, _ = self.measured(walk={"rings": {"atomic": 1, "wqe": 2, "mmio": 1}})
        lines = table([m], 90).splitlines()
        self.assertRegex(lines[1], r"^clean +20 +\d+ +0 \| all branches")
        self.assertRegex(lines[2], r"^ +\| rings +\d+ +1 gpu +0 +1 +1 +0 +2$")

    def test_the_budget_file_holds_what_the_project_promises(self):
        budgets = tomllib.loads((HERE / "budgets.toml").read_text())
        self.assertEqual(budgets["put_thread_shared"]["walk"]["others_ring"]["atomic"], 3)
        self.assertEqual(budgets["put_signal_thread_shared"]["ratio"], 1.4)


def row_loop(*body):
    """The loops of a kernel whose instructions 1 to the last but one are a loop of this body."""
    lines = ["MOV R0, RZ", *body, "@P0 BRA 0x10", "EXIT"]
    return loads.loops(Kernel("rows", [parse_instruction(16 * n, line) for n, line in enumerate(lines)]))


class LoadsInFlight(unittest.TestCase):
    LOADS = [f"LDG.E.128 R{n}, desc[UR4][R2.64+{hex(n)}]" for n in (4, 8, 12, 16)]
    STORES = [f"STG.E.128 desc[UR4][R30.64+{hex(n)}], R{n}" for n in (4, 8, 12, 16)]

    def test_four_loads_before_the_first_use_break_no_rule(self):
        (loop,) = row_loop(*self.LOADS, *self.STORES)
        self.assertEqual((loop.address, loop.loads, loop.in_flight), (0x10, 4, 4))
        self.assertEqual(loads.violations([loop]), [])

    def test_a_loop_that_stores_each_load_at_once_is_reported(self):
        pairs = [line for pair in zip(self.LOADS, self.STORES) for line in pair]
        (found,) = loads.violations(row_loop(*pairs))
        self.assertEqual(found, "the loop at 0x10 has 1 loads of 16 bytes in flight, not 3")

    def test_the_second_half_of_a_wide_store_is_a_use(self):
        (loop,) = row_loop(*self.LOADS[:2], "STG.E.64 desc[UR4][R30.64], R6", *self.LOADS[2:])
        self.assertEqual(loop.in_flight, 2)

    def test_the_factor_of_a_wide_product_is_one_register(self):
        (loop,) = row_loop(*self.LOADS[:3], "IMAD.WIDE.U32 R20, R3, 0x10, R30", self.LOADS[3], *self.STORES)
        self.assertEqual(loop.in_flight, 4)
        (loop,) = row_loop(*self.LOADS[:3], "IMAD.WIDE.U32 R20, R30, 0x10, R3", self.LOADS[3], *self.STORES)
        self.assertEqual(loop.in_flight, 3)

    def test_sums_use_what_they_load_and_constants_are_no_rows(self):
        constant = "LDG.E.128.CONSTANT R40, desc[UR4][R2.64]"
        (loop,) = row_loop(constant, *self.LOADS[:3], "FADD R50, R50, R9", self.LOADS[3])
        self.assertEqual((loop.loads, loop.in_flight), (4, 3))
        self.assertEqual(row_loop(constant, "STG.E.128 desc[UR4][R30.64], R40"), [])

    def test_only_the_innermost_loop_counts(self):
        lines = ["MOV R0, RZ", "LDG.E.128 R4, desc[UR4][R2.64]", *self.LOADS, *self.STORES, "@P0 BRA 0x20", "@P1 BRA 0x10", "EXIT"]
        found = loads.loops(Kernel("nested", [parse_instruction(16 * n, line) for n, line in enumerate(lines)]))
        self.assertEqual([loop.address for loop in found], [0x20])

    def test_a_loop_around_one_that_only_stores_rows_counts(self):
        lines = ["MOV R0, RZ", *self.LOADS, *self.STORES, "@P0 BRA 0x50", "@P1 BRA 0x10", "EXIT"]
        found = loads.loops(Kernel("to_several", [parse_instruction(16 * n, line) for n, line in enumerate(lines)]))
        self.assertEqual([(loop.address, loop.loads, loop.in_flight) for loop in found], [(0x10, 4, 4)])
        few = ["MOV R0, RZ", self.LOADS[0], self.STORES[0], "@P0 BRA 0x20", "@P1 BRA 0x10", "EXIT"]
        (loop,) = loads.loops(Kernel("one", [parse_instruction(16 * n, line) for n, line in enumerate(few)]))
        self.assertEqual(loop.in_flight, 1)

    def test_a_kernel_that_moves_rows_without_a_loop_is_reported(self):
        kernel = resources.Resources("wv_moe_combine", 90, 32, 0, 0, 0, 0)
        (verdict,) = resources.verdicts([kernel])
        self.assertIn("looks at nothing", verdict)


class WithCompiler(unittest.TestCase):
    def setUp(self):
        try:
            self.tools = measure.tools(HERE.parent.parent)
        except SystemExit as why:
            self.skipTest(str(why))

    def test_a_fence_that_nvcc_assembles_wrongly_is_an_illegal_opcode(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, ".tools").symlink_to(HERE.parent.parent / ".tools")
            found = measure.measure_file(folder, HERE / "planted/illegal.cuda", 80, {})
        self.assertEqual(found, ["illegal.cuda, sm_80: illegal opcode in wv_cost_fence"])

    def test_a_header_that_needs_another_before_it_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, ".tools").symlink_to(HERE.parent.parent / ".tools")
            headers = Path(folder, "kernels/include/warpverbs")
            headers.mkdir(parents=True)
            (headers / "good.cuh").write_text("#pragma once\nstruct Good {};\n")
            (headers / "bad.cuh").write_text("inline Good bad() { return {}; }\n")
            self.assertEqual(measure.alone(folder, headers / "good.cuh"), [])
            (found,) = measure.alone(folder, headers / "bad.cuh")
        self.assertIn("bad.cuh does not compile by itself", found)

    def test_the_saved_listing_equals_the_compiled_planted_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, ".tools").symlink_to(HERE.parent.parent / ".tools")
            _, cubin = measure.compile_one(folder, HERE / "planted/planted.cuda", 90)
            kernels = read_cubin(self.tools / "cuobjdump", cubin)
            functions = parse_functions(Path(cubin).read_bytes())
        for name, code in PLANTED.items():
            self.assertEqual([str(i) for i in kernels[name].code], [str(i) for i in code])
        (place,) = functions["out_of_line"].values()
        self.assertEqual(place, (0x140, 0x380))

    def test_a_spill_is_found_with_the_kernel_that_has_it(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, ".tools").symlink_to(HERE.parent.parent / ".tools")
            found = resources.measure_file(folder, HERE / "planted/spill.cuda", 90)
        self.assertEqual([r.name for r in found], ["wv_spills", "wv_spills_not"])
        (verdict,) = resources.verdicts(found)
        self.assertRegex(verdict, r"^wv_spills, sm_90: spills [1-9]\d* bytes and loads [1-9]\d* back, limit 192 together$")
        self.assertIn("wv_spills_not", resources.table(found))


class Resources(unittest.TestCase):
    def test_spills_of_functions_out_of_line_count_for_their_kernel(self):
        said = """
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for cold
    8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'b' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""
        self.assertEqual(resources.spills(said), {"a": (8, 12), "b": (0, 0)})

    def test_each_limit_is_one_and_no_more(self):
        most = (resources.LIMITS[what] for what in ("registers", "shared", "stack"))
        within = resources.Resources("a", 90, *most, resources.SPILLED - 4, 4)
        self.assertEqual(resources.verdicts([within]), [])
        (verdict,) = resources.verdicts([resources.Resources(**{**vars(within), "spill_loads": 5})])
        self.assertIn(f"loads 5 back, limit {resources.SPILLED} together", verdict)
        for what, most in resources.LIMITS.items():
            beyond = resources.Resources(**{**vars(within), what: most + 1})
            (verdict,) = resources.verdicts([beyond])
            self.assertIn(f"{most + 1} ", verdict)
            self.assertIn(f"limit {most}", verdict)


if __name__ == "__main__":
    unittest.main()
