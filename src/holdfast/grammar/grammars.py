"""Which grammar a prompt has: one for the whole run, or each prompt its own by a column of its row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.grammar.ending import EndInTime
from holdfast.grammar.engine import Matched
from holdfast.grammar.examples import examples_of
from holdfast.grammar.form import COLUMN, NONE, SETTING, Form, form_of
from holdfast.grammar.lexicon import lexicon_of
from holdfast.grammar.mask import MaskRules
from holdfast.grammar.spelling import Speller, SpeltGrammar
from holdfast.grammar.walk import Grammar
from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt, plain_text


class Grammars:
    """The grammars of a run in its tokenizer's tokens, each compiled once; prompts are known by their tokens."""

    def __init__(self, written: str, codec: Codec, room: int, in_time: bool = True) -> None:
        """`in_time` leads answers to an end within `room` tokens."""
        self.written, self._codec, self._room, self._in_time = written, codec, room, in_time
        self._lexicon = lexicon_of(codec)
        self._forms: dict[tuple[int, ...], Form | None] = {}
        self._prompts: dict[tuple[int, ...], Prompt] = {}
        self._read: dict[str, Form | None] = {}
        self._grammars: dict[object, Grammar] = {}
        self._starts: dict[Form, Matched] = {}
        self._masks: dict[Form, MaskRules] = {}
        self.files: dict[str, str] = {}  # that grammars are in, with digests of their contents as they were read
        self.needs = 0  # tokens of the shortest answer found, under the grammar that asks for most
        self.unsure = False  # of some grammar no answer that ends was found, nor that there is none
        self.changed: list[str] = []  # files that a checkpoint was saved with otherwise
        self._form = None if written.startswith(COLUMN) else form_of(written)

    @classmethod
    def of(
        cls,
        written: str,
        codec: Codec,
        room: int,
        prompts: Iterable[Prompt] = (),
        columns: Mapping[Prompt, Mapping[str, Any]] | None = None,
        in_time: bool = True,
    ) -> Grammars | None:
        """The grammars that `rollout.grammar` asks for, for these prompts, compiled and found to be met; None for none.

        Refuses in a sentence what cannot be used: a file, a syntax, a schema that the engine does not support, a
        tokenizer that cannot spell it, an answer that would need more than `room` tokens.
        """
        if written in ("", NONE):
            return None
        grammars = cls(written, codec, room, in_time)
        for prompt in prompts:
            grammars._know(prompt, (columns or {}).get(prompt, {}))
        grammars._check()
        grammars.files = grammars._digests()
        return grammars

    def of_prompt(self, ids: Sequence[int]) -> Grammar | None:
        """The grammar of a prompt, by the tokens that stand before its answer; None where its row says none."""
        key = tuple(ids)
        form = self.form_of_prompt(key)
        if form is None:
            return None
        if form.kind == "mask":
            # What may be said can depend on the prompt.
            prompt = self._prompts[key] if key in self._prompts else self._codec.prompt_of(key)
            start = self._rules(form).start(prompt)
            return self._kept((form, start.station.at), lambda: self._spelt(form, start))
        return self._kept(form, lambda: self._spelt(form, self._start(form, "")))

    def form_of_prompt(self, ids: Sequence[int]) -> Form | None:
        """How a prompt's grammar is written; None where it has none."""
        if not self.written.startswith(COLUMN):
            return self._form
        key = tuple(ids)
        if key not in self._forms:
            raise HoldfastError(
                f"{SETTING} is {self.written}, and the prompt {self._codec.decode(key)[:60]!r} has no row."
            )
        return self._forms[key]

    @property
    def forms(self) -> list[Form]:
        """All grammars there are, each once."""
        return list(dict.fromkeys(form for form in (self._form, *self._forms.values()) if form is not None))

    def allows(self, prompt: Prompt, answer: str) -> bool:
        """Whether a text is an answer to a prompt, however it is cut into tokens and however long it is."""
        key = tuple(self._codec.encode_prompt(prompt))
        form = self.form_of_prompt(key)
        if form is None:
            return True
        return self._start(form, prompt).fits([*self._lexicon.vocabulary.encode(answer), self._lexicon.vocabulary.end])

    def state(self) -> dict[str, Any]:
        return {"files": dict(self.files)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.changed = sorted(name for name, digest in self.files.items() if state["files"].get(name) != digest)

    def _know(self, prompt: Prompt, row: Mapping[str, Any]) -> None:
        """Note a prompt's grammar; prompts that are the same to the policy are one, the first."""
        key = tuple(self._codec.encode_prompt(prompt))
        if key in self._prompts:
            return
        self._prompts[key] = prompt
        if self.written.startswith(COLUMN):
            column = self.written.removeprefix(COLUMN)
            where = f"the column {column} of the prompt {plain_text(prompt)[:40]!r}"
            if row.get(column) in (None, ""):
                raise HoldfastError(
                    f"T{where[1:]} is empty, and {SETTING} = {self.written} reads it: write a grammar there, or none."
                )
            written = row[column]
            once = written if isinstance(written, str) else json.dumps(written, sort_keys=True, default=str)
            if once not in self._read:
                self._read[once] = form_of(written, where)
            self._forms[key] = self._read[once]

    def _check(self) -> None:
        """Compile every grammar and see that an answer can be met within the room."""
        if not self.written.startswith(COLUMN) and not self._prompts:
            if self._form is not None and self._form.kind != "mask":
                self._met(self._form, self._start(self._form, ""))
            return
        seen: set[Form] = set()
        for key, prompt in self._prompts.items():
            form = self.form_of_prompt(key)
            if form is None or form in seen:
                continue
            seen.add(form)
            self._met(form, self._start(form, prompt))

    def _digests(self) -> dict[str, str]:
        files = {form.file for form in self.forms if form.file}
        # A world's own file is wherever the world is.
        names = {file: file.name if file.is_absolute() else str(file) for file in sorted(files)}
        return {name: sha256(file.read_bytes()).hexdigest() for file, name in names.items()}

    def _met(self, form: Form, start: Speller) -> None:
        ending = self._ending(form)
        way = ending.closed(start, self._room) or ending.shortest(start, most(self._room))
        need = None if way is None else len(way)
        self.needs, self.unsure = max(self.needs, need or 0), self.unsure or need == 0
        if need is None:
            raise HoldfastError(
                f"{form.name} cannot be met: no answer of up to {most(self._room)} tokens was found that this policy's "
                "tokenizer can spell; see whether it has the characters that the grammar asks for, and whether the "
                "grammar ever ends."
            )
        if need > self._room:
            raise HoldfastError(
                f"{form.name} cannot be met in rollout.max_new_tokens = {self._room}: the shortest answer found has "
                f"{need} tokens; set it to at least that, or ask for less."
            )

        if not self._lexicon.vocabulary.complete and (stuck := self._lexicon.ending.dead_end(start, self._room)):
            raise HoldfastError(
                f"{form.name} cannot be met by this policy's tokenizer: after {self._codec.decode(stuck)[-40:]!r} it "
                "has no token that the grammar allows; leave the characters that it lacks out of the grammar."
            )

    def _ending(self, form: Form) -> EndInTime:
        """How answers under one grammar can end, not yet measured."""
        return self._lexicon.ending.hinted(examples_of(form))

    def _spelt(self, form: Form, start: Speller) -> Grammar:
        ending = self._ending(form).measured(start, self._room) if self._in_time else None
        return SpeltGrammar(start.copy, self._lexicon.vocabulary, self._room, ending)

    def _kept(self, key: object, make: Any) -> Grammar:
        if key not in self._grammars:
            self._grammars[key] = make()
        return self._grammars[key]

    def _start(self, form: Form, prompt: Prompt) -> Speller:
        """An empty answer to a prompt."""
        if form.kind == "mask":
            return self._rules(form).start(prompt)
        if form not in self._starts:
            self._starts[form] = self._lexicon.engine.start(form)
        return self._starts[form].copy()

    def _rules(self, form: Form) -> MaskRules:
        if form not in self._masks:
            self._masks[form] = MaskRules.load(form.text, SETTING, self._lexicon.vocabulary, self._lexicon.trie)
        return self._masks[form]


def each_grammar(grammars: Grammars | None, prompts: Iterable[Sequence[int]]) -> list[Grammar | None] | None:
    """The grammar of each of these prompts; None where there are none."""
    return None if grammars is None else [grammars.of_prompt(prompt) for prompt in prompts]


def most(room: int) -> int:
    """How far beyond the room an answer is looked for, to say how much it needs."""
    return max(1024, 4 * room)
