"""The stage under way: its plan, optimizers, frozen and value models, and how far it has come."""

from __future__ import annotations

from areal_core.contexts import CriticPlan, StagePlan
from areal_plugins import InputError
from areal_plugins.builtin.trainer.learner import Learner
from areal_plugins.builtin.trainer.policy import Policy
from areal_plugins.builtin.trainer.reference import Snapshot
from areal_plugins.builtin.trainer.schedule import learning_rate
from areal_plugins.builtin.trainer.value_model import ValueModel


class Stage:
    """`batches` and `steps` (optimizer steps, also those that were skipped) count from the stage's start."""

    def __init__(self, plan: StagePlan, policy: Policy, critic: ValueModel | None) -> None:
        if not plan.temperature > 0:
            way_out = "sample with inference.sampling.temperature above 0"
            raise InputError(f"stage {plan.name}", "greedy answers have no log-probabilities to train on", way_out)
        self.plan = plan
        self.batches = 0
        self.steps = 0
        self.learner = Learner(policy.trainable, plan.optimizer, plan.optimizer.learning_rate)
        self.reference = Snapshot(policy.trainable) if plan.objective.needs_reference else None
        self.critic = (critic or ValueModel(policy)) if plan.objective.needs_critic else None
        self._critic_plan = plan.critic or CriticPlan(plan.optimizer.learning_rate)
        self.critic_learner = (
            Learner(self.critic.trainable, plan.optimizer, self._critic_plan.learning_rate) if self.critic else None
        )

    @property
    def holds_policy(self) -> bool:
        """Whether only the critic is trained as yet."""
        return self.critic is not None and self.batches < self._critic_plan.warmup_steps

    @property
    def learners(self) -> list[Learner]:
        """Whatever the next step moves."""
        return self.every_learner[1:] if self.holds_policy else self.every_learner

    @property
    def every_learner(self) -> list[Learner]:
        """The policy's, and the critic's where there is one."""
        return [self.learner, *([self.critic_learner] if self.critic_learner else [])]

    def rate(self, mean_lag: float) -> float:
        """The learning rate of the next optimizer step."""
        return learning_rate(self.plan.optimizer, self.steps, self.plan.updates, mean_lag)

    def renew_reference(self) -> None:
        """Take the policy of now as the reference, where it is time."""
        every = self.plan.reference_every
        if self.reference is not None and every and self.batches and self.batches % every == 0:
            self.reference.renew()
