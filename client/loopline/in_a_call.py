"""Function calls on a worker may not submit to the grid."""

from __future__ import annotations

import os

from loopline_shared.errors import LooplineError


def is_in_a_call() -> bool:
    """True in a function call on a worker, and in the processes that it starts."""
    return bool(os.environ.get("LOOPLINE_CALL"))


def check_may_submit() -> None:
    """Raise LooplineError in a function call, since a call that waits for others keeps its slot from them."""
    if is_in_a_call():
        message = "a function call cannot submit to the grid: return arguments, and submit those from your program"
        raise LooplineError("in_a_call", message, "a call may use the pools of the standard library, and joblib")
