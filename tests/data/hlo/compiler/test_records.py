"""What the journal of a run keeps of estimates."""

import pytest

from xlarank.data.errors import WorkspaceError
from xlarank.data.hlo.compiler.cycles import Estimate
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status, fingerprint

ONE = Estimate(12, 1)


def test_a_journal_gives_back_what_was_added_and_drops_a_cut_line(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, {"seed": 0}) as journal:
        journal.add("", Outcome(Status.OK, ONE, "f", False, 1.5))
        journal.add("0:10", Outcome(Status.OK, ONE, "f", True, 0.25))
        journal.add("1:10", Outcome(Status.CRASHED, seconds=2.0, message="signal 11"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"configuration": "2:1')
    with Journal(path, {"seed": 0}) as journal:
        assert list(journal.outcomes) == ["", "0:10", "1:10"]
        assert journal.outcomes["0:10"] == Outcome(Status.OK, ONE, "f", True, 0.25)
        assert journal.outcomes["1:10"].message == "signal 11"
        assert journal.estimates == {"f": ONE}
    assert path.read_bytes() == whole


def test_a_journal_of_other_settings_is_refused(tmp_path):
    with Journal(tmp_path / "journal", {"seed": 0, "target": "tpu-v3"}):
        pass
    with pytest.raises(WorkspaceError, match="another seed; expected seed 0"):
        Journal(tmp_path / "journal", {"seed": 1, "target": "tpu-v3"})
    with pytest.raises(WorkspaceError, match="another counting; expected counting of an earlier version"):
        Journal(tmp_path / "journal", {"seed": 0, "target": "tpu-v3", "counting": 2})


def test_names_and_origins_do_not_change_a_fingerprint_but_layouts_do():
    origin = 'metadata={op_name="a{}\\"}" source_line=3}'
    text = f"HloModule a\nENTRY %m {{\n  %x = f32[8]{{0}} add(%a, %b), {origin}, sharding={{replicated}}\n}}"
    assert fingerprint(text) == fingerprint(text.replace("HloModule a", "HloModule b"))
    assert fingerprint(text) == fingerprint(text.replace("%x", "%y.1").replace("source_line=3", "source_line=4"))
    assert fingerprint(text) != fingerprint(text.replace("{0}", "{0:T(128)}"))
    assert fingerprint(text) != fingerprint(text.replace("add(%a, %b)", "add(%a, %a)"))
    assert fingerprint(text) != fingerprint(text.replace("replicated", "maximal"))
