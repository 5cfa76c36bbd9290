"""A trained network at work: the predictor, the calibration of its cascade, and files that run elsewhere."""

from arrn.deploy.calibration import CASCADE, calibrate, calibrate_run, read_cascade, write_cascade
from arrn.deploy.export import Exported, export_network
from arrn.deploy.predicting import Predictor
from arrn.deploy.publishing import push_to_hub

__all__ = [
    "CASCADE",
    "Exported",
    "Predictor",
    "calibrate",
    "calibrate_run",
    "export_network",
    "push_to_hub",
    "read_cascade",
    "write_cascade",
]
