"""Sweeps of the Benchmark page: times of several sides that take turns, by one thing that changes."""
