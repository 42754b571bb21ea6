"""Tally of a caller: the records that it sent, and what became of them."""

import msgspec


class Tally(msgspec.Struct):
    """Counts of a caller. A round ends with an answer to every record, or is counted in `stopped`, `refused` or `failed`.

    Attributes:
        records: records sent.
        right: answers that are the model's own.
        stopped: rounds that the caller itself did not end: a break, an interrupt or a cancelled task.
        refused: rounds that ended with an error that a fault may cause, by the name of the error.
        wrong: answers that are not the model's own.
        failed: rounds that ended with any other error.
        left: uris of enqueued records. True: Redis has taken the record, and the caller has not begun to take the result.
        taken: results taken after the load, by uri: "right", an `ErrorCode`, or a wrong answer.
    """

    records: int = 0
    right: int = 0
    stopped: int = 0
    refused: dict[str, int] = {}
    wrong: list[str] = []
    failed: list[str] = []
    left: dict[str, bool] = {}
    taken: dict[str, str] = {}

    def counts(self) -> dict[str, int]:
        """Return the counts that a report tells."""
        return {
            "records": self.records,
            "right": self.right,
            "wrong": len(self.wrong),
            "failed": len(self.failed),
            "stopped": self.stopped,
        }

    def add(self, other: "Tally") -> None:
        """Add the tally of a child."""
        self.records += other.records
        self.right += other.right
        self.stopped += other.stopped
        for name, count in other.refused.items():
            self.refused[name] = self.refused.get(name, 0) + count
        self.wrong += other.wrong
        self.failed += other.failed
        self.left |= other.left
