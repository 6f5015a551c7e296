"""What people are asked and what they answer: the types.

Storage (`store`) and the choice of pairs (`selection`) are modules of the package.
Only the types are imported with it, so that naming a `Comparison` does not load a database or torch.
"""

from holdfast.models.prompt import Message, Prompt
from holdfast.preferences.comparison import (
    Choice,
    Comparison,
    Demonstration,
    Label,
    LabelledComparison,
    Labeller,
    Provenance,
    Purpose,
    Response,
)

__all__ = [
    "Choice",
    "Comparison",
    "Demonstration",
    "Label",
    "LabelledComparison",
    "Labeller",
    "Message",
    "Prompt",
    "Provenance",
    "Purpose",
    "Response",
]
