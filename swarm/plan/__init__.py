"""Number of machines that a rate needs: costs measured here, a simulation of the way of a record, and the answer."""
