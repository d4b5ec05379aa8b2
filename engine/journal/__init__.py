"""From the bytes of a job's output to levelled lines of the journal."""
