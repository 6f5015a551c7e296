"""Only members that have not learnt from a label are asked about it."""

import torch
from toy_preferences import toy_ensemble, toy_pairs

from holdfast.reward.examination import about_held_out, about_trained, log_odds, opinions
from holdfast.reward.training import unseen_by

PAIRS = toy_pairs(60)


def test_about_trained_labels_only_the_one_who_never_learns_from_them_is_asked() -> None:
    for question in about_trained(PAIRS, 3, fresh=False):
        assert question.member == unseen_by(question.pair.key, 3)
        assert question.unseen
    asked = {q.pair.key for q in about_trained(PAIRS, 3, fresh=False)}
    assert asked == {p.key for p in PAIRS if unseen_by(p.key, 3) is not None}
    assert about_trained(PAIRS, 1, fresh=False) == []


def test_about_new_labels_the_version_in_use_may_always_be_asked_and_the_candidate_not() -> None:
    questions = about_trained(PAIRS, 3, fresh=True)
    assert [q.pair for q in questions] == PAIRS
    assert [q.unseen for q in questions] == [unseen_by(p.key, 3) is not None for p in PAIRS]
    assert {q.member for q in questions if not q.unseen} <= {0, 1, 2}
    assert not any(q.unseen for q in about_trained(PAIRS, 1, fresh=True))


def test_about_held_out_labels_anyone_is_asked() -> None:
    questions = about_held_out(PAIRS, 3, fresh=False)
    assert all(q.unseen for q in questions)
    assert {q.member for q in questions} == {0, 1, 2}


def test_what_both_versions_said() -> None:
    ensemble = toy_ensemble()
    questions = about_trained(PAIRS, 3, fresh=True)
    old = log_odds(ensemble, questions)
    margins_KP = ensemble.raw_margins(PAIRS)
    torch.testing.assert_close(torch.tensor(old), margins_KP[[q.member for q in questions], list(range(60))])
    with torch.no_grad():
        for member in ensemble.members:
            member.head.weight.mul_(-2.0)
    new = log_odds(ensemble, [q for q in questions if q.unseen])
    for question, found in zip(questions, opinions(questions, old, new), strict=True):
        assert found.share == question.pair.share_a
        assert found.longer == len(question.pair.a) - len(question.pair.b)
        assert (found.new is not None) == question.unseen
        if found.new is not None:
            torch.testing.assert_close(found.new, -2.0 * found.old, rtol=1e-4, atol=1e-5)
    assert log_odds(ensemble, []) == []
