"""A trained network at work: the predictor, and the calibration of its cascade."""

from arrn.deploy.calibration import CASCADE, calibrate, calibrate_run, read_cascade, write_cascade
from arrn.deploy.predicting import Predictor

__all__ = ["CASCADE", "Predictor", "calibrate", "calibrate_run", "read_cascade", "write_cascade"]
