"""Wake-ups between processes that share a file: a datagram of one byte, sent and forgotten."""
