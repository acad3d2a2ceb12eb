"""The loaded model of the studio, and the programs that use it."""
