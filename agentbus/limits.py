"""Every fixed bound of the bus, unit last in its name, with its reason. Pure; what a user may move is in config.py."""

from __future__ import annotations

NAME_BYTES_MAX = 128
"""One identity, channel or label: room for any branch name, short enough for one line of a listing."""

DISPLAY_NAME_BYTES_MAX = 1024
"""A display name with parents and suffix: eight levels of the longest names."""

ERROR_VALUE_CHARS_MAX = 200
"""How much of a refused value an error repeats: enough to recognise it, never a body."""

COMMAND_DEADLINE_S = 5.0
"""From the start of a call to ``busy``, over every wait for locks: well under a tool's 10 s."""

CATCH_UP_LINES_MAX = 1000
"""How many lines of other writers are folded under the writer lock; who is further behind lets go and reads first."""

LOOK_MS_MAX = 1000
"""How old a decision may be that is written: the rules count in minutes and hours."""

SNAPSHOT_TAIL_LINES_MIN = 10_000
"""Lines folded since the last snapshot before a new one is worth it: a tenth of a second at the next start."""

ARCHIVE_SEGMENTS_MAX = 16
"""Segments packed at one cleanup: 256 MiB of the usual size, some ten seconds of one core, in the background."""

ARCHIVE_START_S = 60.0
"""Before a process first looks for something to pack: a command is gone by then, a server is not."""

LOCKED_WAIT_S = 0.1
"""How long a call waits for the State while it holds the writer lock, which keeps every other process from writing."""

REQUEST_BYTES_MAX = 16 << 20
"""One request line on stdin: far above any legal call, so that only a broken client meets it."""

CALLS_IN_FLIGHT_MAX = 256
"""Worker threads of one server: above the 50 concurrent calls we promise; further calls queue."""

METADATA_ENTRIES_MAX = 64
"""Entries of a message's metadata: a few tags, not a document."""

KEY_BYTES_MAX = 256
"""An idempotency key: a UUID, a hash, or a readable sentence."""

UNKNOWN_NAMES_MAX = 5
"""Mentioned names that nobody has, as a post tells them: a hint, not a list."""

MENTIONS_LOOKED_AT_MAX = 100
"""How many mentions of a text are looked at for such names: a text may be all ``@``."""

QUERY_CHARS_MAX = 1000
"""A search query: a few words, or one pasted error message."""

FILTER_ENTRIES_MAX = 1000
"""Channels named in one receive."""

EVICTED_CHANNELS_MAX = 1000
"""Channels that one line evicts messages of, beside those it must: the events leave room for a message in it."""

CHANNELS_MAX = 10_000
"""Channels of one bus: far above use, so that a runaway agent cannot fill every list."""

LIST_ENTRIES_MAX = 500
"""Rows of list_channels and discover before ``truncated``."""

HISTORY_COUNT_MAX = 1000
"""Messages asked for in one history or search; ``result_kib`` cuts earlier."""

RECEIPT_AGE_MS_MAX = 24 * 3600 * 1000
"""How long the projection remembers an idempotency key: the largest ``receipt_retention_minutes``."""

ACTIVE_INTERVAL_MS = 3600 * 1000
"""At most one ``active`` event an hour: an idle agent that polls writes 24 lines a day."""

WAIT_SLICE_S = 15.0
"""A waiting receive reports progress at least this often; clients give up at 60 s without it."""

SNIPPET_CHARS = 160
"""Text around a search hit: two lines of a terminal."""

NEAREST_NAMES_MAX = 3
"""Names offered when one is misspelt."""

SUFFIX_TRIES_MAX = 10_000
"""Live sessions that may hold one name, suffixes counted; more is a runaway launcher."""

RESULT_FRAME_BYTES = 1024
"""Room kept in a result for what is not messages: token, instruction, counts, where a search looked."""

SEARCHED_NAMES_BYTES_MAX = 512
"""Channels that a search names as looked into: within the frame."""

SEARCH_TIME_S = 4.0
"""How long a search may take before it says that it must be narrowed: no tool may take 10 s."""

SEARCH_TURN_S = 1.5
"""How much of that may go into the index: what is left is enough to read some ten thousands of texts."""

SEARCH_WAIT_S = 3.0
"""How much of it a search waits for another process, or thread, that adds to the index."""

SEARCH_BEHIND_MIN = 64
"""Texts that the index may lack before it is brought up to date: so many are read faster than a file is made."""

SEARCH_SCANNED_MAX = 5000
"""Texts that a search reads rather than wait for another process to put them into the index."""

SEARCH_DEAD_MIN = 1000
"""With twice the texts there are and so many more, the index is made anew: most of what it says leads nowhere."""

SEARCH_PART_TEXTS = 10_000
"""Texts put into the index between two looks at the State."""

SEARCH_DISK_BYTES_MIN = 16 << 20
"""What the index leaves free on the disk: posts are worth more than quick searches."""

SEARCH_PAGES_MAX = 64
"""Pages of searches that can be continued; an agent reads two or three of one."""

NEAREST_WORDS_MAX = 3
"""Words offered in the place of one that stands nowhere."""

NEAREST_TRIED_MAX = 20
"""Words looked up to offer those: one that stands only in texts that nobody may see is not offered."""

VOCABULARY_MAX = 20_000
"""Words with the same first letter that are compared with one that stands nowhere."""

DISK_FREE_LOW_BYTES = 1 << 30
"""Free space below which `agentbus status` warns: a copy of the largest segment, which a repair has to write."""
