"""INT8 proven on the records that a running job gets: sampled, tried beside the job, applied, and taken back."""
