"""The stable codes of what the built-in components' own checks find; the loader's are `areal_core.spec.codes`."""

from __future__ import annotations

CODES: dict[str, str] = {
    "missing-model": "The files of a model are not on this machine.",
    "bad-shape": "Sizes of a model do not divide.",
    "bad-alphabet": "An alphabet cannot be one token a character.",
    "heads-not-divisible": "Attention heads do not divide over tensor-parallel devices.",
    "experts-not-divisible": "Experts do not divide over expert-parallel devices.",
    "answers-too-long": "The longest answer leaves a prompt no room.",
    "missing-reference": "KL is measured from a reference policy that is not there.",
    "biased-estimator": "An estimator of KL has the wrong gradient where it is used.",
    "buffer-too-long": "The length penalty begins before the first token.",
    "no-test-tasks": "No tasks are held out to evaluate on.",
    "same-file": "Tasks are trained and evaluated on.",
    "no-data": "The data set has to be fetched.",
}
