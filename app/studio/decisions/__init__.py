"""Questions of the page, answered with probabilities about a prompt or about the rows of a batch."""
