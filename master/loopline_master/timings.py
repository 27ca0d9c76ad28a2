"""Timing constants that depend on one another or on a setting, in seconds unless the comment says otherwise.

Constants that stand alone stay in the files that use them. Settings that users change are in settings.py.
"""

from __future__ import annotations

# Links of workers and clients, and the end of the master.
HELLO_WITHIN_S = 10.0  # a new link without a Hello is closed; as long as report_every_s by default
CLOSE_WITHIN_S = 2.0  # for the closing handshake; a link that takes twice as long is aborted
STOP_WITHIN_S = 3.0  # for open requests when the master stops: longer than CLOSE_WITHIN_S, so that links can close
ACKNOWLEDGE_WITHIN_S = 0.05  # an idle worker learns that its results are on disk, if no task for it comes sooner; far
# shorter than a worker's wait for an answer before its next Report

# Streams to clients.
CHANGES_STILL_HERE_EVERY_S = (
    5.0  # longest silence of the stream of changes; at three times as much the page says "away"
)
STILL_HERE_EVERY_S = 15.0  # an empty line on a silent stream, a ping on a client's link; proxies wait 30 or more
ANSWER_WITHIN_S = 0.1  # the start of an answer waits for the first results, so that both are one packet
STREAM_REST_S = 0.1  # the longest pause after a read or an event: later changes are sent together
STREAM_REST_SHARE = 4.0  # the pause after a read, in multiples of the time of the read; at most STREAM_REST_S
STREAM_WRITE_S = 0.0005  # pause between two writes to one follower of results, for each follower
OUTPUT_LOOK_AGAIN_S = 1.0  # between looks at a silent task; a change of its job ends it, after STREAM_REST_S

# ETAs.
ETA_FRESH_FOR_S = 1.0  # shortest time between two outlooks ...
ETA_FRESH_SHARE = 20  # ... and in multiples of the time that one takes: at most 5 % of the processor
ETA_CALIBRATE_EVERY_S = (
    2.0  # shortest time between two reads of past ETAs, after jobs have ended: not below ETA_FRESH_FOR_S
)

# Notifications: the n-th retry comes NOTIFY_FIRST_PAUSE_S * 2**n later, up to NOTIFY_LONGEST_PAUSE_S.
NOTIFY_FIRST_PAUSE_S = 1.0
NOTIFY_LONGEST_PAUSE_S = 3600.0
NOTIFY_TRIES = 30  # tries, which with these pauses take about a day
NOTIFY_LOOK_EVERY_S = 0.5  # the shortest time between two looks into the outbox: below NOTIFY_FIRST_PAUSE_S
WEBHOOK_WITHIN_S = 10.0  # for one webhook
COMMAND_WITHIN_S = 60.0  # for one command, which delays other notifications until then
LIMIT_COMMAND_EVERY_S = 60.0  # pause between two calls of a command that sets a limit

# Files.
FIRST_PRUNE_AFTER_S = 300.0  # after the start: workers return and bring files first
PRUNE_EVERY_S = 3600.0  # pause between two removals of old jobs and of files that no job needs
RETAINED_FOR_S = 0.1  # a file retained so recently is not touched again, hence not removed; far below file_grace_s

TURN_WITHIN_S = 20.0  # longest answer to a HEAD that waits for its turn: proxies wait 30 or more

# Certificates.
LOOK_AT_CERTIFICATES_EVERY_S = 5.0  # the operator's files
RENEW_LOOK_EVERY_S = 3600.0  # whether the own certificate will end soon: it is renewed a month before
HANDSHAKE_WITHIN_S = 5.0  # of a new connection, from its first byte to the end of the TLS handshake
FIRST_REQUEST_WITHIN_S = 15.0  # the head of its first request must come after that

# The event log.
LOG_LOOK_EVERY_S = 3600.0  # checks whether a snapshot is due and entries are too old
FORGET_PAUSE_S = 0.1  # between two transactions that forget entries: others have their turn

SUM_EVERY_S = 10.0  # checks whether pieces of large jobs are over and can be summed up (store/history/job_sums.py)
SUM_PAUSE_S = 0.1  # between two pieces; each takes about 0.1 s in a thread

SAMPLE_EVERY_S = 30.0  # workers without news are sampled, so that each minute has a sample of each
CLOCK_LOOK_EVERY_S = 5.0  # checks whether the wall clock was set or the computer was suspended
SUSPENDED_S = 2.0  # a step that is later than this shows that the master was suspended: leases restart

# Clients that are slow.
HEADERS_WITHIN_S = 75.0  # those of a request must come, after the connection or the request before it
BODY_WITHIN_S = 300.0  # a body that is read as a whole must come; of a file, a piece in UPLOAD_PIECE_WITHIN_S
UPLOAD_PIECE_WITHIN_S = 60.0

REFUSED_IS_SENT_WITHIN_S = 1.0  # a client that sends a large body without a token has this long to read the refusal

# Senders of refused messages (admission/busy_time.py).
LONGEST_REST_S = 30.0  # longest pause before they are read again; for longer ones they get 429 and Retry-After
REST_TURN_S = 0.1  # between several paused messages of one sender

# Supervision.
GROWTH_EVERY_S = 900.0  # sizes of the data are measured, with a walk through the folder of files
LAG_EVERY_S = 5.0  # the lag of the event loop is measured
READY_WITHIN_S = 5.0  # the database must answer /readyz
INVARIANT_SAMPLE_EVERY_S = 5.0  # a sample takes up to about 6 ms with 9,000 jobs: 0.1 % of the time
TWIN_SHOWN_S = 120.0  # a second computer of one identity asks again after retry_max_s, 30 s by default
