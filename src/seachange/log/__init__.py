"""What a log is: contexts, actions, rewards and propensities, validated, encoded and in time order."""
