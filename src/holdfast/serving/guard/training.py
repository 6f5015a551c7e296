"""One training under guard: what is stored, the thread that reviews it, and what it waits for.

    post -> stored -> steps -> baselines, signals -> every so many a review -> verdict, advice -> state saved

All that comes from outside is stored before it counts. The thread works from what is stored and saves its state after
every review, so that one that was killed does the review again with the same questions, and comes to the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from holdfast.checkpoint.lock import RunLock
from holdfast.config import Config
from holdfast.errors import HoldfastError, Interrupted
from holdfast.guard.claimant import ScalarClaimant
from holdfast.guard.plan import budget_for
from holdfast.guard.review import Review
from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt
from holdfast.models.words import Words
from holdfast.preferences.collector import Collector
from holdfast.preferences.store import PreferenceStore
from holdfast.run.directory import OVER_HTTP, TRAINER, RunDirectory
from holdfast.serving.guard.answers import AuditAnswers, Who, answered
from holdfast.serving.guard.desk import GuardDesk
from holdfast.serving.guard.host import ServiceHost, unread_in
from holdfast.serving.guard.labellers import open_labeller
from holdfast.serving.guard.policy_server import PolicyServer
from holdfast.serving.guard.posts import PostedAnswer, batch_of, report_of
from holdfast.serving.guard.records import GuardRecords
from holdfast.serving.guard.settings import TrainingSettings, settings_of
from holdfast.serving.guard.stream import AnswerStream, Evaluation
from holdfast.serving.protocols import prompt_of
from holdfast.text import counted
from holdfast.track.tracker import METRICS_FILE, Tracker
from holdfast.web.security import Refused

LOG = logging.getLogger("holdfast.guard")
# Names of documents among the records.
SETTINGS, STATE, VERDICT, ENDED, GRANTS = "settings", "state", "verdict", "ended", "grants"
EVENTS_FILE = "events.jsonl"


class Training:
    """A training directory with its thread; `start` it, and `close` it in the end."""

    def __init__(
        self, path: Path, labeller: str, servers: Mapping[str, PolicyServer], say: Callable[[str], None]
    ) -> None:
        self._files = ExitStack()
        self.directory = RunDirectory.open(path)
        self.name = path.name
        try:
            self._files.enter_context(RunLock(path))
            self._config = self.directory.config()
            if (own := self._config.world.labeller) != labeller:
                raise HoldfastError(
                    f"{path} is answered by {own}, and the server was started for {labeller}; give --labeller {own}."
                )
            self._store = self._files.enter_context(self.directory.open_store(self._config))
            self._records = GuardRecords(self._store.database)
            self.settings = settings_of(self._records.document(SETTINGS))
        except BaseException:
            self._files.close()
            raise
        self._servers, self._speak = servers, say
        self._desk = GuardDesk(self._records)
        self._news = threading.Condition()
        self._arrived = 0  # grows with everything that comes in; the thread is idle when it has seen all of it
        self._idle_at = -1
        self._closing = False
        self._phase, self._waits = "reviewing", ""
        self._failure = ""
        self._counts = self._records.totals()
        self._verdict: dict[str, Any] | None = self._records.document(VERDICT)
        self._about: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._work, name=f"guard of {self.name}", daemon=True)

    # ---- the requests' side

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End between two questions; whatever was told is stored."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        self._desk.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._files.close()

    def post(self, document: Mapping[str, Any]) -> bool:
        """Store a batch; whether it is new."""
        name, kept, count = batch_of(document)
        if kept.get("of") == "reference" and self.settings.baseline != "reference":
            raise Refused(422, "This training's baselines are of its first batches; begin one with baseline reference.")
        if kept.get("of") == "evaluation":
            self._check_evaluation(kept)
        new = self._records.add_batch(name, kept, count)
        with self._news:
            batches, answers, newest = self._counts
            self._counts = (batches + new, answers + new * count, newest)
        self._arrive()
        return new

    def _check_evaluation(self, document: Mapping[str, Any]) -> None:
        if self.settings.policy != "evaluated":
            raise Refused(422, "This training asks for the policy's answers; begin one with policy evaluated.")
        own = set(self.settings.prompts)
        for n, each in enumerate(document["prompts"]):
            if prompt_of(each, "prompt") not in own:
                raise Refused(
                    422, f"prompts[{n}] of this evaluation is none of the prompts that the training began with."
                )

    def answer(self, document: Mapping[str, Any]) -> None:
        """Store the answers to a need."""
        need = document.get("need")
        question = self._desk.question(need if isinstance(need, str) else "")
        self._desk.answer(str(need), answered(question, {k: v for k, v in document.items() if k != "need"}))

    def report(self, document: Mapping[str, Any]) -> None:
        """Store what the client did about an advised action."""
        self._desk.report(*report_of(document))

    def end(self) -> None:
        """The trainer has made its last step: a last review of what came in since the one before."""
        if self._records.document(ENDED) is None:
            self._records.keep(ENDED, {"seq": self._records.totals()[2]})
        self._arrive()

    def resume(self) -> None:
        """A person lets a training that was stopped go on, or has mended what failed."""
        if self._phase == "stopped":
            self._records.keep(GRANTS, int(self._records.document(GRANTS) or 0) + 1)
        self._failure = ""
        self._arrive()

    def _arrive(self) -> None:
        with self._news:
            self._arrived += 1
            self._news.notify_all()

    @property
    def settled(self) -> bool:
        """Whether nothing is under way but what the client is waited for."""
        return bool(self._desk.needs or self._desk.actions or self._failure) or self._idle_at == self._arrived

    def state(self) -> dict[str, Any]:
        """All that a client or a person may want to know at this moment."""
        needs, actions = dict(self._desk.needs), dict(self._desk.actions)
        phase = "answers" if needs else "actions" if actions else "failed" if self._failure else self._phase
        batches, answers, _ = self._counts
        return {
            "training": self.name,
            "state": phase,
            "waits_for": self._failure or self._waits,
            "batches": batches,
            "answers": answers,
            "needs": [{"need": name, **question} for name, question in needs.items()],
            "actions": list(actions.values()),
            "verdict": self._verdict,
            **self._about,
        }

    # ---- the thread

    def _work(self) -> None:
        while not self._closing:
            try:
                with ExitStack() as files:
                    self._oversee(self._put_together(files))
            except Interrupted:
                return
            except HoldfastError as error:
                self._fail(str(error))
            except Exception as error:
                # Whatever it is, the other trainings go on, and clients are told instead of waiting for ever.
                LOG.exception("the guard of %s broke", self.name)
                self._fail(f"the guard broke: {type(error).__name__}: {error}")

    def _fail(self, words: str) -> None:
        """Say what is wrong, and wait until somebody says that it is mended."""
        self._desk.clear()
        self._failure = words
        self._say(f"{words} Then `POST /trainings/{self.name}/resume`, or start the server again.")
        with self._news:
            self._news.wait_for(lambda: self._closing or not self._failure)

    def _put_together(self, files: ExitStack) -> ServiceHost:
        """The review with its host, as it was when its state was saved last."""
        config, settings, seed = self._config, self.settings, self._config.run.seed
        saved = self._records.document(STATE)
        words = Words()
        if saved is not None:
            words.restore(saved["words"])
        codec = Codec(words)
        stream = AnswerStream(self._records, "policy", settings.answers)
        answers = AuditAnswers(self._desk, codec, settings, self._servers, lambda: self._evaluation(stream.place))
        tracker = files.enter_context(closing(Tracker(self.directory.path)))
        claimant = ScalarClaimant(answers.scores)
        collector = Collector(
            self.directory.key, codec, list(settings.prompts), self._store, None, claimant, config.preferences, seed,
            budget=budget_for(config.labels, config.audit, settings.rounds),
        )  # fmt: skip
        review: Review[Who] = Review.planned(
            config.guard, config.audit, settings.rounds, seed, collector, of_start=settings.baseline == "first"
        )
        host = ServiceHost(review, answers, self._desk, stream, tracker, self._say, self._tell)
        answering = open_labeller(config, self._store, self.directory.key, self._hold, self._asked_to_end, host.event)
        collector.labeller, collector.after_people = answering.labeller, answering.after_people
        collector.event, review.decided = host.event, host.decided
        self._words = words
        if saved is None:
            tracker.forget(METRICS_FILE, EVENTS_FILE)
        else:
            host.restore(saved["host"])
            host.event("resumed", checkpoint=review.good.name)
        return host

    def _oversee(self, host: ServiceHost) -> None:
        """From where the training is to its end."""
        if not host.review.guard.begun:
            self._begin(host)
        granted = int((self._records.document(STATE) or {}).get("grants", 0))
        while True:
            if host.review.stopped:
                granted = self._wait_for_grant(host, granted)
            self._about = self._described(host)
            self._phase = "watching"
            step = self._next_step(host.stream)
            if step is None:
                self._finish(host, granted)
                return
            host.see(*step)
            if host.step % self.settings.every == 0:
                self._review(host, granted, last=False)

    def _begin(self, host: ServiceHost) -> None:
        """What the reference says to all prompts, where that is kept, and the baselines."""
        host.answers.begin_round(0)
        self._phase = "reviewing"
        if host.answers.keeps("reference"):
            host.answers.keep("reference")
        self._phase = "baseline"
        of_first = self.settings.baseline == "first"
        beginning = host.stream if of_first else AnswerStream(self._records, "reference", self.settings.answers)
        batches: list[list[PostedAnswer]] = []
        while len(batches) < self._config.guard.baseline_batches:
            self._waits = f"baselines: {len(batches)} of {counted(self._config.guard.baseline_batches, 'step')}"
            step = self._next_step(beginning)
            if step is None:
                raise HoldfastError("The training ended before there were enough answers for the baselines.")
            batches.append(step[0])
            host.moment = step[1] if of_first else host.moment
        host.baselines = [host.seen(batch)[1] for batch in batches]
        host.unread = unread_in([each for batch in batches for each in batch])
        host.review.begin(host)
        self._waits = ""
        self._save(host, 0)

    def _next_step(self, stream: AnswerStream) -> Any:
        """The next step's answers, once there are enough; None when the training has ended."""
        while True:
            seen = self._arrived
            step = stream.next_step()
            if step is not None or self._records.document(ENDED) is not None:
                return step
            self._wait_beyond(seen)

    def _evaluation(self, after: int) -> Mapping[Prompt, PostedAnswer]:
        """The first whole evaluation after a place among the batches, once it is there."""
        evaluation, before = Evaluation(self._records, self.settings.prompts, after), self._phase
        while True:
            seen = self._arrived
            if (found := evaluation.whole()) is not None:
                self._phase, self._waits = before, ""
                return found
            prompts = f"{evaluation.answered} of {counted(len(self.settings.prompts), 'prompt')}"
            self._phase, self._waits = "evaluation", f"an evaluation of the policy: {prompts} so far"
            self._wait_beyond(seen)

    def _wait_beyond(self, seen: int) -> None:
        """Idle until something has come in that was not there."""
        with self._news:
            self._idle_at = seen
            self._news.wait_for(lambda: self._closing or self._arrived > seen)
        if self._closing:
            raise Interrupted

    def _review(self, host: ServiceHost, granted: int, last: bool) -> None:
        self._phase, host.last = "reviewing", last
        host.answers.begin_round(host.round)
        host.review.conduct(host)
        host.round += 1
        self._save(host, granted)

    def _finish(self, host: ServiceHost, granted: int) -> None:
        """A last review of the steps since the one before; then nothing is left to do."""
        saved = self._records.document(STATE)
        if host.step > saved["host"]["step"]:
            self._review(host, granted, last=True)
        self._about = self._described(host)
        self._phase = "ended"
        while True:
            self._wait_beyond(self._arrived)

    def _wait_for_grant(self, host: ServiceHost, granted: int) -> int:
        """Until a person lets the training go on."""
        self._about = self._described(host)
        while True:
            seen, grants = self._arrived, int(self._records.document(GRANTS) or 0)
            if grants > granted:
                self._waits = ""
                host.review.grant()
                self._save(host, grants)
                return grants
            self._phase, self._waits = "stopped", "a person who has looked, and lets it go on"
            self._wait_beyond(seen)

    def _save(self, host: ServiceHost, granted: int) -> None:
        state = {"host": host.state(), "words": self._words.state(), "grants": granted}
        self._records.keep(STATE, state)

    def _say(self, line: str) -> None:
        self._speak(f"{self.name}: {line}")

    def _asked_to_end(self) -> bool:
        return self._closing

    def _tell(self, verdict: dict[str, Any]) -> None:
        self._records.keep(VERDICT, verdict)
        self._verdict = verdict

    def _hold(self, words: str, done: int, of: int) -> None:
        """People or a judge are waited for."""
        self._waits = f"{words}: {done} of {of}" if words else ""
        self._phase = "labelling" if words else "reviewing"

    def _described(self, host: ServiceHost) -> dict[str, Any]:
        """What the client may want to know of the review: where it is, and the policy that it would go back to."""
        return {
            "round": host.round,
            "rounds": self.settings.rounds,
            "steps": host.step,
            "discounts": dict(host.discounts),
            "good": {"round": host.review.good.round, **(host.answers.place or {"step": 0, "checkpoint": None})},
        }


def make_training(path: Path, settings: TrainingSettings, config: Config) -> None:
    """A new training directory, which is there whole or not at all."""
    making = path.with_name(f".making-{path.name}")
    remove(making)
    facts = {"name": path.name, "key": path.name, TRAINER: OVER_HTTP, "world": "none", "seed": config.run.seed}
    directory = RunDirectory.create(making, config, facts)
    with PreferenceStore.open(directory.database_url(config)) as store:
        GuardRecords(store.database).keep(SETTINGS, settings.document())
    making.rename(path)


def remove(directory: Path) -> None:
    """Take away what was begun and never finished."""
    import shutil

    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)
