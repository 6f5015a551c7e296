"""What has been answered, by round: an index of the store that reads each label once.

A refresh needs the ids of all that may be replayed, and the contents of the few that are. So the ids are kept here,
and `update` adds those of labels that came in since; the store never changes what it holds, so they stay right.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.preferences.store import PreferenceStore
from holdfast.reward.replay import holdout_place


@dataclass
class Generation:
    """The answered comparisons of one round: ids to train on, each with its first label's number, and held-out ones.

    `held` has the place that an id's hash gives it, the id, and its first label's number. `repeats` are comparisons
    that were asked again; they neither train nor count as labels.
    """

    ids: list[str] = field(default_factory=list)
    firsts: array[int] = field(default_factory=lambda: array("q"))
    held: list[tuple[float, str, int]] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    labels: int = 0
    newest: int = 0
    sorted: bool = True

    def add(self, comparison_id: str, seq: int) -> None:
        self.ids.append(comparison_id)
        self.firsts.append(seq)
        self.newest, self.sorted = max(self.newest, seq), False

    def sort(self) -> None:
        """By id, the order in which the store gives comparisons; draws are by place in it."""
        if not self.sorted:
            order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
            self.ids = [self.ids[i] for i in order]
            self.firsts = array("q", [self.firsts[i] for i in order])
            self.sorted = True


@dataclass
class Answered:
    """The ids of all answered comparisons up to `watermark`, apart for training and for measuring.

    Several runs may share a store, and each counts its rounds from 1. For the run with `key` whatever others asked is
    of round 0, before its own; without a key rounds are taken as they are.
    """

    store: PreferenceStore
    holdout: float
    key: str = ""
    watermark: int = 0
    _rounds: dict[int, Generation] = field(default_factory=dict)

    def update(self) -> None:
        """Take in the labels that are new."""
        newest = self.store.watermark()
        while page := self.store.first_answers(self.watermark, newest):
            for seq, comparison_id, number, purpose, run, opens in page:
                own = not self.key or run == self.key
                generation = self._rounds.setdefault(number if own else 0, Generation())
                if purpose == "repeat":
                    if opens:
                        generation.repeats.append(comparison_id)
                    continue
                generation.labels += 1
                if not opens:
                    continue
                place = holdout_place(comparison_id)
                if place < self.holdout:
                    generation.held.append((place, comparison_id, seq))
                else:
                    generation.add(comparison_id, seq)
            self.watermark = page[-1].seq
        self.watermark = newest

    def labels(self, up_to_round: int | None = None) -> int:
        """Answers by different people, counted once for each comparison that a person answered."""
        return sum(generation.labels for _, generation in self._up_to(up_to_round))

    def held_out(self, most: int, up_to_round: int | None = None) -> list[str]:
        """Held-out comparisons; of more than `most` always those that the hash of the id puts first."""
        held = [item for _, generation in self._up_to(up_to_round) for item in generation.held]
        return sorted(comparison_id for _, comparison_id, _ in heapq.nsmallest(most, held))

    def held_out_known(self, most: int, up_to_round: int, known_round: int, watermark: int) -> dict[int, list[str]]:
        """By round, held-out comparisons that a version knows, at most `most` of each: the first by the id's hash."""
        return {
            number: [item[1] for item in heapq.nsmallest(most, [h for h in generation.held if h[2] <= watermark])]
            for number, generation in self._up_to(min(up_to_round, known_round))
        }

    def held_out_fresh(self, most: int, up_to_round: int, known_round: int, watermark: int) -> list[str]:
        """Held-out comparisons that are new to a version."""
        fresh = [
            item
            for number, generation in self._up_to(up_to_round)
            for item in generation.held
            if number > known_round or item[2] > watermark
        ]
        return [item[1] for item in heapq.nsmallest(most, fresh)]

    def repeats(self, up_to_round: int, known_round: int) -> tuple[list[str], list[str]]:
        """Comparisons that were asked again: in rounds whose labels a version knows, and since."""
        old: list[str] = []
        fresh: list[str] = []
        for number, generation in self._up_to(up_to_round):
            (fresh if number > known_round else old).extend(generation.repeats)
        return old, fresh

    def old_and_fresh(self, up_to_round: int, known_round: int, watermark: int) -> tuple[list[list[str]], list[str]]:
        """What may train: by round what a version knew, and in one list what is new to it, each in order of id.

        A version knows comparisons up to `known_round` that were first answered by `watermark`.
        """
        old: list[list[str]] = []
        fresh: list[str] = []
        for number, generation in self._up_to(up_to_round):
            generation.sort()
            if number > known_round:
                fresh += generation.ids
            elif generation.newest <= watermark:
                old.append(generation.ids)
            else:
                firsts = list(zip(generation.ids, generation.firsts, strict=True))
                old.append([key for key, first in firsts if first <= watermark])
                fresh += [key for key, first in firsts if first > watermark]
        return old, sorted(fresh)

    def _up_to(self, number: int | None) -> Iterator[tuple[int, Generation]]:
        return ((n, generation) for n, generation in sorted(self._rounds.items()) if number is None or n <= number)
