"""The asynchronous pipeline: rollout, staleness, training and weight updates under one controller."""
