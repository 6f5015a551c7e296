"""The share of labellers who prefer a, and labels that belong to their comparison."""

import pytest

from holdfast.preferences.comparison import Choice, Comparison, Label, LabelledComparison, Provenance, Response

COMPARISON = Comparison("c", "p", *(Response(text, Provenance("v", 0, 0)) for text in "ab"), round=0)


@pytest.mark.parametrize(
    ("choices", "share"),
    [
        ([Choice.A], 1.0),
        ([Choice.B], 0.0),
        ([Choice.TIE], 0.5),
        ([Choice.A, Choice.B], 0.5),
        # (1 + 1 + 1/2 + 0) / 4 = 2.5 / 4
        ([Choice.A, Choice.A, Choice.TIE, Choice.B], 0.625),
    ],
)
def test_share_a_counts_ties_as_half(choices, share):
    labels = tuple(Label("c", f"labeller {i}", choice) for i, choice in enumerate(choices))
    assert LabelledComparison(COMPARISON, labels).share_a == share


@pytest.mark.parametrize("labels", [(), (Label("other", "anna", Choice.A),)])
def test_a_labelled_comparison_has_labels_of_its_own(labels):
    with pytest.raises(ValueError, match="needs at least one label"):
        LabelledComparison(COMPARISON, labels)
