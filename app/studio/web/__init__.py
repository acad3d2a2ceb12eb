"""What the page's endpoints share: JSON answers, jobs, streams and charts."""
