"""Attention maps of earlier texts, reused for texts of the same length (AttnCache; Song et al.)."""
