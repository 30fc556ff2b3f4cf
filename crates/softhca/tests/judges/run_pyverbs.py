"""Runs Debian's pyverbs tests and writes what became of each: `OUTCOME <tab> TEST <tab> TEXT` per line.

    run_pyverbs.py DIRECTORY_OF_TESTS RESULTS GID_INDEX [TEST ...]

GID_INDEX is the number of an entry of the GID table, or `any`: then the tests choose, and take the first.

The text output of unittest is mixed with what tests print, and is lost if one of them kills the process. Here the
line `start` of a test is on disk before it runs, so that a reader of the file knows the culprit. A test that takes
longer than LIMIT seconds ends the process, after the stacks of all threads.
"""

import faulthandler
import os
import random
import sys
import unittest
from importlib.machinery import SourceFileLoader

LIMIT = 60

# Their subject is another device, or the connection manager and its device node.
ELSEWHERE = ["cuda", "efa", "rdmacm", "vfio"]


class Recorder(unittest.TestResult):
    def __init__(self, results):
        super().__init__()
        self.results = results

    def record(self, outcome, test, text=""):
        text = str(text).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", " ")
        self.results.write(f"{outcome}\t{test.id().removeprefix('tests.')}\t{text}\n")
        self.results.flush()

    def startTest(self, test):
        super().startTest(test)
        self.record("start", test)
        faulthandler.dump_traceback_later(LIMIT, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.record("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record("skip", test, reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.record("fail", test, self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.record("fail", test, self.failures[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.record("fail", test, self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.record("ok", test, "failed as expected")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.record("fail", test, "succeeded unexpectedly")


def main(directory, results, gid_index, names):
    faulthandler.enable()
    # Many tests draw attributes at random.
    random.seed(int(os.environ["SEED"]))
    sys.path.insert(0, directory)
    sys.argv[1:] = ["--dev", "mlx5_0"]
    if gid_index != "any":
        sys.argv += ["--gid", gid_index]
    tests = SourceFileLoader("tests", os.path.join(directory, "__init__.py")).load_module()
    sys.modules["args_parser"].parser.parse_args()
    modules = [m for m in tests.__test_modules__ if not any(word in m.__name__ for word in ELSEWHERE)]
    loader = unittest.TestLoader()
    if names:
        suite = loader.loadTestsFromNames([f"tests.{name}" for name in names])
    else:
        suite = unittest.TestSuite(loader.loadTestsFromModule(module) for module in modules)
    with open(results, "w", encoding="utf-8") as file:
        recorder = Recorder(file)
        suite.run(recorder)
        file.write("end\t\t\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
