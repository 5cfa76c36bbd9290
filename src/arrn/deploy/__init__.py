"""A trained network at work: the predictor."""
