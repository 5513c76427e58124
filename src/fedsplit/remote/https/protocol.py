"""What server and client agree on: paths, headers, sizes and times."""

JOIN = "/v1/join"
"""Path by which a client registers."""

NEXT = "/v1/next"
"""Path of a client's next question; the request is held while there is none."""

BEAT = "/v1/beat"
"""Path of the heartbeats of a client that is at work on a question."""

REPLY = "/v1/reply"
"""Path of a client's reply."""

LEAVE = "/v1/leave"
"""Path by which a client that is stopped says that it will not come back."""

INSTANCE = "Fedsplit-Instance"
"""Header with a random number by which the processes of one client are told apart."""

NAME = "Fedsplit-Name"
"""Header with the name that a client states, percent-encoded; for a server without keys."""

MESSAGE = "Fedsplit-Message"
"""Header with the random number of a question, which its reply repeats."""

FAILED = "Fedsplit-Failed"
"""Header of a reply without an answer, with the type of the error."""

END = "Fedsplit-End"
"""Header of the answer to a request for questions after which none will come."""

VERSION = "Fedsplit-Version"
"""Header of every answer of a server."""

MESSAGE_BYTES = 256 * 2**20
"""The most bytes of a question or a reply."""

PART_BYTES = 2**20
"""The most bytes that are written at once."""

HOLD_SECONDS = 20.0
"""Seconds for which a request for a question is held if there is none."""

HEARTBEAT_SECONDS = 5.0
"""Seconds between the heartbeats of a client that is at work on a question."""

SILENCE_SECONDS = 20.0
"""Seconds without a request after which a client counts as gone."""

TRANSFER_SECONDS = 30.0
"""Seconds in which each part of a body has to arrive or to leave."""
