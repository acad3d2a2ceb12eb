"""Sweeps of the Benchmark page: how one variable changes the times of both sides."""
