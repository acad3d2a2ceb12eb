"""Files and folders: atomic writes, confined folders, and text files."""
