"""Files and folders: atomic writes, folders that nothing leads out of, and text files."""
