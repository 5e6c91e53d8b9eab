"""Figures of other libraries, measured once in a separate run; for orientation only."""

DATE = "November 2026"
WHERE = "2 cores, Python 3.11, PostgreSQL 15, Redis 7 (append-only file, flushed every second)"
HEAD = ("store", "peer", "version", "drain, 1 worker", "2 workers", "enqueue one", "many", "p50 ms")
FIGURES = (
    ("PostgreSQL", "pgqueuer", "1.6.0", "21,761", "32,575", "3,092", "59,015", "2.3"),
    ("PostgreSQL", "chancy", "0.26.0", "3,087", "4,407", "720", "2,937", "3.7"),
    ("PostgreSQL", "oban", "0.7.0", "2,063", "4,366", "1,547", "5,502", "2.2"),
    ("PostgreSQL", "saq", "0.26.4", "876", "870", "1,170", "3,000", "4.2"),
    ("PostgreSQL", "procrastinate", "3.10.0", "808", "894", "1,179", "16,837", "2.5"),
    ("PostgreSQL", "dbos", "3.3.0", "470", "496", "398", "914", "12.8"),
    ("Redis", "taskiq (streams)", "0.13.0", "3,237", "5,567", "3,283", "3,911", "1.0"),
    ("Redis", "huey", "3.5.4", "2,348", "4,687", "5,667", "5,525", "1.0"),
    ("Redis", "arq", "0.28.0", "2,211", "2,193", "2,528", "5,585", "6.1"),
    ("Redis", "dramatiq", "2.2.1", "2,097", "4,180", "6,291", "6,074", "8.2"),
    ("Redis", "saq", "0.26.4", "2,096", "3,616", "5,458", "9,580", "1.2"),
    ("Redis", "celery", "5.7.0", "1,271", "2,595", "2,289", "2,341", "1.2"),
    ("Redis", "streaq", "7.2.0", "1,142", "1,704", "2,289", "10,220", "2.6"),
    ("Redis", "rq", "2.12.0", "256", "399", "2,549", "12,230", "2.2"),
    ("SQLite", "huey", "3.5.4", "3,807", "4,421", "6,273", "7,038", "6.0"),
)
