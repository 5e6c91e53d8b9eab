"""Notifications between processes that share a file: datagrams of one byte on Unix sockets."""
