"""Runs one of Python's own test modules and prints a line for each test: its name and outcome.

A test that fails is run once more alone, for some measure times on a machine that is busy.
"""

import os
import sys
import unittest

from test import support


class Outcomes(unittest.TextTestResult):
    """Keeps how each test ended; a test whose part failed has failed."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.outcomes = {}

    def say(self, test, outcome):
        name = test.id().replace(" ", "_").replace(os.getcwd(), "CWD")
        if self.outcomes.get(name) != "failed":
            self.outcomes[name] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(getattr(test, "test_case", test), "skipped")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say(test, "failed")

    def addError(self, test, error):
        super().addError(test, error)
        self.say(test, "failed")

    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error is not None:
            self.say(test, "failed")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.say(test, "ok")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.say(test, "failed")


def run(names):
    runner = unittest.TextTestRunner(stream=sys.stderr, resultclass=Outcomes)
    return runner.run(unittest.defaultTestLoader.loadTestsFromNames(names)).outcomes


def main():
    if not os.environ.get("LONG"):
        support.use_resources = ["largefile", "network", "subprocess"]
    module = "test." + sys.argv[1]
    # What the tests themselves print belongs elsewhere.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        outcomes = run([module])
    except unittest.SkipTest:
        outcomes = {}
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    if 0 < len(failed) < 10 and all(name.startswith("test.") for name in failed):
        outcomes.update(run(failed))
    for name, outcome in outcomes.items():
        print(name, outcome, file=results)
    if not outcomes:
        print(module, "skipped", file=results)


if __name__ == "__main__":
    main()
