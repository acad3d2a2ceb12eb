"""Quality of cached answers: tasks, scores and reports."""
