"""The studio's loaded model, and the programs that use it."""
