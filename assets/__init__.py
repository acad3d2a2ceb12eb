"""What is bundled with the studio: the demo model and the files of its pages."""
