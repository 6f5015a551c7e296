"""Instructions: what is read of a file, and what is refused."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.people.instructions import Example, Instructions, read_instructions

WHOLE = """
text = '''
Prefer what answers the question.
'''
[[examples]]
prompt = "Wifi?"
better = "Yes."
worse = "Hello."
why = "It answers."
[[examples]]
prompt = "Dogs?"
better = "Outside."
worse = "Dogs."
"""


def test_a_text_with_examples_or_alone(tmp_path):
    assert read_instructions("") is None
    (tmp_path / "how.toml").write_text(WHOLE)
    assert read_instructions(str(tmp_path / "how.toml")) == Instructions(
        "Prefer what answers the question.",
        (Example("Wifi?", "Yes.", "Hello.", "It answers."), Example("Dogs?", "Outside.", "Dogs.")),
    )
    (tmp_path / "how.md").write_text("Prefer *short* ones.\n")
    assert read_instructions(str(tmp_path / "how.md")) == Instructions("Prefer *short* ones.")


def test_another_text_is_to_be_read_again():
    assert Instructions("a").digest == Instructions("a").digest != Instructions("b").digest


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.toml", b"text = 3", "has no text of instructions"),
        ("a.toml", b"text = ''", "has no text of instructions"),
        ("a.toml", b"text = ", "is not TOML"),
        ("a.toml", b"text = 'x'\nmore = 1", "and nothing else"),
        ("a.toml", b"text = 'x'\nexamples = 3", "and nothing else"),
        ("a.toml", b"text = 'x'\n" + 21 * b"[[examples]]\n", "up to 20"),
        ("a.toml", b"text = 'x'\n[[examples]]\nprompt = 'p'\nbetter = 'b'\n", "Example 1 of .* needs"),
        ("a.toml", b"text = 'x'\n[[examples]]\nprompt = 'p'\nbetter = 'b'\nworse = 1", "Example 1 of .* needs"),
        ("a.toml", b"text = 'x'\n[[examples]]\nprompt='p'\nbetter='b'\nworse='w'\nextra='e'", "Example 1 of .* needs"),
        ("a.txt", b" \n", "has no text of instructions"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.txt", 100_001 * b"x", "100,001 bytes"),
    ],
)
def test_what_is_refused(tmp_path, name, text, why):
    (tmp_path / name).write_bytes(text)
    with pytest.raises(HoldfastError, match=why):
        read_instructions(str(tmp_path / name))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(HoldfastError, match="which is no file here"):
        read_instructions(str(tmp_path / "none.txt"))
