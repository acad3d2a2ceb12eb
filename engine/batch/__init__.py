"""Many prompts: what is submitted, who answers it, and what comes back."""
