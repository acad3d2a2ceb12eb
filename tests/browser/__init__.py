"""The studio in a real browser; a package, as what these tests share ends with the last of them."""
