"""Many machines: nodes replicated over hosts."""
