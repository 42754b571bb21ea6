"""A machine with two sockets, which are NUMA domains, in software emulation: it runs a program on the files of this one."""
