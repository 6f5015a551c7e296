"""The table of faults names tests that are there and mutations that fit, and adds up what tests have counted."""

import xml.etree.ElementTree as ET

import pytest
from benchmarks.__main__ import main
from benchmarks.faults import faults, fuzz
from benchmarks.faults.mutations import MUTATIONS, Mutation, changed, seen_of
from benchmarks.faults.rows import ROWS, Row
from benchmarks.faults.suite import run_tests
from benchmarks.record import RESULTS, ROOT


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and (not name or f"\ndef {name}(" in (ROOT / file).read_text())


def test_every_test_and_every_kept_result_is_there() -> None:
    named = [test for row in ROWS.values() for test in row.tests]
    named += [test for mutation in MUTATIONS for test in mutation.tests]
    assert [test for test in named if not is_there(test)] == []
    assert [name for row in ROWS.values() for name in row.kept if not (RESULTS / f"{name}.json").is_file()] == []


def test_every_row_has_a_mutation_that_fits_the_source_and_is_seen_by_tests_of_the_row() -> None:
    assert {mutation.row for mutation in MUTATIONS} == set(ROWS)
    for mutation in MUTATIONS:
        source = (ROOT / "src" / "holdfast" / mutation.file).read_text()
        assert changed(mutation, source) != source
        of_the_row = ROWS[mutation.row].tests
        assert all(test in of_the_row or test.partition("::")[0] in of_the_row for test in mutation.tests), mutation


REPORT = """
<testsuite>
  <testcase classname="tests.system.test_faults" name="test_a[x]" time="1.5">
    <properties><property name="kills" value="3"/></properties></testcase>
  <testcase classname="tests.system.test_faults" name="test_a[y]" time="1">
    <properties><property name="kills" value="4"/></properties><failure/></testcase>
  <testcase classname="tests.system.test_faults" name="test_b" time="1"/>
  <testcase classname="tests.web.test_roles" name="test_c" time="1"><skipped/></testcase>
</testsuite>"""


def test_what_tests_have_counted_is_added_up_by_row() -> None:
    row = Row("a fault", "it is survived", ("tests/system/test_faults.py::test_a", "tests/web/test_roles.py"))
    tried = faults.tried_of(row, ET.fromstring(REPORT).iter("testcase"))
    assert (tried.cases, dict(tried.counts), tried.seconds) == (3, {"kills": 7}, 3.5)
    assert tried.failed == ["tests/system/test_faults.py::test_a test_a[y]"]
    assert tried.skipped == ["tests/web/test_roles.py::test_c test_c"]
    lines = faults.lines_of(row, tried)
    assert lines[0].split() == ["a", "fault", "7", "kills", "3", "1"]


def test_the_tables_fit_a_terminal() -> None:
    tried = faults.Tried(cases=1234)
    tried.counts.update({"directories with code opened": 12345, "kills": 7})
    widest = max(len(line) for row in ROWS.values() for line in faults.lines_of(row, tried))
    assert widest <= 100
    result = {"target": "replies", "seconds": 9e3, "inputs": 10**8, "outcomes": {"refused": 10**8}, "failures": []}
    assert max(map(len, fuzz.table([result]))) <= 100


def test_the_command_knows_every_target() -> None:
    modules = (ROOT / "tests" / "fuzz").glob("fuzz_*.py")
    assert set(fuzz.TARGETS) == {path.stem.removeprefix("fuzz_") for path in modules}


def test_a_row_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "--only", "kills,flood"]) == 2
    assert "There is no row 'flood'; --only takes kills, power, " in capsys.readouterr().err


@pytest.mark.slow
def test_a_mutation_is_made_in_a_copy_and_seen() -> None:
    """One that breaks the search for pickles, and one that changes nothing which that search looks for."""
    seen = next(mutation for mutation in MUTATIONS if mutation.row == "pickles")
    unseen = Mutation("pickles", "a comment", seen.file, seen.old, seen.old + "\n# nothing\n", seen.tests)
    assert seen_of([seen, unseen]) == [True, False]
    assert [case.find("failure") for case in run_tests(seen.tests, ROOT)] == [None] * 3
