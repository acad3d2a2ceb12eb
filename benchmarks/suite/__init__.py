"""All measurements that have goals, their results, and the comparison of two commits."""
