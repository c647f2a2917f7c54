"""Lists the tests that were skipped, with their reasons, from a JUnit report of ctest.

usage: skipped_tests.py REPORT
"""
import sys
import textwrap
import xml.etree.ElementTree as xml


def reason(case):
    """The message that a test of GoogleTest printed before it said that it was skipped, else the report's own."""
    text = case.findtext("system-out") or ""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.rstrip().endswith(": Skipped") and i + 1 < len(lines):
            return lines[i + 1].strip()
    for line in reversed(lines):
        if line.strip():
            return line.strip()
    return case.find("skipped").get("message") or "no reason given"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: skipped_tests.py REPORT")
    cases = list(xml.parse(sys.argv[1]).iter("testcase"))
    skipped = [c for c in cases if c.find("skipped") is not None]
    by_reason = {}
    for case in skipped:
        by_reason.setdefault(reason(case), []).append(case.get("name").split("  # ")[0])
    for why, names in by_reason.items():
        print(f"  {why}:")
        print(textwrap.fill(", ".join(names), 120, initial_indent="    ", subsequent_indent="    ",
                            break_long_words=False, break_on_hyphens=False))
    print(f"{len(skipped)} of {len(cases)} tests skipped")


main()
