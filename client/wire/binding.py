"""Binding of a record's names to the inputs of a model.

By name, if the names are the model's. By order, if the model has a single input, or if no name is like any of the model's: the
original drops the names, so its programs call inputs `t`, or `t0`, `t1`, ..., or anything. All other names are refused. A name
that is like a name of the model is a slip, and order would answer `{"B": ..., "A": ...}` with the values of a and b exchanged.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec

_WORDS = re.compile(r"[^\W\d_]+|\d+")
_NUMBERED = re.compile(r"t([0-9]{0,9})")
_COMPARED, _SHOWN = 64, 60  # characters of a name
_LISTED = 16


class Binding(NamedTuple):
    """Binding of a record: for each input of the model, the place of its value among the values of the record.

    `by_order`: there are several values, and their names do not tell which input each value is for.
    """

    places: Sequence[int]
    by_order: bool


def bind(names: Sequence[str], inputs: Sequence[TensorSpec], *, may_order: bool = True) -> Binding:
    """Bind the names of a record, all different, to the inputs of a model.

    Args:
        names: names in the order of the record.
        inputs: inputs in the order of the model. An empty sequence stands for any number of inputs without names.
        may_order: whether several values may be bound by order.

    Raises:
        CodecError: the names do not fit. The message has both lists, and the nearest name of the model.
    """
    known = tuple(spec.name for spec in inputs)
    fits = len(names) == (len(known) or len(names)) > 0
    if fits and len(names) == 1:
        return Binding([0], by_order=False)
    places = {name: place for place, name in enumerate(names)}
    if fits and places.keys() == set(known):
        return Binding([places[name] for name in known], by_order=False)
    reason = _slip(names, known)
    if fits and not reason:
        if may_order:
            return Binding(range(len(names)), by_order=True)
        reason = "bindInputs is name, and these are not the model's names"
    takes = ", ".join(spec.describe() for spec in inputs[:_LISTED]) or "one or more tensors"
    more = f", and {len(inputs) - _LISTED} more" if len(inputs) > _LISTED else ""
    message = f"the record's inputs are {listed(names)}; the model takes {takes}{more}"
    raise CodecError(f"{message}; {reason}" if reason else message)


def like(name: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that a name is most like, or `None`.

    Names are alike if they differ only in case, separators and a suffix such as `:0`; if one begins with the other, or ends with
    the words of the other; or if one letter of several is replaced, missing, added or moved.
    """
    mine, (together, each) = _spelling(name), _spellings(known)
    if not mine.like(together):
        return None
    alike = [other for other, its in zip(known, each, strict=True) if mine.like(its)]
    return get_close_matches(name[:_COMPARED], alike, 1, 0)[0]


def listed(names: Sequence[str]) -> str:
    """Return names for a message, each shortened to 60 characters, at most 16 names."""
    shown = ", ".join(repr(name[:_SHOWN]) for name in names[:_LISTED])
    return f"{shown}, and {len(names) - _LISTED} more" if len(names) > _LISTED else shown or "none"


class _Spelling(NamedTuple):
    """One name, or several: in lower case without separators, its beginnings and last words, itself and itself less a letter."""

    letters: frozenset[str]
    parts: frozenset[str]
    slips: frozenset[str]

    def like(self, other: "_Spelling") -> bool:
        """Return whether one of these names is like one of the others."""
        apart = self.letters.isdisjoint(other.parts) and other.letters.isdisjoint(self.parts)
        return not (apart and self.slips.isdisjoint(other.slips))


_NOTHING = _Spelling(frozenset(), frozenset(), frozenset())


def _spelling(name: str) -> _Spelling:
    words = _WORDS.findall(name[:_COMPARED].casefold())
    letters = "".join(words)
    ends = range(1, len(letters) + 1)
    beginnings, last_words = (letters[:end] for end in ends), ("".join(words[at:]) for at in range(len(words)))
    slips = {letters, *(letters[: end - 1] + letters[end:] for end in ends)} - {""}
    return _Spelling(frozenset([letters] if letters else ()), frozenset((*beginnings, *last_words)), frozenset(slips))


@lru_cache(maxsize=16)
def _spellings(known: tuple[str, ...]) -> tuple[_Spelling, list[_Spelling]]:
    """Return the spelling of all names together, which is quickly compared, and of each name."""
    each = [_spelling(name) for name in known]
    letters, parts, slips = (frozenset[str]().union(*forms) for forms in zip(*each, _NOTHING, strict=True))
    return _Spelling(letters, parts, slips), each


def _slip(names: Sequence[str], known: tuple[str, ...]) -> str:
    """Return the reason for which names must not be bound by order, or an empty text: no name is like one of the model's."""
    numbered = [number[1] for name in names if (number := _NUMBERED.fullmatch(name))]
    if len(numbered) == len(names) and not any(map(_NUMBERED.fullmatch, _spellings(known)[0].letters)):
        in_order = numbered == sorted(numbered, key=lambda number: int(number or -1))
        return "" if in_order else "names such as t0, t1, ... stand for the order, and must stand in order"
    of_model = set(known)
    unknown = [name for name in names if name not in of_model]
    for name in unknown:
        if (nearest := like(name, known)) is not None:
            return f"{name[:_SHOWN]!r} is none of these, and the nearest is {nearest!r}"
    if 0 < len(unknown) < len(names):
        missing = sorted(of_model.difference(names)) or known
        [nearest] = get_close_matches(unknown[0][:_COMPARED], missing, 1, 0)
        return f"{unknown[0][:_SHOWN]!r} is none of these, and the nearest is {nearest!r}"
    return ""
