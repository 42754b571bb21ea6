"""History of every record of a run, and the verdicts on the run. Pure: modules that read Redis write into the history."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.records import EXPECTED, NO_URI, POISON, RIGHT, RecordKind, SentRecord


class Acceptance(StrEnum):
    """Result of enqueueing a record."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # nothing was enqueued: the queue or Redis was full
    UNKNOWN = "unknown"  # the connection broke before Redis answered


class SeenOutcome(msgspec.Struct, frozen=True):
    """Outcome that a client finds for a record.

    Attributes:
        what: "right", "wrong" or an `ErrorCode`.
        detail: text for people.
        digest: digest of all bytes of the outcome.
        deliveries: number of times that Redis gave the record to a node.
    """

    what: str
    detail: str
    digest: bytes
    deliveries: int = 1


class SeenDeadLetter(msgspec.Struct, frozen=True):
    """Dead letter of a record, with its error code and the number of its deliveries."""

    uri: str
    code: str
    deliveries: int = 1


class Remains(msgspec.Struct):
    """Remains of a run when all nodes have ended. `endings` describes the nodes that ended in a wrong way."""

    processes: list[str] = []
    segments: list[str] = []
    endings: list[str] = []
    consumers: list[str] = []
    pending: int = 0
    entries: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """Result of a check: the number of cases, the number of failed cases, and the first failed case."""

    check: str
    count: int
    failed: int = 0
    first: str = ""

    @property
    def passed(self) -> bool:
        """True if no case failed."""
        return not self.failed


class History:
    """All knowledge about a run. Several threads write, but each field of a record has a single writer."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.records: dict[str, SentRecord] = {}
        self.acceptance: dict[str, Acceptance] = {}
        self.entries: dict[str, str] = {}
        self.accepted = 0
        self.outcomes: dict[str, SeenOutcome] = {}
        self.changed: dict[str, str] = {}
        self.replies: Counter[str] = Counter()
        self.dead_letters: list[SeenDeadLetter] = []
        self.runs: dict[int, int] = {}
        self.calm: set[str] = set()  # records sent and answered before any fault
        self.redelivered: list[str] = []  # records of the rehearsal that were delivered more than once
        self.disturbances = 0  # faults after which a record may run again without a counted delivery
        self.remains = Remains()
        self.callers: dict[str, Tally] = {}
        self.harvest = Tally()

    def sending(self, record: SentRecord) -> None:
        """Note a record before it is sent, because its outcome may come before Redis' answer."""
        self.acceptance[record.uri] = Acceptance.UNKNOWN
        self.records[record.uri] = record

    def sent(self, uri: str, acceptance: Acceptance, entry: str = "") -> None:
        """Note Redis' answer to a record. `entry` is the id of the record's entry, or empty."""
        self.entries[uri] = entry
        self.acceptance[uri] = acceptance
        self.accepted += acceptance is Acceptance.ACCEPTED

    def seen(self, uri: str, outcome: SeenOutcome) -> None:
        """Note an outcome of a record. The first outcome counts, and every later outcome must be the same."""
        first = self.outcomes.setdefault(uri, outcome)
        if first.digest != outcome.digest:
            self.changed[uri] = f"was {first.what}, became {outcome.what}: {outcome.detail}"

    def vanished(self, uri: str) -> None:
        """Note that the outcome of a record has disappeared."""
        self.changed[uri] = "is gone"

    @property
    def unanswered(self) -> list[str]:
        """Accepted records without an outcome."""
        known = list(self.acceptance.items())  # a snapshot, because the load adds records meanwhile
        accepted = [uri for uri, acceptance in known if acceptance is Acceptance.ACCEPTED]
        return [uri for uri in accepted if uri not in self.outcomes]

    def taken(self) -> Iterable[SentRecord]:
        """Yield the records that Redis took: accepted records, and records of unknown acceptance with an outcome."""
        for uri, record in self.records.items():
            known = self.acceptance[uri]
            if known is Acceptance.ACCEPTED or (known is Acceptance.UNKNOWN and uri in self.outcomes):
                yield record

    def result_name(self, record: SentRecord) -> str:
        """Return the name of the record's result: its uri, or the id of its entry if it was sent without."""
        return self.entries.get(record.uri, "-") if record.flaw == NO_URI else record.uri

    def in_redis(self) -> dict[str, tuple[SentRecord, str]]:
        """Return the records whose results lie in Redis and their outcomes, by the names of the results."""
        return {
            self.result_name(record): (record, self.outcomes[uri].what)
            for uri, record in self.records.items()
            if uri in self.outcomes and not record.replies
        }

    def describe(self, uri: str) -> str:
        """Return a description of a record for people."""
        record = self.records[uri]
        flaw = f" ({record.flaw})" if record.flaw else ""
        return f"record {uri}, {record.kind}{flaw}, {record.dialect}, {self.acceptance[uri]}"


def check(history: History) -> list[Verdict]:
    """Return the verdicts on a finished run, in the order of a record's life."""
    lost = [f"{history.describe(uri)}: no outcome" for uri in history.unanswered]
    changed = [f"{history.describe(uri)}: {how}" for uri, how in history.changed.items()]
    expected: list[Verdict] = []
    for kind, allowed in EXPECTED.items():
        found = [(each.uri, history.outcomes[each.uri]) for each in history.taken() if each.uri in history.outcomes]
        found = [(uri, outcome) for uri, outcome in found if history.records[uri].kind is kind]
        wrong = [
            f"{history.describe(uri)}: {outcome.what}: {outcome.detail}"
            for uri, outcome in found
            if outcome.what not in allowed
        ]
        names = ("the right answer" if what == RIGHT else str(what) for what in sorted(allowed, reverse=True))
        expected.append(_verdict(f"{kind} records get {' or '.join(names)}", len(found), wrong))
    refused = [uri for uri, known in history.acceptance.items() if known is Acceptance.REFUSED]
    answered = [f"{history.describe(uri)}: {history.outcomes[uri].what}" for uri in refused if uri in history.outcomes]
    waiting = [record.uri for record in history.taken() if record.replies]
    replies = [
        f"{history.describe(uri)}: {history.replies[uri]} replies" for uri in waiting if history.replies[uri] != 1
    ]
    remains = history.remains
    return [
        _verdict("accepted records have an outcome", history.accepted, lost),
        _verdict("an outcome never changes", len(history.outcomes), changed),
        *expected,
        _verdict("refused records have no outcome", len(refused), answered),
        _verdict("a record that waits gets one reply", len(waiting), replies),
        *_dead_letters(history),
        *_runs(history),
        *_callers(history),
        _verdict("nodes come back, and end only when they are told to, with exit code 0", 2, remains.endings),
        _verdict("no process is left", 0, remains.processes),
        _verdict("no memory segment is left", 0, remains.segments),
        _verdict("no consumer is left in the group", 0, remains.consumers),
        Verdict("nothing is pending", 0, remains.pending, f"{remains.pending} entries" if remains.pending else ""),
        Verdict("the stream is empty", 0, remains.entries, f"{remains.entries} entries" if remains.entries else ""),
    ]


def _verdict(name: str, count: int, offenders: Sequence[str]) -> Verdict:
    return Verdict(name, count, len(offenders), offenders[0] if offenders else "")


def _dead_letters(history: History) -> Iterable[Verdict]:
    poison = {record.uri for record in history.taken() if record.kind in POISON}
    found = Counter(letter.uri for letter in history.dead_letters)
    wrong = [f"{history.describe(uri)}: {found[uri]} dead letters" for uri in poison if found[uri] != 1]
    others = [uri for uri in found if uri not in poison]
    wrong += [f"{history.describe(uri) if uri in history.records else uri}: a dead letter" for uri in others]
    yield _verdict("dead letters are the poison records, once each", len(poison), wrong)
    codes = [
        f"{history.describe(letter.uri)}: answered {history.outcomes[letter.uri].what}, dead letter says {letter.code}"
        for letter in history.dead_letters
        if letter.uri in history.outcomes and history.outcomes[letter.uri].what != letter.code
    ]
    yield _verdict("a dead letter says what the answer says", len(history.dead_letters), codes)


def _runs(history: History) -> Iterable[Verdict]:
    """Check the number of runs of poison rows and slow rows. Only records of the same kind share a row."""
    most = math.ceil(math.log2(max(history.batch, 2))) + 2
    deliveries = {letter.uri: letter.deliveries for letter in history.dead_letters}
    allowed: Counter[int] = Counter()
    for record in history.taken():
        if record.kind in POISON:
            tries = 1 if record.uri in history.calm else deliveries.get(record.uri, 1) + history.disturbances
            allowed[record.sample] += most * tries
    wrong = [
        f"the row of sample {sample} was run {history.runs[sample]} times, at most {limit} are needed"
        for sample, limit in allowed.items()
        if history.runs.get(sample, 0) > limit
    ]
    yield _verdict("a poison record is run log2(batch)+2 times a delivery, at most", len(allowed), wrong)
    slow = [record for record in history.taken() if record.kind is RecordKind.SLOW and record.uri in history.calm]
    again = [
        f"{history.describe(record.uri)}: {history.runs.get(record.sample, 0)} runs"
        for record in slow
        if history.runs.get(record.sample, 0) != 1
    ]
    yield _verdict("a slow record is run once: its lease is renewed", len(slow), again)
    delivered = [
        f"{history.describe(uri)}: {history.outcomes[uri].deliveries} deliveries"
        for uri in history.calm
        if uri in history.outcomes and history.outcomes[uri].deliveries > 1
    ]
    delivered += history.redelivered
    yield _verdict("before any fault, a record is delivered once", len(history.calm), delivered)


def _callers(history: History) -> Iterable[Verdict]:
    """Check the answers that callers got, and the results that they left.

    A load without callers has no verdict, because nothing takes its results at the end.
    """
    if not history.callers:
        return
    tallies = history.callers | {"harvest": history.harvest}
    wrong = [f"{name}: {each}" for name, tally in tallies.items() for each in tally.wrong]
    answers = sum(tally.right + len(tally.wrong) for tally in tallies.values())
    yield _verdict("callers get the model's own answers", answers, wrong)
    failed = [f"{name}: {each}" for name, tally in tallies.items() for each in tally.failed]
    yield _verdict("callers get an answer, or an error that a fault may cause", answers, failed)
    left = {uri: taken for tally in history.callers.values() for uri, taken in tally.left.items()}
    due = {name: what for name, (_, what) in history.in_redis().items()} | {uri: RIGHT for uri in left if left[uri]}
    taken = history.harvest.taken
    other = [
        f"the result of {name} was {what}, taken was {taken[name]}"
        for name, what in due.items()
        if taken.get(name, what) != what
    ]
    other += [f"the result of {uri}: {taken[uri]}" for uri in left if taken.get(uri, RIGHT) != RIGHT and uri not in due]
    yield _verdict("results are taken as they were", len(taken), other)
    lost = [f"the result of {name} is lost" for name in due if name not in taken]
    yield _verdict(
        "loops left early lose no result, and each interrupt at most one", len(due), lost[history.harvest.stopped :]
    )
