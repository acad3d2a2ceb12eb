"""Question sets that come with the project, in LongBench's format with `documents` in place of `context`."""
