"""Plain English: the count of sentences with a private turn of phrase may only fall, in each room."""

import json
from collections import Counter

from tests.house.prose import RECORD, counts
from tests.house.sources import refuse


def test_no_room_has_more_private_english_than_was_recorded() -> None:
    recorded, now = _recorded(), counts()
    more = [f"{room}: {now[room]}, was {recorded[room]}" for room in now if now[room] > recorded[room]]
    refuse(more, "Say it as an engineer would; `python -m tests.house.prose ROOM` shows the sentences.")


def test_the_record_of_private_english_is_lowered_with_the_count() -> None:
    recorded, now = _recorded(), Counter(counts())
    less = [f"{room}: {now[room]}, was {recorded[room]}" for room in recorded if now[room] < recorded[room]]
    refuse(less, "Good: `python -m tests.house.prose --record` writes the lower counts down.")


def _recorded() -> Counter[str]:
    return Counter(json.loads(RECORD.read_text("utf-8")))
