"""Text that has broken other programs."""

from typing import Final

HOSTILE: Final[list[str]] = [
    # SQL
    "'", "''", '"', "`", ";", "--", "/*", "*/", "\\", "\\'", "%", "_", "?", ":name", "@name", "$1",
    "'; DROP TABLE outlast_jobs; --",
    "' OR '1'='1",
    "1); DELETE FROM outlast_ends; --",
    "x' UNION SELECT * FROM sqlite_schema --",
    "'||(SELECT id FROM outlast_jobs)||'",
    "NULL", "null", "0", "-1", "1e999", "0x7fffffffffffffff", "9223372036854775808",
    # JSON
    "{}", "[]", '"', "]", "}", '","', "\\u0000", "\\ud800", "true", "NaN", '{"a":1}', "$.a", "#-1",
    # paths, shells, formats
    "../../etc/passwd", "/dev/null", "$(id)", "`id`", "%s%n%x", "{0.__class__}", "<script>",
    # control characters and line ends
    "\n", "\r\n", "\t", "\x01", "\x08", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u2029", "a\nb",
    # Unicode
    "naïve", "東京", "\U0001f433", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301", "é",
    "\u202egnp.exe", "\u200b", "\ufeff", "\ufffe", "\uffff", "\U0010ffff", "ﷺ", "ß", "İ", "ΑΒΓ",
    # blanks
    "", " ", "  leading", "trailing  ", "\u00a0", "\u3000",
    # what no store can keep
    "\0", "a\0b", "\0a", "a\0", "\ud800", "\udfff", "a\ud800b", "\udc80", "\ud83d",
    # long
    "x" * 129, "x" * 513, "é" * 513, "x" * 70_000, "'" * 70_000, "x" * 300_000,
    "\U0001f433" * 70_000,
]  # fmt: skip
