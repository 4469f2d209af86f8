"""Real steps of PyTorch. These modules import torch, so they are imported when a step is run."""
