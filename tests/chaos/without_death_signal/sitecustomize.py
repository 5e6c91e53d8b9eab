"""A system without a parent-death signal, such as macOS: children watch their lifeline alone."""

from outlast.worker.supervisor import parent_death

parent_death._set_parent_death_signal = lambda _: False
