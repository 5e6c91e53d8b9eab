"""Envelopes of schedule plans: their params, and the digest by which a declaration is known."""

from dataclasses import replace

from outlast.core.envelope import MARK, PayloadContext
from outlast.core.schedule import Plan, Schedule
from outlast.jobs.envelopes import Envelopes
from outlast.scheduler.plan_builder import JobSource, declared_again


class PlanEnvelopes:
    """Encodes the plans that a schedule manager writes, and decodes those that it returns."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes

    def encoded(self, plan: Plan) -> Plan:
        """Return a plan with plain texts as it is stored."""
        if self._envelopes.codec is None:
            return plan
        source = self.encoded_source(JobSource(plan.making, plan.template, plan.params))
        digest = plan.declared and self._envelopes.wrap(
            plan.declared, _digest_context(plan), what="the digest of its declaration"
        )
        return replace(plan, params=source.params, declared=digest)

    def encoded_source(self, source: JobSource) -> JobSource:
        """Return a source whose params are as they are stored."""
        kind = source.blueprint.type
        context, what = PayloadContext("params", kind), f'params of "{kind}"'
        text = self._envelopes.wrap(source.params, context, what=what)
        return JobSource(source.blueprint, source.template, text)

    def revealed(self, schedule: Schedule) -> Schedule:
        """Return the schedule with its params decoded, if this app can decode them."""
        plan = schedule.plan
        if self._envelopes.codec is None or not plan.params.startswith(MARK):
            return schedule
        context = PayloadContext("params", plan.making.type)
        text = self._envelopes.reveal_text(plan.params, context)
        return replace(schedule, plan=replace(plan, params=text))

    def declared_again(self, old: Plan, new: Plan) -> Plan:
        """Return the plan of a stored schedule that an app declares as `new`, both as stored.

        Each encryption of a digest differs, so the digests are compared decoded.
        """
        if self._envelopes.codec is None or old.declared is None or new.declared is None:
            return declared_again(old, new)
        before = self._envelopes.reveal_text(old.declared, _digest_context(old))
        now = self._envelopes.reveal_text(new.declared, _digest_context(new))
        same = old.declared if before == now else new.declared
        return declared_again(old, replace(new, declared=same))


def _digest_context(plan: Plan) -> PayloadContext:
    return PayloadContext("digest", plan.making.type)
